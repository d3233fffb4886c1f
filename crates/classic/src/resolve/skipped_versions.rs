//! Versions that a Subscription prefers and does not get.

use std::collections::BTreeMap;

use super::solver::{Constraint, Rule, SolveError, Variable, solve};
use super::variables::{SUBSCRIPTION, Variables};

/// Reasons why Subscriptions do not get the version that they prefer, by name.
pub(super) fn skipped_versions(variables: &Variables, chosen: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (position, variable) in variables.all.iter().enumerate() {
        let Some(name) = variable.id.strip_prefix(SUBSCRIPTION) else {
            break;
        };
        let Some((rule, best)) = best(variable).filter(|(_, best)| !chosen.contains(best)) else {
            continue;
        };
        let wanted = variables.entries.get(best).map_or(best, |entry| &entry.name);
        let why = match insisting(variables, position, rule, best) {
            Err(SolveError::NotSatisfiable(texts)) => {
                let remedies = variables.remedies(&texts);
                let reasons = texts.into_iter().filter(|text| *text != insists_on(best));
                reasons.chain(remedies).collect::<Vec<String>>().join(", ")
            }
            Err(error) => error.to_string(),
            Ok(_) => "it conflicts with the choice of other Subscriptions".to_owned(),
        };
        found.insert(name.to_owned(), format!("{wanted} is skipped: {why}"));
    }
    found
}

/// The option that a Subscription prefers, and the position of the constraint that names it.
fn best(variable: &Variable) -> Option<(usize, &String)> {
    let mut constraints = variable.constraints.iter().enumerate();
    constraints.find_map(|(position, constraint)| match &constraint.rule {
        Rule::Dependency(options) => options.first().map(|best| (position, best)),
        _ => None,
    })
}

/// The text of the constraint that an option is chosen.
fn insists_on(best: &str) -> String {
    format!("{best} is the best choice")
}

/// Solves the problem where a Subscription insists on one option.
fn insisting(
    variables: &Variables,
    position: usize,
    rule: usize,
    best: &str,
) -> Result<Vec<String>, SolveError> {
    let mut all = variables.all.clone();
    let constraints = all.get_mut(position).map(|variable| &mut variable.constraints);
    if let Some(constraint) = constraints.and_then(|constraints| constraints.get_mut(rule)) {
        *constraint = Constraint {
            rule: Rule::Dependency(vec![best.to_owned()]),
            text: insists_on(best),
        };
    }
    solve(&all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use crate::registry::{BundleMessage, PackageMessage, TypedValue};
    use crate::resolve::{CatalogContent, EntryIndex, Request, Resolved, resolve_available};
    use crate::subscription::ResolveError;

    fn row(name: &str, replaces: &str, required: Option<&str>) -> BundleMessage {
        let required = required.map(|kind| TypedValue {
            kind: "olm.gvk.required".to_owned(),
            value: json!({"group": "g", "version": "v1", "kind": kind}).to_string(),
        });
        BundleMessage {
            csv_name: name.to_owned(),
            package_name: "p".to_owned(),
            channel_name: "c".to_owned(),
            version: "1.0.0".to_owned(),
            replaces: replaces.to_owned(),
            bundle_path: format!("{name}-image"),
            properties: required.into_iter().collect(),
            ..BundleMessage::default()
        }
    }

    fn run(rows: Vec<BundleMessage>, other: Option<&str>) -> Result<Resolved, ResolveError> {
        let group = json!({"metadata": {"namespace": "n", "name": "g"}});
        let subscription = json!({
            "metadata": {"namespace": "n", "name": "s"},
            "spec": {"name": "p", "channel": "c", "source": "a", "sourceNamespace": "olm"},
        });
        let catalog = |name: &str, content| CatalogContent {
            name: name.to_owned(),
            namespace: "olm".to_owned(),
            priority: 0,
            content,
        };
        let packages = BTreeMap::from([("p".to_owned(), PackageMessage::default())]);
        let mut catalogs = vec![catalog("a", Ok(Arc::new(EntryIndex::new(rows, &packages))))];
        catalogs.extend(other.map(|error| catalog("b", Err(error.to_owned()))));
        resolve_available(&Request {
            namespace: "n",
            global_namespace: "olm",
            operator_groups: vec![&group],
            catalogs: &catalogs,
            subscriptions: vec![&subscription],
            csvs: Vec::<&Value>::new(),
        })
    }

    #[test]
    fn a_version_whose_requirement_nobody_meets_is_passed_over_with_the_reason() {
        let rows = vec![row("p.v2", "p.v1", Some("Greeting")), row("p.v1", "", None)];
        let resolved = run(rows, None).unwrap();
        assert_eq!(resolved.operators[0].name, "p.v1");
        let why = &resolved.resolution.blocked["s"];
        let expected = "p.v2 is skipped: bundle p.v2 requires an operator providing an API with group: g, version: v1, \
                        kind: Greeting, ";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn a_version_that_is_preferred_needs_no_explanation() {
        let resolved = run(vec![row("p.v2", "p.v1", None), row("p.v1", "", None)], None).unwrap();
        assert_eq!(resolved.operators[0].name, "p.v2");
        assert_eq!(resolved.resolution.blocked, BTreeMap::new());
    }

    #[test]
    fn a_broken_catalog_stops_only_what_could_come_from_it() {
        let simple = vec![row("p.v2", "p.v1", None), row("p.v1", "", None)];
        assert_eq!(run(simple, Some("down")).unwrap().operators[0].name, "p.v2");
        let needy = vec![row("p.v2", "p.v1", Some("Greeting")), row("p.v1", "", None)];
        let Err(ResolveError::Other(error)) = run(needy, Some("down")) else {
            panic!("the missing requirement may be in the broken catalog")
        };
        assert_eq!(error, "error using catalogsource olm/b: down");
    }
}
