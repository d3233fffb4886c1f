//! One pass over an OperatorGroup.
//!
//! A pass that finds other namespaces writes them into the status and ends; the write starts the next one, which
//! annotates the members, writes the roles for users and removes APIs that no member provides any more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::apis::provided_by;
use super::namespaces::{added_or_removed, changed};
use super::roles::group_roles;
use super::targets::{TargetsError, select};
use super::{ApiKey, ApiSet, OperatorGroup, OperatorGroupApis};
use crate::cluster::{Cluster, object_at, text};
use crate::csv::{ClusterServiceVersion, set_phase};
use crate::names;

mod account;
mod conditions;

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorGroupDecision {
    /// The objects to write, whole, in the order of their first change. Status and metadata of an OperatorGroup or
    /// ClusterServiceVersion may both differ.
    pub written: Vec<Value>,
    /// Namespaces whose labels must be looked at.
    pub namespaces: BTreeSet<String>,
    /// ClusterServiceVersions that must be looked at, as namespace and name.
    pub csvs: BTreeSet<(String, String)>,
    /// Error that ended the pass early; it is retried.
    pub error: Option<PassError>,
}

/// Error that ends a pass early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// The OperatorGroup is gone.
    #[error("operatorgroup {0}/{1} not found")]
    Gone(String, String),
    /// The OperatorGroup cannot be read.
    #[error("cannot read operatorgroup {0}/{1}: {2}")]
    Unreadable(String, String, String),
    /// Its service account does not exist.
    #[error("failed to get service account, sa={0} serviceaccounts \"{0}\" not found")]
    Account(String),
    /// It selects no namespaces.
    #[error(transparent)]
    Targets(#[from] TargetsError),
}

/// A ClusterServiceVersion of the OperatorGroup's namespace, on the wire and read. Copies are no members.
struct GroupMember<'a> {
    object: &'a Value,
    csv: ClusterServiceVersion,
}

/// One pass over the OperatorGroup of this namespace and name.
pub fn pass(namespace: &str, name: &str, cluster: &Cluster, now: Timestamp) -> OperatorGroupDecision {
    let Some(object) = cluster.get(names::OPERATOR_GROUP_KIND, namespace, name) else {
        let error = PassError::Gone(namespace.to_owned(), name.to_owned());
        return OperatorGroupDecision {
            error: Some(error),
            ..OperatorGroupDecision::default()
        };
    };
    let mut pass = GroupPass {
        cluster,
        now: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        group: object.clone(),
        changes: Changes::default(),
        decision: OperatorGroupDecision::default(),
    };
    pass.decision.error = pass.run(namespace, name).err();
    pass.finish()
}

/// A pass under way.
struct GroupPass<'a> {
    cluster: &'a Cluster,
    /// The time of the pass, in RFC 3339 with whole seconds.
    now: String,
    /// The OperatorGroup as it will be.
    group: Value,
    changes: Changes,
    decision: OperatorGroupDecision,
}

/// Objects as they will be, by kind, namespace and name.
#[derive(Default)]
struct Changes {
    order: Vec<(String, String, String)>,
    objects: BTreeMap<(String, String, String), Value>,
}

impl Changes {
    fn put(&mut self, object: Value) {
        let key = (
            text(&object, "/kind").to_owned(),
            text(&object, "/metadata/namespace").to_owned(),
            text(&object, "/metadata/name").to_owned(),
        );
        if self.objects.insert(key.clone(), object).is_none() {
            self.order.push(key);
        }
    }
}

impl GroupPass<'_> {
    fn run(&mut self, namespace: &str, name: &str) -> Result<(), PassError> {
        conditions::mark_several(self, namespace);
        let group = OperatorGroup::read(&self.group).map_err(|error| {
            PassError::Unreadable(namespace.to_owned(), name.to_owned(), error.to_string())
        })?;
        let members = members(self.cluster, namespace);
        if account::refresh(self, &group)? {
            self.retry_members(&group, &members);
        }
        let targets = select(&group, self.cluster)?;
        if changed(&targets, group.namespaces()) {
            self.record_targets(&group, &targets);
            return Ok(());
        }
        self.annotate(&group, &members);
        self.write_roles_and_prune(&group, &members);
        Ok(())
    }

    /// Members that gave up installing start again: the rights of the account are others now.
    fn retry_members(&mut self, group: &OperatorGroup, members: &[GroupMember<'_>]) {
        for member in members {
            let of_group = member
                .csv
                .metadata
                .annotations
                .get(names::OPERATOR_GROUP_ANNOTATION);
            if of_group != Some(&group.metadata.name)
                || member.csv.status.reason != "InstallComponentFailedNoRetry"
            {
                continue;
            }
            let mut object = member.object.clone();
            set_phase(
                &mut object,
                "Pending",
                "DetectedClusterChange",
                "Cluster resources changed state",
                &self.now,
            );
            self.changes.put(object);
            self.requeue(&member.csv);
        }
    }

    fn record_targets(&mut self, group: &OperatorGroup, targets: &[String]) {
        self.decision.namespaces = added_or_removed(group.namespaces(), targets);
        self.set_status("namespaces", (!targets.is_empty()).then(|| json!(targets)));
    }

    /// Writes the annotations of members about their OperatorGroup.
    fn annotate(&mut self, group: &OperatorGroup, members: &[GroupMember<'_>]) {
        let mut wanted = vec![
            (
                names::OPERATOR_NAMESPACE_ANNOTATION,
                group.metadata.namespace.clone(),
            ),
            (names::OPERATOR_GROUP_ANNOTATION, group.metadata.name.clone()),
        ];
        // Without namespaces there is nothing to say; the empty text would be all of them.
        if !group.namespaces().is_empty() {
            wanted.push((names::TARGET_NAMESPACES_ANNOTATION, group.targets_annotation()));
        }
        for member in members {
            let annotations = &member.csv.metadata.annotations;
            if wanted
                .iter()
                .all(|(key, value)| annotations.get(*key) == Some(value))
            {
                continue;
            }
            let mut object = self.current(member);
            if let Some(annotations) = object_at(&mut object, &["metadata", "annotations"]) {
                let wanted = wanted.iter();
                annotations.extend(wanted.map(|(key, value)| ((*key).to_owned(), value.as_str().into())));
            }
            self.changes.put(object);
            self.requeue(&member.csv);
        }
    }

    fn write_roles_and_prune(&mut self, group: &OperatorGroup, members: &[GroupMember<'_>]) {
        let own_apis = OperatorGroupApis::of(group);
        let recorded = own_apis.provided.clone();
        let providers = providers(members);
        let provided: ApiSet = providers.keys().cloned().collect();
        let all = provided.union(&recorded);
        for role in group_roles(group, &all, self.cluster) {
            self.changes.put(role);
        }
        for csv in providers_of(self.cluster, &all, &own_apis) {
            self.requeue(&csv);
        }
        // A member that has not come to its APIs yet will record them.
        let is_early = |csv: &&ClusterServiceVersion| {
            matches!(csv.status.phase.as_str(), "" | "Pending") && csv.metadata.deletion_timestamp.is_none()
        };
        let will_grow = providers
            .iter()
            .any(|(api, csvs)| !recorded.contains(api) && csvs.iter().any(is_early));
        let remaining = recorded.intersection(&provided);
        if group.spec.static_provided_apis || will_grow || remaining.len() == recorded.len() {
            return;
        }
        if let Some(annotations) = object_at(&mut self.group, &["metadata", "annotations"]) {
            let value = remaining.annotation();
            annotations.insert(names::PROVIDED_APIS_ANNOTATION.to_owned(), value.into());
        }
        self.changes.put(self.group.clone());
    }

    /// A member as it will be.
    fn current(&self, member: &GroupMember<'_>) -> Value {
        let metadata = &member.csv.metadata;
        let key = (
            names::CSV_KIND.to_owned(),
            metadata.namespace.clone(),
            metadata.name.clone(),
        );
        self.changes.objects.get(&key).unwrap_or(member.object).clone()
    }

    /// Sets or removes a field of the OperatorGroup's status.
    fn set_status(&mut self, field: &str, value: Option<Value>) {
        if let Some(status) = object_at(&mut self.group, &["status"]) {
            match value {
                Some(value) => status.insert(field.to_owned(), value),
                None => status.remove(field),
            };
            status.insert("lastUpdated".to_owned(), self.now.as_str().into());
        }
        self.changes.put(self.group.clone());
    }

    fn requeue(&mut self, csv: &ClusterServiceVersion) {
        let metadata = &csv.metadata;
        self.decision
            .csvs
            .insert((metadata.namespace.clone(), metadata.name.clone()));
    }

    fn finish(mut self) -> OperatorGroupDecision {
        for key in self.changes.order {
            let object = self.changes.objects.remove(&key);
            let (kind, namespace, name) = &key;
            let is_other = |object: &Value| self.cluster.get(kind, namespace, name) != Some(object);
            self.decision.written.extend(object.filter(is_other));
        }
        self.decision
    }
}

/// The ClusterServiceVersions of a namespace that can be read and are no copies.
fn members<'a>(cluster: &'a Cluster, namespace: &'a str) -> Vec<GroupMember<'a>> {
    cluster
        .in_namespace(names::CSV_KIND, namespace)
        .filter_map(|object| {
            let csv = ClusterServiceVersion::read(object).ok()?;
            (!csv.is_copy()).then_some(GroupMember { object, csv })
        })
        .collect()
}

/// The APIs that members provide, without plurals, each with its providers. A member whose definitions are invalid
/// provides none.
fn providers<'a>(members: &'a [GroupMember<'_>]) -> BTreeMap<ApiKey, Vec<&'a ClusterServiceVersion>> {
    let mut providers: BTreeMap<ApiKey, Vec<&ClusterServiceVersion>> = BTreeMap::new();
    for member in members {
        for api in provided_by(&member.csv).unwrap_or_default().iter() {
            providers
                .entry(api.without_plural())
                .or_default()
                .push(&member.csv);
        }
    }
    providers
}

/// The ClusterServiceVersions that provide any of these APIs under other OperatorGroups that select a namespace of this
/// one: these APIs may be a conflict for them now. A change of an OperatorGroup wakes its own members, and all that are
/// in conflict.
fn providers_of(
    cluster: &Cluster,
    apis: &ApiSet,
    own_apis: &OperatorGroupApis,
) -> Vec<ClusterServiceVersion> {
    if apis.is_empty() {
        return Vec::new();
    }
    let others: Vec<OperatorGroupApis> = cluster
        .of_kind(names::OPERATOR_GROUP_KIND)
        .filter_map(|other| Some(OperatorGroupApis::of(&OperatorGroup::read(other).ok()?)))
        .collect();
    let namespaces: BTreeSet<&str> = own_apis
        .intersecting(&others)
        .into_iter()
        .map(OperatorGroupApis::namespace)
        .collect();
    let csvs = namespaces
        .into_iter()
        .flat_map(|namespace| cluster.in_namespace(names::CSV_KIND, namespace));
    csvs.filter_map(|object| ClusterServiceVersion::read(object).ok())
        .filter(|csv| !csv.is_copy())
        .filter(|csv| {
            let provided = provided_by(csv).unwrap_or_default();
            !provided.without_plurals().intersection(apis).is_empty()
        })
        .collect()
}

#[cfg(test)]
mod tests;
