//! Conflicts between two OperatorGroups: the namespaces that they select and the APIs that their members provide.

use super::{ApiSet, NamespaceSet, OperatorGroup};
use crate::names;

/// Namespaces and APIs of one OperatorGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorGroupApis {
    /// `name/namespace` of the OperatorGroup.
    pub identifier: String,
    /// The namespaces in its status, and its own one; none before its first pass.
    pub targets: NamespaceSet,
    /// The APIs in its annotation.
    pub provided: ApiSet,
}

/// Action for the APIs of a ClusterServiceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiDecision {
    /// The annotation has them, and another OperatorGroup provides some too: they are removed.
    Remove,
    /// Nobody else provides them: they are added to the annotation.
    Add,
    /// Another OperatorGroup provides some of them.
    Conflict,
    /// The annotation is right.
    Keep,
}

impl OperatorGroupApis {
    /// Namespaces and APIs of an OperatorGroup.
    pub fn of(group: &OperatorGroup) -> Self {
        let mut targets = group.namespaces().to_vec();
        // Only the first one is looked at: a status of OLM has all namespaces alone.
        if targets.first().is_some_and(|first| !first.is_empty()) {
            targets.push(group.metadata.namespace.clone());
        }
        let annotation = group.metadata.annotations.get(names::PROVIDED_APIS_ANNOTATION);
        Self {
            identifier: format!("{}/{}", group.metadata.name, group.metadata.namespace),
            targets: targets.into_iter().collect(),
            provided: annotation.map(|text| ApiSet::parse(text)).unwrap_or_default(),
        }
    }

    /// The namespace of the OperatorGroup.
    pub fn namespace(&self) -> &str {
        self.identifier
            .rsplit_once('/')
            .map_or("", |(_, namespace)| namespace)
    }

    /// Those of the others that select a namespace that this one selects, in the order given.
    pub fn intersecting<'a>(&self, others: &'a [Self]) -> Vec<&'a Self> {
        let meets = |other: &&Self| {
            other.identifier != self.identifier && !self.targets.intersection(&other.targets).is_empty()
        };
        others.iter().filter(meets).collect()
    }

    /// Action for the APIs that a member provides.
    pub fn decide(&self, provided: &ApiSet, others: &[Self]) -> ApiDecision {
        let elsewhere = self
            .intersecting(others)
            .into_iter()
            .fold(ApiSet::default(), |apis, other| apis.union(&other.provided));
        let is_provided_elsewhere = !provided.intersection(&elsewhere).is_empty();
        let is_recorded = provided.is_subset(&self.provided);
        match (is_provided_elsewhere, is_recorded) {
            (true, true) => ApiDecision::Remove,
            (true, false) => ApiDecision::Conflict,
            (false, false) => ApiDecision::Add,
            (false, true) => ApiDecision::Keep,
        }
    }

    /// The annotation `olm.providedAPIs` after the decision; `None` where it stays as it is.
    pub fn annotation_after(&self, decision: ApiDecision, provided: &ApiSet) -> Option<String> {
        match decision {
            ApiDecision::Add => Some(self.provided.union(provided).annotation()),
            ApiDecision::Remove => Some(self.provided.difference(provided).annotation()),
            ApiDecision::Conflict | ApiDecision::Keep => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn group(name: &str, namespaces: &[&str], apis: &str) -> OperatorGroupApis {
        let group = json!({
            "metadata": {"name": name, "namespace": format!("of-{name}"), "annotations": {"olm.providedAPIs": apis}},
            "status": {"namespaces": namespaces},
        });
        OperatorGroupApis::of(&OperatorGroup::read(&group).unwrap())
    }

    #[test]
    fn a_group_covers_its_own_namespace_too() {
        assert!(group("g", &["x"], "").targets.contains("of-g"));
        assert!(!group("g", &[], "").targets.contains("of-g"));
        assert!(group("g", &[""], "").targets.is_all());
    }

    #[test]
    fn a_global_group_meets_every_group_that_selects_something() {
        let others = [group("g", &[""], ""), group("h", &["x"], ""), group("i", &[], "")];
        let met = group("g", &[""], "");
        let met: Vec<&str> = met
            .intersecting(&others)
            .iter()
            .map(|other| other.identifier.as_str())
            .collect();
        assert_eq!(met, ["h/of-h"]);
    }

    #[test]
    fn apis_of_an_intersecting_group_are_a_conflict() {
        let provided = ApiSet::parse("A.v1.g,B.v1.g");
        let other = [group("h", &["x"], "B.v1.g")];
        for (own, others, decision, annotation) in [
            ("", &other[..], ApiDecision::Conflict, None),
            (
                "A.v1.g,B.v1.g,C.v1.g",
                &other[..],
                ApiDecision::Remove,
                Some("C.v1.g"),
            ),
            ("C.v1.g", &[], ApiDecision::Add, Some("A.v1.g,B.v1.g,C.v1.g")),
            ("A.v1.g,B.v1.g", &[], ApiDecision::Keep, None),
        ] {
            let group = group("g", &["x", "y"], own);
            assert_eq!(group.decide(&provided, others), decision);
            assert_eq!(group.annotation_after(decision, &provided).as_deref(), annotation);
        }
    }
}
