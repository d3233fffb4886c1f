//! Objects that an installation leaves unchanged.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::{Cluster, items, label, text};
use crate::csv::ClusterServiceVersion;
use crate::{names, wire};

/// Reason why an object of a ClusterServiceVersion cannot replace the existing one: another controller owns that one,
/// it is a Deployment of another operator, or a Deployment with another selector. `None` where it can.
pub fn refusal(
    found: &Value,
    wanted: &Value,
    csv: &ClusterServiceVersion,
    cluster: &Cluster,
) -> Option<String> {
    controlled(found)
        .or_else(|| installed(found, csv, cluster))
        .or_else(|| with_selector(found, wanted))
}

/// A Deployment belongs to the ClusterServiceVersion that has installed it, as long as that one names it and no newer
/// version takes its place: two operators that take it from each other would never rest.
fn installed(found: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> Option<String> {
    let name = text(found, "/metadata/name");
    if text(found, "/kind") != names::DEPLOYMENT_KIND
        || label(found, names::OWNER_KIND_LABEL) != names::CSV_KIND
    {
        return None;
    }
    let place = csv.metadata.namespace.as_str();
    let owner = label(found, names::OWNER_LABEL);
    if label(found, names::OWNER_NAMESPACE_LABEL) != place
        || owner == csv.metadata.name
        || replaced(csv, cluster).contains(owner)
    {
        return None;
    }
    let other = cluster.get(names::CSV_KIND, place, owner)?;
    let is_going = matches!(text(other, "/status/phase"), "Replacing" | "Deleting")
        || !text(other, "/metadata/deletionTimestamp").is_empty();
    let mut strategy = items(other, "/spec/install/spec/deployments");
    (!is_going && strategy.any(|entry| text(entry, "/name") == name)).then(|| {
        format!(
            "cannot take over Deployment {name}: ClusterServiceVersion {owner} has installed it. Delete that \
             ClusterServiceVersion, or give the Deployment of one of the two another name"
        )
    })
}

/// The names of those that a ClusterServiceVersion replaces, directly or through others.
fn replaced<'a>(csv: &'a ClusterServiceVersion, cluster: &'a Cluster) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut here = csv.spec.replaces.as_str();
    while !here.is_empty() && names.insert(here) {
        let next = cluster.get(names::CSV_KIND, &csv.metadata.namespace, here);
        here = next
            .map(|found| text(found, "/spec/replaces"))
            .unwrap_or_default();
    }
    names
}

/// The API server lets no selector change. It drops empty parts of one.
fn with_selector(found: &Value, wanted: &Value) -> Option<String> {
    let selector = |object: &Value| {
        object
            .pointer("/spec/selector")
            .map(|selector| wire::write(selector, wire::SELECTOR))
    };
    let is_other = text(found, "/kind") == names::DEPLOYMENT_KIND && selector(found) != selector(wanted);
    is_other.then(|| {
        format!(
            "cannot update Deployment {}: its selector cannot change to the one of the install strategy. Delete the Deployment",
            text(found, "/metadata/name")
        )
    })
}

/// An object that OLM has labelled is its own, and one without a controller is taken over: operators are installed
/// again over the leftovers of an earlier installation.
fn controlled(found: &Value) -> Option<String> {
    if label(found, names::OWNER_KIND_LABEL) == names::CSV_KIND {
        return None;
    }
    let is_controller = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let controller = items(found, "/metadata/ownerReferences").find(is_controller)?;
    let group = text(controller, "/apiVersion")
        .split('/')
        .next()
        .unwrap_or_default();
    let kind = text(controller, "/kind");
    if group == names::GROUP && kind == names::CSV_KIND {
        return None;
    }
    Some(format!(
        "cannot take over {} {}: {kind} {} of {} controls it. Delete it or rename one of the two",
        text(found, "/kind"),
        text(found, "/metadata/name"),
        text(controller, "/name"),
        text(controller, "/apiVersion"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(found: &Value, expected: Option<&str>) {
        let wanted = json!({"kind": "Deployment", "spec": {"selector": {"matchLabels": {"app": "d"}}}});
        let csv = ClusterServiceVersion::default();
        let refused = refusal(found, &wanted, &csv, &Cluster::default());
        assert_eq!(refused.as_deref(), expected);
    }

    #[test]
    fn an_object_of_another_controller_stays_its_own() {
        let found = |labels: Value, owner: Value| json!({"kind": "Service", "metadata": {"name": "d", "labels": labels, "ownerReferences": [owner]}});
        let owner = |api_version: &str, kind: &str, is_controller: bool| json!({"apiVersion": api_version, "kind": kind, "name": "o", "controller": is_controller});
        let foreign = owner("example.com/v1", "Shop", true);
        let refused = "cannot take over Service d: Shop o of example.com/v1 controls it. Delete it or rename one of the two";
        check(&found(json!({}), foreign.clone()), Some(refused));
        check(
            &found(json!({"olm.owner.kind": "ClusterServiceVersion"}), foreign),
            None,
        );
        check(&found(json!({}), owner("example.com/v1", "Shop", false)), None);
        let version = owner("operators.coreos.com/v1alpha1", "ClusterServiceVersion", true);
        check(&found(json!({}), version), None);
    }

    #[test]
    fn a_deployment_with_another_selector_cannot_be_updated() {
        let found = |app: &str| {
            json!({
                "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": app}}},
            })
        };
        check(&found("d"), None);
        let mut with_empty_parts = found("d");
        with_empty_parts["spec"]["selector"]["matchExpressions"] = json!([]);
        check(&with_empty_parts, None);
        check(
            &found("e"),
            Some(
                "cannot update Deployment d: its selector cannot change to the one of the install strategy. Delete the \
                 Deployment",
            ),
        );
    }

    fn version(name: &str, replaces: &str, phase: &str) -> Value {
        json!({
            "kind": "ClusterServiceVersion", "metadata": {"name": name, "namespace": "n"},
            "spec": {"replaces": replaces, "install": {"spec": {"deployments": [{"name": "d"}]}}},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn a_deployment_of_an_unrelated_operator_stays_its_own() {
        let found = |owner: &str, namespace: &str| {
            json!({
                "kind": "Deployment", "metadata": {"name": "d", "namespace": namespace, "labels": {
                    "olm.owner": owner, "olm.owner.namespace": namespace, "olm.owner.kind": "ClusterServiceVersion",
                }},
            })
        };
        let new = ClusterServiceVersion::read(&version("new.v3", "new.v2", "InstallReady")).unwrap();
        let refused = |owner: &str, versions: &[Value]| {
            let cluster: Cluster = versions.iter().cloned().collect();
            let found = found(owner, "n");
            refusal(&found, &found, &new, &cluster)
        };
        let other = |phase: &str| version("other.v1", "", phase);
        assert_eq!(
            refused("other.v1", &[other("Succeeded")]).as_deref(),
            Some(
                "cannot take over Deployment d: ClusterServiceVersion other.v1 has installed it. Delete that \
                 ClusterServiceVersion, or give the Deployment of one of the two another name"
            )
        );
        assert!(refused("other.v1", &[other("Failed")]).is_some());
        let mut renamed = other("Succeeded");
        renamed["spec"]["install"]["spec"]["deployments"][0]["name"] = json!("e");
        for free in [vec![], vec![other("Replacing")], vec![renamed]] {
            assert_eq!(refused("other.v1", &free), None, "{free:?}");
        }
        // Its own, and those before it, whatever their phase.
        let chain = [
            version("new.v2", "new.v1", "Failed"),
            version("new.v1", "new.v2", "Failed"),
        ];
        for owner in ["new.v3", "new.v2", "new.v1"] {
            assert_eq!(refused(owner, &chain), None, "{owner}");
        }
    }
}
