//! The calls of `operator-sdk run bundle`, `run bundle-upgrade` and `cleanup`: its module cannot be built here, so the
//! test makes the same requests. The Pod with the registry is the registry of another CatalogSource.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, PostParams};
use olm_test::objects::api;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, SOON, Stage, V1ALPHA1, named};

const PLACE: &str = "bundled";

/// Changes an object by a full update, as clients in Go do, again after a conflict.
async fn update(stage: &Stage, object: &Value, change: impl Fn(&mut Value)) -> Result<()> {
    let name = object["metadata"]["name"].as_str().context("no name")?;
    let objects = api(&stage.lab.client, object);
    eventually("the object is updated", SOON, async || {
        let mut found = serde_json::to_value(objects.get(name).await?)?;
        change(&mut found);
        objects
            .replace(name, &PostParams::default(), &serde_json::from_value(found)?)
            .await?;
        Ok(Some(()))
    })
    .await
}

/// Serves a catalog and returns its address.
async fn served(stage: &Stage, name: &str, versions: &[&str]) -> Result<String> {
    let blobs = stage.lab.push_bundles(PLACE, versions, OPERATOR).await?;
    let image = stage.lab.push_catalog(&format!("{name}:latest"), &blobs).await?;
    let mut source = named(V1ALPHA1, "CatalogSource", "sdk-registry", name);
    source["spec"] = json!({"sourceType": "grpc", "image": image});
    stage.lab.apply(std::slice::from_ref(&source))?;
    stage
        .becomes("the registry is there", &source, |found| {
            found["status"]["connectionState"]["lastObservedState"] == "READY"
        })
        .await?;
    stage.registry("sdk-registry", name).await
}

/// Waits for another plan than this one, approves it by a full update, and waits for the version.
async fn approve(stage: &Stage, subscription: &Value, before: &str, version: &str) -> Result<String> {
    let plan = stage
        .becomes("there is another plan", subscription, |found| {
            let name = found["status"]["installPlanRef"]["name"].as_str();
            name.is_some_and(|name| name != before)
        })
        .await?;
    let plan = plan["status"]["installPlanRef"]["name"].as_str();
    let plan = plan.context("no plan")?.to_owned();
    let object = named(V1ALPHA1, "InstallPlan", PLACE, &plan);
    update(stage, &object, |plan| plan["spec"]["approved"] = true.into()).await?;
    let csv = named(V1ALPHA1, "ClusterServiceVersion", PLACE, version);
    stage
        .becomes("the version is installed", &csv, |found| {
            found["status"]["phase"] == "Succeeded"
        })
        .await?;
    Ok(plan)
}

#[test]
fn the_calls_of_operator_sdk_install_upgrade_and_clean_up_a_bundle() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace(PLACE)?;
        stage.namespace("sdk-registry")?;
        let (first, second) = (
            served(stage, "first", &["1.0.0"]).await?,
            served(stage, "second", &["1.0.0", "1.0.1"]).await?,
        );
        // A source without a type comes first, before there is a registry.
        let mut source = named(V1ALPHA1, "CatalogSource", PLACE, "bundled-catalog");
        source["spec"] = json!({"sourceType": "", "displayName": "bundled", "publisher": "operator-sdk"});
        stage.lab.apply(std::slice::from_ref(&source))?;
        stage
            .becomes("the type is refused", &source, |found| {
                found["status"]["reason"] == "SpecInvalidError"
            })
            .await?;
        update(stage, &source, |source| {
            source["spec"]["sourceType"] = "grpc".into();
            source["spec"]["address"] = first.as_str().into();
            source["metadata"]["annotations"] =
                json!({"operators.operatorframework.io/registry-pod-name": "pod"});
        })
        .await?;
        let mut group = named(
            "operators.coreos.com/v1",
            "OperatorGroup",
            PLACE,
            "operator-sdk-og",
        );
        group["spec"] = json!({});
        let mut subscription = named(V1ALPHA1, "Subscription", PLACE, "bundled-v1-0-0-sub");
        subscription["spec"] = json!({
            "name": PLACE, "channel": "stable", "source": "bundled-catalog", "sourceNamespace": PLACE,
            "startingCSV": "bundled.v1.0.0", "installPlanApproval": "Manual",
        });
        stage.lab.apply(&[group, subscription.clone()])?;
        let plan = approve(stage, &subscription, "", "bundled.v1.0.0").await?;

        // `bundle-upgrade`: the address changes, and what was read of the old one must not count.
        update(stage, &source, |source| {
            source["spec"]["address"] = second.as_str().into();
        })
        .await?;
        approve(stage, &subscription, &plan, "bundled.v1.0.1").await?;

        // `cleanup`.
        let csv = named(V1ALPHA1, "ClusterServiceVersion", PLACE, "bundled.v1.0.1");
        for object in [&subscription, &csv, &source] {
            let name = object["metadata"]["name"].as_str().context("no name")?;
            let objects = api(&stage.lab.client, object);
            objects.delete(name, &DeleteParams::default()).await?;
            eventually("it is gone", SOON, async || {
                Ok(objects.get_opt(name).await?.is_none().then_some(()))
            })
            .await?;
        }
        let deployment = named("apps/v1", "Deployment", PLACE, "bundled-operator");
        eventually("the Deployment is collected", SOON, async || {
            Ok(stage.get(&deployment).await?.is_none().then_some(()))
        })
        .await?;
        ensure!(stage.get(&named("v1", "Namespace", "", PLACE)).await?.is_some());
        Ok(())
    })
}
