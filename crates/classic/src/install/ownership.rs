//! Objects that an installation leaves unchanged.

use serde_json::Value;

use crate::cluster::{items, label, text};
use crate::names;

/// Reason why an object cannot replace the existing one: another controller owns that one, or it is a Deployment with
/// another selector. `None` where it can.
pub fn refusal(found: &Value, wanted: &Value) -> Option<String> {
    controlled(found).or_else(|| with_selector(found, wanted))
}

/// The API server lets no selector change.
fn with_selector(found: &Value, wanted: &Value) -> Option<String> {
    let selector = |object: &Value| object.pointer("/spec/selector").cloned();
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
        assert_eq!(refusal(found, &wanted).as_deref(), expected);
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
        check(
            &found("e"),
            Some(
                "cannot update Deployment d: its selector cannot change to the one of the install strategy. Delete the \
                 Deployment",
            ),
        );
    }
}
