//! Plans under the account that an OperatorGroup names.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::failed::older_definition;
use crate::stage::{CLUSTER, catalog_source, named};

#[test]
fn a_plan_waits_for_its_account_and_for_the_rights_of_the_account() -> Result<()> {
    CLUSTER.with(async |stage| {
        let image = stage
            .lab
            .publish("scoped", &["1.0.0"], crate::stage::OPERATOR)
            .await?;
        stage.group("scoped", json!({"serviceAccountName": "tenant", "targetNamespaces": ["scoped"]}))?;
        stage.lab.apply(&[catalog_source("scoped", &image)])?;
        stage.subscribe("scoped", &json!({}))?;
        let plan = stage.plan("scoped").await?;
        let says = |found: &serde_json::Value, text: &str| {
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["reason"] == "InstallCheckFailed" && one["message"] == text)
        };
        let missing = "please make sure the service account exists. sa=tenant operatorgroup=scoped/group";
        stage
            .becomes("the plan names the missing account", &plan, |found| says(found, missing))
            .await?;
        stage.lab.apply(&[named("v1", "ServiceAccount", "scoped", "tenant")])?;
        let refused = stage
            .becomes("the plan names the missing right", &plan, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                message.starts_with("retrying execution due to error: error ") && message.contains("is forbidden")
            })
            .await?;
        ensure!(refused["status"]["phase"] == "Installing", "{}", refused["status"]);
        let csv = stage.get(&crate::stage::csv("scoped", "1.0.0")).await?;
        ensure!(csv.is_none(), "an account without rights has created a ClusterServiceVersion");
        ensure!(refused["status"]["attenuatedServiceAccountRef"]["name"] == "tenant");
        let conditions = refused["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.is_empty(), "{conditions:?}");
        stage.lab.apply(&[json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "scoped-tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "scoped"}],
        })])?;
        stage.phase("scoped", "Complete").await?;
        stage.installs("scoped", "1.0.0").await?;
        Ok(())
    })
}

#[test]
fn a_failed_plan_of_a_scoped_account_is_carried_out_once_more_when_rights_change() -> Result<()> {
    CLUSTER.with(async |stage| {
        let package = "renewed";
        stage.lab.apply(&[
            named("v1", "Namespace", "", package),
            named("v1", "ServiceAccount", package, "tenant"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "renewed-tenant"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": package}],
            }),
        ])?;
        let definition = older_definition(package);
        stage.lab.apply(std::slice::from_ref(&definition))?;
        stage
            .becomes("the older definition is served", &definition, |found| {
                found["status"]["storedVersions"] == json!(["v1old"])
            })
            .await?;
        let image = stage.lab.publish(package, &["1.0.0"], crate::stage::OPERATOR).await?;
        stage.group(package, json!({"serviceAccountName": "tenant"}))?;
        stage.lab.apply(&[catalog_source(package, &image)])?;
        stage.subscribe(package, &json!({}))?;
        let failed = stage.phase(package, "Failed").await?;
        stage.delete(&definition).await?;
        stage.goes(&definition).await?;
        let mut role = named("rbac.authorization.k8s.io/v1", "Role", package, "more");
        role["rules"] = json!([]);
        stage.lab.apply(&[role])?;
        let complete = stage.phase(package, "Complete").await?;
        ensure!(complete["metadata"]["uid"] == failed["metadata"]["uid"]);
        ensure!(complete["status"]["startTime"] == failed["status"]["startTime"]);
        stage.installs(package, "1.0.0").await?;
        Ok(())
    })
}
