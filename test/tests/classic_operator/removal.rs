//! Removal: what goes with a ClusterServiceVersion, and that nothing holds it up.

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_test::classic;
use serde_json::json;

use crate::stage::{CLUSTER, csv, definition, group, named};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn a_deleted_version_takes_everything_with_it_but_definitions() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("leaving", json!({}))?;
        stage
            .lab
            .apply(&[definition("leaving", "greetings", "Greeting")])?;
        // As it comes with the plan that makes the version.
        let mut granted = named(RBAC, "ClusterRole", "", "leaving-granted");
        granted["metadata"]["labels"] = json!({
            "olm.managed": "true", "olm.owner": "leaving.v1", "olm.owner.namespace": "leaving",
            "olm.owner.kind": "ClusterServiceVersion",
        });
        granted["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]);
        let mut urgent = named("scheduling.k8s.io/v1", "PriorityClass", "", "leaving-urgent");
        urgent["metadata"]["labels"] = granted["metadata"]["labels"].clone();
        urgent["value"] = json!(1000);
        stage.lab.apply(&[granted.clone(), urgent.clone()])?;
        let owned = json!({"customresourcedefinitions": {"owned": [
            {"name": "greetings.leaving.example", "version": "v1", "kind": "Greeting"},
        ]}});
        let version = csv("leaving", "leaving.v1", &owned);
        stage.lab.apply(std::slice::from_ref(&version))?;
        stage
            .phase("leaving", "leaving.v1", "Succeeded", "InstallSucceeded")
            .await?;
        for suffix in ["admin", "edit", "view", "crdview"] {
            let role = named(
                RBAC,
                "ClusterRole",
                "",
                &format!("greetings.leaving.example-v1-{suffix}"),
            );
            stage
                .becomes("users get rights on the API", &role, |_| true)
                .await?;
        }
        let edit = named(RBAC, "ClusterRole", "", "greetings.leaving.example-v1-edit");
        let view = named(RBAC, "ClusterRole", "", "greetings.leaving.example-v1-view");
        stage.patch(&edit, &json!({"rules": []})).await?;
        stage.delete(&view).await?;
        stage
            .becomes("the role has its rules again", &edit, |found| {
                found["rules"][0]["resources"] == json!(["greetings"])
            })
            .await?;
        stage.becomes("the role is back", &view, |_| true).await?;
        let group = group("leaving", "group", json!({}));
        stage
            .becomes("the group provides the API", &group, |found| {
                found["metadata"]["annotations"]["olm.providedAPIs"] == "Greeting.v1.leaving.example"
            })
            .await?;
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        stage.goes(&granted).await?;
        stage.goes(&urgent).await?;
        stage
            .goes(&named("apps/v1", "Deployment", "leaving", "leaving-operator"))
            .await?;
        stage
            .goes(&named(
                "operators.coreos.com/v2",
                "OperatorCondition",
                "leaving",
                "leaving.v1",
            ))
            .await?;
        ensure!(
            stage
                .get(&definition("leaving", "greetings", "Greeting"))
                .await?
                .is_some(),
            "a definition is gone"
        );
        stage
            .becomes("the group provides nothing", &group, |found| {
                found["metadata"]["annotations"]["olm.providedAPIs"] == ""
            })
            .await?;
        // With the group its roles go.
        let role = stage.lab.kubectl(&[
            "get",
            "clusterrole",
            "-l",
            "olm.owner=group,olm.owner.namespace=leaving",
            "-o",
            "name",
        ])?;
        ensure!(role.lines().count() == 3, "{role}");
        stage.delete(&group).await?;
        for name in role.lines() {
            let name = name.rsplit('/').next().unwrap_or_default();
            stage.goes(&named(RBAC, "ClusterRole", "", name)).await?;
        }
        Ok(())
    })
}

#[test]
fn a_version_that_fails_again_and_again_is_deleted_at_once() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("looping", json!({}))?;
        let webhook = json!({
            "type": "ValidatingAdmissionWebhook", "generateName": "v.looping.example",
            "deploymentName": "looping-operator", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        let twice = json!({"webhookdefinitions": [webhook, webhook]});
        let version = csv("looping", "looping.v1", &twice);
        stage.lab.apply(std::slice::from_ref(&version))?;
        stage
            .phase("looping", "looping.v1", "Failed", "InvalidWebhookDescription")
            .await?;
        // It was tried after 1 s, 3 s, 7 s and 15 s, and is not tried again for some 14 s.
        tokio::time::sleep(Duration::from_secs(18)).await;
        stage.delete(&version).await?;
        classic::goes(&stage.lab.client, Duration::from_secs(8), &version).await
    })
}

#[test]
fn an_api_service_of_a_version_that_is_gone_is_deleted() -> Result<()> {
    CLUSTER.with(async |stage| {
        let service = |group: &str, owner: &str| {
            let name = format!("v1.{group}");
            let mut service = named("apiregistration.k8s.io/v1", "APIService", "", &name);
            service["metadata"]["labels"] = json!({
                "olm.owner": owner, "olm.owner.namespace": "left", "olm.owner.kind": "ClusterServiceVersion",
            });
            service["spec"] = json!({
                "group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            });
            service
        };
        stage.group("left", json!({}))?;
        stage.lab.apply(&[csv("left", "left.v1", &json!({}))])?;
        stage
            .phase("left", "left.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let kept = service("kept.example", "left.v1");
        let orphan = service("orphan.example", "gone.v1");
        stage.lab.apply(&[kept.clone(), orphan.clone()])?;
        stage.goes(&orphan).await?;
        ensure!(
            stage.get(&kept).await?.is_some(),
            "that of another version is gone"
        );
        stage.delete(&csv("left", "left.v1", &json!({}))).await?;
        stage.goes(&kept).await
    })
}

#[test]
fn a_namespace_that_is_deleted_as_a_whole_does_not_hang() -> Result<()> {
    CLUSTER.with(async |stage| {
        // Its account goes with it, maybe before the version.
        stage.group("doomed", json!({"targetNamespaces": ["doomed"], "serviceAccountName": "doomed"}))?;
        let account = named("v1", "ServiceAccount", "doomed", "doomed");
        let mut binding = named(RBAC, "ClusterRoleBinding", "", "doomed");
        binding["roleRef"] =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "namespace": "doomed", "name": "doomed"}]);
        let webhook = json!({"webhookdefinitions": [{
            "type": "MutatingAdmissionWebhook", "generateName": "mdoom.doomed.example", "deploymentName": "doomed-operator",
            "containerPort": 443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "webhookPath": "/mutate",
            "rules": [{"apiGroups": ["doomed.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        }]});
        let version = csv("doomed", "doomed.v1", &webhook);
        stage.lab.apply(&[account, binding, version.clone()])?;
        stage.phase("doomed", "doomed.v1", "Succeeded", "InstallSucceeded").await?;
        let namespace = named("v1", "Namespace", "", "doomed");
        stage.delete(&namespace).await?;
        stage.goes(&version).await?;
        // Kubernetes ends no namespace while an aggregated API is unavailable, such as one that another test installs.
        classic::goes(&stage.lab.client, Duration::from_mins(5), &namespace).await
    })
}
