//! Accounts and rights: those that install, and those of operators.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv, named};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn account(namespace: &str, name: &str) -> Value {
    named("v1", "ServiceAccount", namespace, name)
}

fn binding(namespace: &str, name: &str, role: (&str, &str), account: (&str, &str)) -> Value {
    let kind = if namespace.is_empty() {
        "ClusterRoleBinding"
    } else {
        "RoleBinding"
    };
    let mut binding = named(RBAC, kind, namespace, name);
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "namespace": account.0, "name": account.1}]);
    binding
}

#[test]
fn an_account_without_rights_stops_the_installation_until_it_has_them() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group(
            "scoped",
            json!({"targetNamespaces": ["scoped"], "serviceAccountName": "scoped"}),
        )?;
        stage.lab.apply(&[csv("scoped", "scoped.v1", &json!({}))])?;
        let group = named("operators.coreos.com/v1", "OperatorGroup", "scoped", "group");
        stage
            .becomes("the group names the missing account", &group, |found| {
                found["status"]["conditions"][0]["reason"] == "ServiceAccountNotFound"
            })
            .await?;
        stage.lab.apply(&[account("scoped", "scoped")])?;
        let failed = stage
            .phase("scoped", "scoped.v1", "Failed", "InstallComponentFailedNoRetry")
            .await?;
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            message.starts_with("install strategy failed: ") && message.contains("forbidden"),
            "{message}"
        );
        let admin = binding(
            "scoped",
            "scoped",
            ("ClusterRole", "cluster-admin"),
            ("scoped", "scoped"),
        );
        stage.lab.apply(&[admin])?;
        stage
            .phase("scoped", "scoped.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage
            .becomes("the group refers to the account", &group, |found| {
                found["status"]["serviceAccountRef"]["name"] == "scoped"
            })
            .await?;
        Ok(())
    })
}

/// A version with a permission in its namespace, and the role and binding that come with it.
async fn with_permission(stage: &Stage, namespace: &str) -> Result<()> {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let mut version = csv(namespace, &format!("{namespace}.v1"), &json!({}));
    version["spec"]["install"]["spec"]["permissions"] =
        json!([{"serviceAccountName": "runner", "rules": rules}]);
    stage.lab.apply(std::slice::from_ref(&version))?;
    let waiting = stage
        .phase(
            namespace,
            &format!("{namespace}.v1"),
            "Pending",
            "RequirementsNotMet",
        )
        .await?;
    ensure!(waiting["status"]["requirementStatus"][0]["message"] == "Service account does not exist");
    let labels = json!({
        "olm.managed": "true", "olm.owner": format!("{namespace}.v1"), "olm.owner.namespace": namespace,
        "olm.owner.kind": "ClusterServiceVersion",
    });
    let mut role = named(RBAC, "Role", namespace, "of-runner");
    role["metadata"]["labels"] = labels.clone();
    role["rules"] = rules;
    let mut bound = binding(
        namespace,
        "of-runner",
        ("Role", "of-runner"),
        (namespace, "runner"),
    );
    bound["metadata"]["labels"] = labels;
    stage.lab.apply(&[account(namespace, "runner"), role, bound])?;
    stage
        .phase(
            namespace,
            &format!("{namespace}.v1"),
            "Succeeded",
            "InstallSucceeded",
        )
        .await?;
    Ok(())
}

#[test]
fn an_operator_has_its_rights_where_it_watches() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("watched")?;
        stage.group("watching", json!({"targetNamespaces": ["watching", "watched"]}))?;
        with_permission(stage, "watching").await?;
        let role = named(RBAC, "Role", "watched", "of-runner");
        let found = stage
            .becomes("the role is copied", &role, |found| {
                found["metadata"]["labels"]["olm.copiedFrom"] == "watching"
            })
            .await?;
        ensure!(found["metadata"]["ownerReferences"][0]["kind"] == "ClusterServiceVersion");
        let bound = named(RBAC, "RoleBinding", "watched", "of-runner");
        stage
            .becomes("the binding is copied", &bound, |found| {
                found["subjects"][0]["namespace"] == "watching"
            })
            .await?;
        // With the copy, its rights go.
        stage
            .delete(&named(
                "operators.coreos.com/v1alpha1",
                "ClusterServiceVersion",
                "watching",
                "watching.v1",
            ))
            .await?;
        stage.goes(&role).await
    })
}

#[test]
fn an_operator_for_all_namespaces_has_its_rights_everywhere_until_it_goes() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("lifted", json!({}))?;
        with_permission(stage, "lifted").await?;
        let role = named(RBAC, "ClusterRole", "", "of-runner");
        stage
            .becomes("the role is lifted", &role, |found| {
                found["rules"].as_array().is_some_and(|rules| rules.len() == 2)
            })
            .await?;
        let bound = named(RBAC, "ClusterRoleBinding", "", "of-runner");
        stage.becomes("the binding is lifted", &bound, |_| true).await?;
        stage
            .delete(&named(
                "operators.coreos.com/v1alpha1",
                "ClusterServiceVersion",
                "lifted",
                "lifted.v1",
            ))
            .await?;
        stage.goes(&role).await?;
        stage.goes(&bound).await
    })
}
