//! Objects of other controllers, and specs that cannot be read.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, Stage, csv, deployment, named};

#[test]
fn a_deployment_of_another_controller_is_left_alone_and_named() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("claimed", json!({}))?;
        let controller = named("v1", "ConfigMap", "claimed", "shop");
        stage.lab.apply(std::slice::from_ref(&controller))?;
        let controller = stage.get(&controller).await?.context("no ConfigMap")?;
        let mut theirs = named("apps/v1", "Deployment", "claimed", "claimed-operator");
        theirs["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": controller["metadata"]["uid"],
            "controller": true,
        }]);
        theirs["spec"] = deployment("claimed-operator")["spec"].clone();
        theirs["spec"]["template"]["spec"]["containers"][0]["image"] = json!("shop.example/shop:v1");
        stage.lab.apply(std::slice::from_ref(&theirs))?;
        let webhook = json!({"webhookdefinitions": [{
            "type": "ValidatingAdmissionWebhook", "generateName": "v.claimed.example",
            "deploymentName": "claimed-operator", "containerPort": 443, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "webhookPath": "/validate",
            "rules": [{"apiGroups": ["claimed.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        }]});
        stage.lab.apply(&[csv("claimed", "claimed.v1", &webhook)])?;
        let failed = stage
            .phase("claimed", "claimed.v1", "Failed", "InstallComponentFailed")
            .await?;
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            message
                == "install strategy failed: cannot take over Deployment claimed-operator: ConfigMap shop of v1 controls \
                    it. Delete it or rename one of the two",
            "{message}"
        );
        let found = stage.get(&theirs).await?.context("it is gone")?;
        ensure!(found["metadata"]["generation"] == 1 && found["metadata"]["labels"].is_null());
        let secret = named("v1", "Secret", "claimed", "claimed-operator-service-cert");
        ensure!(stage.get(&secret).await?.is_none(), "something is installed");
        stage.delete(&theirs).await?;
        stage
            .phase("claimed", "claimed.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn of_two_operators_that_name_one_deployment_the_first_keeps_it() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("contested", json!({}))?;
        let version = |name: &str| {
            let deployments = json!([deployment("contested-operator")]);
            let install = json!({"strategy": "deployment", "spec": {"deployments": deployments}});
            csv("contested", name, &json!({"install": install}))
        };
        let (first, second) = (version("first.v1"), version("second.v1"));
        stage.lab.apply(std::slice::from_ref(&first))?;
        stage
            .phase("contested", "first.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let live = named("apps/v1", "Deployment", "contested", "contested-operator");
        let before = stage.get(&live).await?.context("no Deployment")?;
        stage.lab.apply(std::slice::from_ref(&second))?;
        let failed = stage
            .phase("contested", "second.v1", "Failed", "InstallComponentFailed")
            .await?;
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            message
                == "install strategy failed: cannot take over Deployment contested-operator: ClusterServiceVersion \
                    first.v1 has installed it. Delete that ClusterServiceVersion, or give the Deployment of one of the \
                    two another name",
            "{message}"
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = stage.get(&live).await?.context("no Deployment")?;
        ensure!(
            after["metadata"]["generation"] == before["metadata"]["generation"]
                && after["metadata"]["labels"] == before["metadata"]["labels"],
            "{}",
            after["metadata"]
        );
        let kept = stage.csv("contested", "first.v1").await?.unwrap_or_default();
        let history = kept["status"]["conditions"].as_array().context("no history")?;
        ensure!(history.iter().all(|entry| entry["phase"] != "Failed"), "{history:?}");
        stage.delete(&first).await?;
        stage
            .phase("contested", "second.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn a_definition_whose_name_has_no_group_is_reported() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("ungrouped", json!({}))?;
        let owned = json!({"customresourcedefinitions": {"owned": [
            {"name": "greetings", "version": "v1", "kind": "Greeting"},
        ]}});
        stage.lab.apply(&[csv("ungrouped", "ungrouped.v1", &owned)])?;
        let failed = stage
            .phase("ungrouped", "ungrouped.v1", "Failed", "InvalidInstallStrategy")
            .await?;
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("CustomResourceDefinition \"greetings\": its name has no group"),
            "{message}"
        );
        stage
            .patch(&failed, &json!({"spec": {"customresourcedefinitions": null}}))
            .await?;
        stage
            .phase("ungrouped", "ungrouped.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

/// Definitions of ClusterServiceVersions that take any spec, as those of old clusters did.
async fn without_schema(stage: &Stage) -> Result<(Value, Value)> {
    let name = "clusterserviceversions.operators.coreos.com";
    let object = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name);
    let strict = stage.get(&object).await?.context("no definition")?;
    let mut versions = strict["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Ok((
        json!({"spec": {"versions": versions}}),
        json!({"spec": {"versions": strict["spec"]["versions"]}}),
    ))
}

#[test]
fn a_spec_that_cannot_be_read_is_reported_and_can_be_deleted() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.group("garbled", json!({}))?;
        let name = "clusterserviceversions.operators.coreos.com";
        let object = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name);
        let (lax, strict) = without_schema(stage).await?;
        stage.patch(&object, &lax).await?;
        let outcome = garbled(stage).await;
        stage.patch(&object, &strict).await?;
        outcome
    })
}

async fn garbled(stage: &Stage) -> Result<()> {
    let good = csv("garbled", "garbled.v1", &json!({}));
    let bad = |name: &str| {
        let mut bad = csv("garbled", name, &json!({"installModes": "all"}));
        bad["metadata"]["finalizers"] = json!(["operators.coreos.com/csv-cleanup"]);
        bad
    };
    // The API server takes a moment to forget the schema.
    eventually("the API server takes it", Duration::from_secs(30), async || {
        Ok(stage
            .lab
            .apply(&[bad("garbled.v1"), bad("other.v1")])
            .is_ok()
            .then_some(()))
    })
    .await?;
    let failed = stage
        .phase("garbled", "garbled.v1", "Failed", "InvalidInstallStrategy")
        .await?;
    let message = failed["status"]["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("install strategy invalid: cannot read the spec: invalid type: string \"all\"")
            && message.ends_with("Correct it"),
        "{message}"
    );
    eventually("an event says so", SOON, async || {
        let events = stage
            .lab
            .kubectl(&["get", "events", "-n", "garbled", "-o", "json"])?;
        Ok(events.contains("cannot read the spec").then_some(()))
    })
    .await?;
    let other = bad("other.v1");
    stage
        .phase("garbled", "other.v1", "Failed", "InvalidInstallStrategy")
        .await?;
    stage.delete(&other).await?;
    stage.goes(&other).await?;
    stage
        .patch(
            &failed,
            &json!({"spec": {"installModes": good["spec"]["installModes"]}}),
        )
        .await?;
    stage
        .phase("garbled", "garbled.v1", "Succeeded", "InstallSucceeded")
        .await?;
    stage.delete(&good).await?;
    stage.goes(&good).await
}
