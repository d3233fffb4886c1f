//! Tests of the default probes of bundles.

use olm_rollout::probe::{ProbeStatus, Unmet, ask};
use serde_json::{Value, json};

use olm_plan::phases::probes;

#[track_caller]
fn check_default(object: &Value, status: ProbeStatus, messages: &[&str]) {
    let result = ask(&probes(&[]), object);
    assert_eq!(
        (
            result.status,
            result.unmet.iter().map(ToString::to_string).collect::<Vec<_>>()
        ),
        (
            status,
            messages.iter().map(ToString::to_string).collect::<Vec<_>>()
        )
    );
}

fn deployment(status: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 2}, "status": status})
}

#[test]
fn a_definition_that_is_not_established_says_why() {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "status": {"conditions": [
        {"type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "\"foos\" is already in use"},
        {"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted"},
    ]}});
    check_default(
        &definition,
        ProbeStatus::Fails,
        &[".status.condition[\"Established\"] is False"],
    );
    let plain: Vec<String> = ask(&probes(&[]), &definition)
        .unmet
        .iter()
        .map(Unmet::plain)
        .collect();
    let why = "condition Established is False: PluralConflict: \"foos\" is already in use; NotAccepted: not all names \
               are accepted";
    assert_eq!(plain, [why]);
}

#[test]
fn a_deployment_is_ready_when_all_replicas_are_updated_and_available() {
    use ProbeStatus::{Fails, Passes, Unknown};
    let available = |status: &str| json!([{"type": "Available", "status": status}]);
    check_default(
        &deployment(
            &json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "conditions": available("True")}),
        ),
        Passes,
        &[],
    );
    check_default(
        &deployment(
            &json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "conditions": available("True")}),
        ),
        Unknown,
        &[".status outdated"],
    );
    check_default(
        &deployment(
            &json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "conditions": available("False")}),
        ),
        Fails,
        &[
            "\"status.updatedReplicas\" != \"status.replicas\" expected: 1 got: 2",
            ".status.condition[\"Available\"] is False",
        ],
    );
    check_default(&deployment(&json!({})), Unknown, &["missing .status.conditions"]);
    // Scaled to zero, the counters are absent.
    check_default(
        &deployment(&json!({"observedGeneration": 2, "conditions": available("True")})),
        Passes,
        &[],
    );
}

#[test]
fn a_stateful_set_becomes_ready_without_a_condition() {
    let set = |ready| {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"generation": 1},
            "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": ready}})
    };
    check_default(&set(2), ProbeStatus::Passes, &[]);
    check_default(
        &set(1),
        ProbeStatus::Fails,
        &["\"status.availableReplicas\" != \"status.replicas\" expected: 1 got: 2"],
    );
}

#[test]
fn other_kinds_are_ready_at_once() {
    check_default(
        &json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        ProbeStatus::Passes,
        &[],
    );
    check_default(
        &json!({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Terminating"}}),
        ProbeStatus::Fails,
        &["value at key \"status.phase\" != \"Active\"; expected: \"Active\" got: \"Terminating\""],
    );
    check_default(
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim"}),
        ProbeStatus::Fails,
        &["missing key: \"status.phase\""],
    );
}

#[test]
fn conditions_may_be_missing_malformed_or_outdated() {
    let crd = |conditions: &Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"generation": 3}, "status": {"conditions": conditions}})
    };
    for (conditions, message) in [
        (json!({}), "malformed .status.conditions"),
        (json!([]), "missing .status.condition[\"Established\"]"),
        (
            json!([{"type": "Established", "status": "True", "observedGeneration": 2}]),
            ".status.condition[\"Established\"] outdated",
        ),
    ] {
        check_default(&crd(&conditions), ProbeStatus::Unknown, &[message]);
    }
    check_default(
        &crd(&json!([{"type": "Established", "status": "True"}])),
        ProbeStatus::Passes,
        &[],
    );
}
