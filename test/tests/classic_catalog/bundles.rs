//! Bundles that cannot be unpacked.

use anyhow::{Result, ensure};
use olm_test::samples;
use serde_json::json;

use crate::stage::{CLUSTER, OPERATOR, V1ALPHA1, catalog_source, condition, csv, named, subscription};

#[test]
fn a_bundle_image_that_is_missing_is_reported_and_installed_when_it_comes() -> Result<()> {
    CLUSTER.with(async |stage| {
        let reference = format!("{}/late-bundle:v1.0.0", stage.lab.registry()?);
        let catalog = samples::renamed("late", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let image = stage.lab.push_catalog("late-catalog:latest", &catalog).await?;
        stage.group("late", json!({}))?;
        stage.lab.apply(&[catalog_source("late", &image)])?;
        stage.subscribe("late", &json!({}))?;
        let object = subscription("late", &json!({}));
        let is_told = |found: &serde_json::Value| {
            let message = condition(found, "BundleUnpacking").and_then(|found| found["message"].as_str());
            message
                .is_some_and(|why| why.starts_with("Bundle image pull failed. ") && why.contains(&reference))
        };
        stage
            .becomes("the missing image is named", &object, is_told)
            .await?;
        let files = samples::renamed_bundle("late", "1.0.0", OPERATOR);
        stage.lab.push_bundle("late-bundle:v1.0.0", &files).await?;
        let installed = stage.installs("late", "1.0.0").await?;
        ensure!(condition(&installed, "BundleUnpacking").is_none(), "{installed}");
        Ok(())
    })
}

#[test]
fn a_bundle_that_takes_too_long_fails_with_the_reason() -> Result<()> {
    CLUSTER.with(async |stage| {
        let reference = format!("{}/never-bundle:v1.0.0", stage.lab.registry()?);
        let catalog = samples::renamed("never", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let image = stage.lab.push_catalog("never-catalog:latest", &catalog).await?;
        stage.group("never", json!({}))?;
        let group = named("operators.coreos.com/v1", "OperatorGroup", "never", "group");
        let annotation =
            json!({"metadata": {"annotations": {"operatorframework.io/bundle-unpack-timeout": "1s"}}});
        stage.patch(&group, &annotation).await?;
        stage.lab.apply(&[catalog_source("never", &image)])?;
        stage.subscribe("never", &json!({}))?;
        let why = stage
            .says("never", "BundleUnpackFailed", "True", "BundleUnpackFailed")
            .await?;
        let expected =
            "Bundle unpacking failed - DeadlineExceeded: Job was active longer than specified deadline";
        ensure!(why.starts_with(expected), "{why}");
        let plans = stage.list(&named(V1ALPHA1, "InstallPlan", "never", "")).await?;
        ensure!(plans.is_empty(), "{plans:?}");
        Ok(())
    })
}

#[test]
fn an_image_that_is_no_bundle_fails_at_once() -> Result<()> {
    CLUSTER.with(async |stage| {
        let mut files = samples::renamed_bundle("broken", "1.0.0", OPERATOR);
        files.retain(|path, _| !path.contains("clusterserviceversion"));
        let reference = stage.lab.push_bundle("broken-bundle:v1.0.0", &files).await?;
        let catalog = samples::renamed("broken", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let image = stage.lab.push_catalog("broken-catalog:latest", &catalog).await?;
        stage.group("broken", json!({}))?;
        stage.lab.apply(&[catalog_source("broken", &image)])?;
        stage.subscribe("broken", &json!({}))?;
        let why = stage
            .says("broken", "BundleUnpackFailed", "True", "BundleUnpackFailed")
            .await?;
        ensure!(why.contains("the bundle has no ClusterServiceVersion"), "{why}");
        Ok(())
    })
}

#[test]
fn a_bundle_with_a_kind_that_no_plan_installs_is_refused_before_a_plan_is_made() -> Result<()> {
    CLUSTER.with(async |stage| {
        let mut files = samples::renamed_bundle("exposed", "1.0.0", OPERATOR);
        let ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "front"},
            "spec": {"defaultBackend": {"service": {"name": "front", "port": {"number": 80}}}},
        });
        files.insert(
            "manifests/ingress.yaml".to_owned(),
            ingress.to_string().into_bytes(),
        );
        let reference = stage.lab.push_bundle("exposed-bundle:v1.0.0", &files).await?;
        let catalog = samples::renamed("exposed", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let image = stage.lab.push_catalog("exposed-catalog:latest", &catalog).await?;
        stage.group("exposed", json!({}))?;
        stage.lab.apply(&[catalog_source("exposed", &image)])?;
        stage.subscribe("exposed", &json!({}))?;
        let why = stage
            .says("exposed", "BundleUnpackFailed", "True", "ErrorPreventedUnpacking")
            .await?;
        ensure!(
            why == "bundle exposed.v1.0.0 contains Ingress front, a kind that OLM classic does not install",
            "{why}"
        );
        let plans = stage.list(&named(V1ALPHA1, "InstallPlan", "exposed", "")).await?;
        ensure!(plans.is_empty(), "{plans:?}");
        let installed = stage.get(&csv("exposed", "1.0.0")).await?;
        ensure!(installed.is_none(), "{installed:?}");
        Ok(())
    })
}
