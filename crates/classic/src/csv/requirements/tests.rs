use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn evaluated(spec: &Value, objects: &[Value]) -> Result<Requirements, InvalidRuleError> {
    let csv = json!({
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "c.v2", "namespace": "n", "uid": "c2"},
        "spec": spec,
    });
    let csv = ClusterServiceVersion::read(&csv).unwrap();
    let served = [("i/v2".to_owned(), BTreeSet::from(["B".to_owned()]))];
    let facts = ClusterFacts {
        cluster: &objects.iter().cloned().collect(),
        discovery: &served.into_iter().collect(),
        server_version: Some("v1.36.0"),
    };
    evaluate(&csv, &facts)
}

fn row(spec: &Value, objects: &[Value]) -> (RequirementStatus, String) {
    let found = evaluated(spec, objects).unwrap();
    assert_eq!(found.rows.len(), 1);
    let row = &found.rows[0];
    assert_eq!(found.met, row.is_met());
    (row.status, row.message.clone())
}

fn definition(alongside: &[&str]) -> Value {
    let annotations: serde_json::Map<String, Value> = alongside
        .iter()
        .map(|name| {
            (
                format!("operatorframework.io/installed-alongside-{name}"),
                json!(format!("n/{name}")),
            )
        })
        .collect();
    json!({
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.g", "uid": "crd", "annotations": annotations},
        "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v0", "served": false}]},
        "status": {"conditions": [
            {"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"},
        ]},
    })
}

fn owning(version: &str) -> Value {
    json!({
        "replaces": "c.v1",
        "customresourcedefinitions": {"owned": [{"name": "as.g", "version": version, "kind": "A"}]},
    })
}

fn older(name: &str, replaces: &str) -> Value {
    json!({
        "kind": "ClusterServiceVersion",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"replaces": replaces},
    })
}

#[test]
fn a_definition_must_be_served_and_established() {
    assert_eq!(row(&owning("v1"), &[]).1, "CRD is not present");
    assert_eq!(
        row(&owning("v1"), &[definition(&[])]).0,
        RequirementStatus::Present
    );
    assert_eq!(row(&owning("v0"), &[definition(&[])]).1, "CRD version not served");
    let mut waiting = definition(&[]);
    waiting["status"]["conditions"][1]["status"] = json!("False");
    assert_eq!(
        row(&owning("v1"), &[waiting]).0,
        RequirementStatus::PresentNotAvailable
    );
}

#[test]
fn a_definition_of_an_older_version_is_waited_for() {
    let chain = [older("c.v1", "c.v0"), older("c.v0", "c.v1")];
    let mut objects = chain.to_vec();
    objects.push(definition(&["c.v1", "c.v0"]));
    assert_eq!(
        row(&owning("v1"), &objects),
        (
            RequirementStatus::PresentNotSatisfied,
            "CRD installed alongside other CSV(s): c.v0, c.v1".to_owned()
        )
    );
    let mut objects = chain.to_vec();
    objects.push(definition(&["c.v1", "c.v2"]));
    assert_eq!(row(&owning("v1"), &objects).0, RequirementStatus::Present);
    // Without the link in between, the oldest has nothing to do with it.
    let mut objects = chain.to_vec();
    objects.push(definition(&["c.v0"]));
    assert_eq!(row(&owning("v1"), &objects).0, RequirementStatus::Present);
}

#[test]
fn a_required_api_service_must_be_available_and_serve_the_kind() {
    let spec = |kind: &str| json!({"apiservicedefinitions": {"required": [{"name": "bs", "group": "i", "version": "v2", "kind": kind}]}});
    let service = |available: &str| {
        json!({
            "kind": "APIService",
            "metadata": {"name": "v2.i", "uid": "s"},
            "status": {"conditions": [{"type": "Available", "status": available}]},
        })
    };
    assert_eq!(row(&spec("B"), &[service("True")]).0, RequirementStatus::Present);
    assert_eq!(
        row(&spec("B"), &[service("False")]).0,
        RequirementStatus::NotPresent
    );
    assert_eq!(
        row(&spec("C"), &[service("True")]).0,
        RequirementStatus::NotPresent
    );
    assert_eq!(row(&spec("B"), &[]).0, RequirementStatus::NotPresent);
}

#[test]
fn an_owned_api_service_needs_its_deployment() {
    let spec = |name: &str| {
        json!({
            "install": {"spec": {"deployments": [{"name": name}]}},
            "apiservicedefinitions": {"owned": [
                {"name": "bs", "group": "i", "version": "v2", "kind": "B", "deploymentName": "d"},
            ]},
        })
    };
    assert_eq!(row(&spec("d"), &[]).0, RequirementStatus::DeploymentFound);
    assert_eq!(row(&spec("e"), &[]).0, RequirementStatus::DeploymentNotFound);
}

fn permissions(rules: &Value) -> Value {
    json!({"install": {"spec": {"permissions": [{"serviceAccountName": "sa", "rules": rules}]}}})
}

fn account(owner: &str) -> Value {
    json!({"kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "n", "ownerReferences": [
        {"kind": "ClusterServiceVersion", "uid": owner},
    ]}})
}

#[test]
fn an_account_of_another_version_does_not_do() {
    let spec = permissions(&json!([]));
    assert_eq!(row(&spec, &[]).1, "Service account does not exist");
    assert_eq!(row(&spec, &[account("c2")]).0, RequirementStatus::Present);
    assert_eq!(
        row(&spec, &[account("c1")]).1,
        "Service account is owned by another ClusterServiceVersion"
    );
}

#[test]
fn rules_are_listed_with_what_was_found() {
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["<x>"]});
    let found = evaluated(&permissions(&json!([rule])), &[account("c2")]).unwrap();
    assert!(!found.met);
    assert_eq!(
        serde_json::to_value(&found.rows[0].dependents).unwrap(),
        json!([{
            "group": "rbac.authorization.k8s.io",
            "version": "v1",
            "kind": "PolicyRule",
            "status": "NotSatisfied",
            "message": "namespaced rule:{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"\\u003cx\\u003e\"]}",
        }])
    );
}

#[test]
fn an_invalid_rule_is_an_error() {
    let objects = [account("c2")];
    for (rule, error) in [
        (json!({"resources": ["x"]}), InvalidRuleError::NoVerb),
        (
            json!({"verbs": ["get"], "resources": ["x"], "nonResourceURLs": ["/x"]}),
            InvalidRuleError::ResourcesAndPaths,
        ),
    ] {
        let found = evaluated(&permissions(&json!([rule])), &objects);
        assert_eq!(found, Err(error));
    }
}

#[test]
fn rows_have_a_fixed_order() {
    let spec = json!({
        "minKubeVersion": "1.0.0",
        "nativeAPIs": [{"group": "", "version": "v1", "kind": "Pod"}],
        "customresourcedefinitions": {"required": [
            {"name": "z.g", "version": "v1", "kind": "Z"}, {"name": "a.g", "version": "v1", "kind": "A"},
        ]},
        "install": {"spec": {"clusterPermissions": [
            {"serviceAccountName": "z", "rules": []}, {"serviceAccountName": "a", "rules": []},
        ]}},
    });
    let names: Vec<String> = evaluated(&spec, &[])
        .unwrap()
        .rows
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, ["c.v2", "a.g", "z.g", "v1.", "a", "z"]);
}
