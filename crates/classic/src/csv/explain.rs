//! The details that the fixed messages of a status lack: the unmet requirements, and the OperatorGroup in the way.

use olm_api::text::{escape, first_of};
use serde_json::Value;

use super::ClusterServiceVersion;
use super::phases::GROUP_CONFLICT;
use crate::cluster::{Cluster, items, object_at, text};
use crate::names;
use crate::operator_group::{OperatorGroup, OperatorGroupApis, provided_by};

/// The messages of unmet requirements.
const NOT_MET: [&str; 3] = [
    "one or more requirements couldn't be found",
    "requirements not met",
    "requirements no longer met",
];
/// The most requirements that a message names.
const NAMED: usize = 3;
/// The longest detail about one requirement, in characters.
const LONGEST: usize = 200;

/// The ClusterServiceVersion with a message that ends with the details. The text before them, which clients know, stays.
/// A second call changes nothing.
pub fn explained(mut csv: Value, cluster: &Cluster) -> Value {
    let message = text(&csv, "/status/message");
    let details = match text(&csv, "/status/reason") {
        "RequirementsNotMet" => NOT_MET
            .into_iter()
            .find(|base| message.starts_with(base))
            .zip(unmet(&csv)),
        "InterOperatorGroupOwnerConflict" => Some(GROUP_CONFLICT).zip(provider(&csv, cluster)),
        _ => None,
    };
    if let Some((base, details)) = details
        && let Some(status) = object_at(&mut csv, &["status"])
    {
        status.insert("message".to_owned(), format!("{base}: {details}").into());
    }
    csv
}

/// The first unmet requirements.
fn unmet(csv: &Value) -> Option<String> {
    let rows: Vec<String> = items(csv, "/status/requirementStatus")
        .filter(|row| !matches!(text(row, "/status"), "Present" | "DeploymentFound"))
        .map(|row| {
            let mut dependents = items(row, "/dependents");
            let missing = dependents.find(|dependent| text(dependent, "/status") == "NotSatisfied");
            let message = text(missing.unwrap_or(row), "/message");
            let message: String = message.chars().take(LONGEST).collect();
            format!("{} {}: {message}", text(row, "/kind"), text(row, "/name"))
        })
        .collect();
    let shown = || escape(&first_of(rows.iter(), NAMED)).into_owned();
    (!rows.is_empty()).then(shown)
}

/// The OperatorGroup that meets that of the ClusterServiceVersion and provides one of its APIs.
fn provider(csv: &Value, cluster: &Cluster) -> Option<String> {
    let csv = ClusterServiceVersion::read(csv).ok()?;
    let provided = provided_by(&csv).ok()?.without_plurals();
    let own_apis = |group: &Value| Some(OperatorGroupApis::of(&OperatorGroup::read(group).ok()?));
    let own = cluster
        .in_namespace(names::OPERATOR_GROUP_KIND, &csv.metadata.namespace)
        .next();
    let own = own_apis(own?)?;
    let others: Vec<OperatorGroupApis> = cluster
        .of_kind(names::OPERATOR_GROUP_KIND)
        .filter_map(own_apis)
        .collect();
    own.intersecting(&others).into_iter().find_map(|other| {
        let shared = provided.intersection(&other.provided);
        let api = shared.iter().next()?.gvk();
        let (name, namespace) = other.identifier.rsplit_once('/')?;
        Some(format!("OperatorGroup {namespace}/{name} provides {api}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn csv(reason: &str, message: &str, rows: &Value) -> Value {
        json!({
            "kind": "ClusterServiceVersion", "metadata": {"name": "c", "namespace": "n"},
            "spec": {"customresourcedefinitions": {"owned": [{"name": "as.g", "version": "v1", "kind": "A"}]}},
            "status": {"reason": reason, "message": message, "requirementStatus": rows},
        })
    }

    fn check(csv: &Value, cluster: &Cluster, expected: &str) {
        let first = explained(csv.clone(), cluster);
        assert_eq!(first["status"]["message"], expected);
        assert_eq!(explained(first.clone(), cluster), first);
    }

    #[test]
    fn a_message_names_the_first_unmet_requirements() {
        let row = |kind: &str, name: &str, status: &str| json!({"kind": kind, "name": name, "status": status, "message": format!("{name} is missing")});
        let mut account = row("ServiceAccount", "a", "PresentNotSatisfied");
        account["dependents"] = json!([
            {"status": "Satisfied", "message": "rule:1"},
            {"status": "NotSatisfied", "message": "rule:2"},
        ]);
        let rows = json!([row("CustomResourceDefinition", "as.g", "Present"), account]);
        let none = Cluster::default();
        let base = "one or more requirements couldn't be found";
        let not_met = |rows: &Value| csv("RequirementsNotMet", base, rows);
        check(
            &not_met(&rows),
            &none,
            &format!("{base}: ServiceAccount a: rule:2"),
        );
        let many: Vec<Value> = ["a", "b", "c", "d"]
            .map(|name| row("X", name, "NotPresent"))
            .into();
        let expected = "X a: a is missing, X b: b is missing, X c: c is missing and 1 more";
        check(&not_met(&json!(many)), &none, &format!("{base}: {expected}"));
        check(&not_met(&json!([])), &none, base);
        check(&csv("Other", base, &rows), &none, base);
    }

    #[test]
    fn a_message_names_the_group_that_provides_the_api() {
        let group = |name: &str, apis: &str| {
            json!({
                "kind": "OperatorGroup",
                "metadata": {"name": name, "namespace": name, "annotations": {"olm.providedAPIs": apis}},
                "status": {"namespaces": ["x"]},
            })
        };
        let conflict = csv("InterOperatorGroupOwnerConflict", GROUP_CONFLICT, &json!([]));
        let groups = [group("n", ""), group("m", "B.v1.g"), group("o", "A.v1.g,B.v1.g")];
        let cluster = groups.into_iter().collect();
        let expected = "intersecting operatorgroups provide the same apis: OperatorGroup o/o provides A.v1.g";
        check(&conflict, &cluster, expected);
    }
}
