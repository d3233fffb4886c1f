//! The power of an attacker who controls the controller's Pod and its account.

use anyhow::{Result, ensure};
use olm_api::names::{self, OBJECT_DATA_SECRET_TYPE, operator_condition};
use olm_test::world::Lab;
use serde_json::{Value, json};

use crate::RBAC;
use crate::actor::{Actor, Wanted};

const POLICY: &str = "the controller ";

fn secret(kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {
            "name": "s", "namespace": names::SYSTEM_NAMESPACE,
            "annotations": { "kubernetes.io/service-account.name": "catalogd-controller-manager" },
        },
    })
}

fn role(name: &str, rule: Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": name, "namespace": "default" },
        "rules": [rule],
    })
}

fn rule(names: &[&str]) -> Value {
    json!({
        "apiGroups": [operator_condition::GROUP], "resources": ["operatorconditions", "operatorconditions/status"],
        "resourceNames": names, "verbs": ["get", "update", "patch"],
    })
}

fn binding(name: &str, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": name, "namespace": "default" },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": role }, "subjects": [subject],
    })
}

fn definition(plural: &str, group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "kind": "Thing", "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_itself_writes_only_the_documented_objects() -> Result<()> {
    let lab = Lab::with_manifests("manifests/overlays/restricted").await?;
    let account = "operator-controller-controller-manager";
    let user = format!("system:serviceaccount:{}:{account}", names::SYSTEM_NAMESPACE);
    let controller = Actor::new(&lab, &user);
    let token = secret("kubernetes.io/service-account-token");
    controller
        .until("the policy counts", Wanted::Refused, |controller| {
            controller.ask(&["create"], Some(&token))
        })
        .await?;
    let create = |object: &Value| controller.ask(&["create"], Some(object));
    controller.refused("a token Secret", POLICY, create(&token))?;
    controller.allowed("content", create(&secret(OBJECT_DATA_SECRET_TYPE)))?;
    controller.allowed("a certificate", create(&secret("Opaque")))?;

    let ours = "olm-operator-condition-greeter";
    let accounts =
        |namespace: &str| json!({ "kind": "ServiceAccount", "name": "op", "namespace": namespace });
    lab.apply(&[
        role("somebodys", rule(&["a"])),
        role(ours, rule(&["greeter.v1"])),
        binding("somebodys", "somebodys", accounts("default")),
    ])?;
    let group = operator_condition::GROUP;
    let any = json!({ "apiGroups": [group], "resources": ["operatorconditions"], "verbs": ["get"] });
    for (what, object) in [
        ("a Role of another name", role("new", rule(&["greeter.v1"]))),
        (
            "a Role for all OperatorConditions",
            role("olm-operator-condition-x", any),
        ),
        (
            "a RoleBinding of another name",
            binding("new", ours, accounts("default")),
        ),
        (
            "a binding to somebody elsewhere",
            binding(ours, ours, accounts("kube-system")),
        ),
        ("a definition", definition("things", "example.com")),
    ] {
        controller.refused(what, POLICY, create(&object))?;
    }
    let user = json!({ "apiGroup": RBAC, "kind": "User", "name": "mallory" });
    controller.refused("a binding to a user", POLICY, create(&binding(ours, ours, user)))?;
    for kind in ["role", "rolebinding"] {
        let deletion = controller.ask(&["delete", kind, "somebodys", "-n", "default"], None);
        controller.refused("a deletion", POLICY, deletion)?;
    }
    let secrets = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
    let escalation = role("olm-operator-condition-x", secrets);
    controller.refused("rights that it lacks", "not currently held", create(&escalation))?;
    controller.allowed(
        "a Role for one OperatorCondition",
        create(&role("olm-operator-condition-x", rule(&["x.v1"]))),
    )?;
    controller.allowed("its binding", create(&binding(ours, ours, accounts("default"))))?;
    let deletion = controller.ask(&["delete", "role", ours, "-n", "default"], None);
    controller.allowed("its deletion", deletion)?;
    let condition = definition(operator_condition::PLURAL, operator_condition::GROUP);
    controller.allowed("the kind OperatorCondition", create(&condition))?;

    // The policy does not apply to other users.
    lab.apply(&[role("new", rule(&["greeter.v1"])), token])?;
    for (verb, resource, namespace) in [
        ("create", "serviceaccounts/token", "default"),
        ("create", "serviceaccounts/token", names::SYSTEM_NAMESPACE),
        ("get", "secrets", "default"),
        ("impersonate", "serviceaccounts", "default"),
        ("create", "deployments.apps", "default"),
        ("create", "pods", names::SYSTEM_NAMESPACE),
        ("bind", "clusterroles.rbac.authorization.k8s.io", "default"),
        ("escalate", "roles.rbac.authorization.k8s.io", "default"),
    ] {
        let user = format!("--as=system:serviceaccount:{}:{account}", names::SYSTEM_NAMESPACE);
        let asked = lab.kubectl(&["auth", "can-i", verb, resource, "-n", namespace, &user]);
        ensure!(
            asked.is_err(),
            "the controller may {verb} {resource} in {namespace}"
        );
    }
    Ok(())
}
