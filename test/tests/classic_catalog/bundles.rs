//! Bundles that cannot be unpacked.

use anyhow::{Context as _, Result, ensure};
use olm_test::samples;
use serde_json::{Value, json};

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
        let is_reported = |found: &Value| {
            let message = condition(found, "BundleUnpacking").and_then(|found| found["message"].as_str());
            message
                .is_some_and(|why| why.starts_with("Bundle image pull failed. ") && why.contains(&reference))
        };
        stage
            .becomes("the missing image is named", &object, is_reported)
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

#[test]
fn a_pull_that_is_retried_holds_up_its_own_subscription_alone() -> Result<()> {
    CLUSTER.with(async |stage| {
        let reference = format!("{}/tardy-bundle:v1.0.0", stage.lab.registry()?);
        let tardy = samples::renamed("tardy", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let swift = stage.lab.push_bundles("swift", &["1.0.0"], OPERATOR).await?;
        let image = stage
            .lab
            .push_catalog("swift-catalog:latest", &format!("{swift}{tardy}"))
            .await?;
        stage.group("swift", json!({}))?;
        stage.lab.apply(&[catalog_source("swift", &image)])?;
        let mut other = subscription("swift", &json!({"name": "tardy"}));
        other["metadata"]["name"] = "tardy".into();
        stage
            .lab
            .apply(&[other.clone(), subscription("swift", &json!({}))])?;
        // The time for unpacking is ten minutes.
        stage.installs("swift", "1.0.0").await?;
        let is_pulling = |found: &Value| {
            let message = condition(found, "BundleUnpacking").and_then(|found| found["message"].as_str());
            message.is_some_and(|why| why.contains(&reference))
                && condition(found, "BundleUnpackFailed").is_none()
        };
        stage
            .becomes("the other one is still being pulled", &other, is_pulling)
            .await?;
        let files = samples::renamed_bundle("tardy", "1.0.0", OPERATOR);
        stage.lab.push_bundle("tardy-bundle:v1.0.0", &files).await?;
        let is_installed = |found: &Value| found["status"]["installedCSV"] == "tardy.v1.0.0";
        stage.becomes("both are installed", &other, is_installed).await?;
        Ok(())
    })
}

#[test]
fn a_bundle_that_cannot_be_unpacked_stops_only_its_own_subscription() -> Result<()> {
    CLUSTER.with(async |stage| {
        let reference = format!("{}/vacant-bundle:v1.0.0", stage.lab.registry()?);
        let vacant = samples::renamed("vacant", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let lively = stage.lab.push_bundles("lively", &["1.0.0"], OPERATOR).await?;
        let image = stage
            .lab
            .push_catalog("lively-catalog:latest", &format!("{lively}{vacant}"))
            .await?;
        stage.group("lively", json!({}))?;
        let group = named("operators.coreos.com/v1", "OperatorGroup", "lively", "group");
        let annotation =
            json!({"metadata": {"annotations": {"operatorframework.io/bundle-unpack-timeout": "1s"}}});
        stage.patch(&group, &annotation).await?;
        stage.lab.apply(&[catalog_source("lively", &image)])?;
        let mut other = subscription("lively", &json!({"name": "vacant"}));
        other["metadata"]["name"] = "vacant".into();
        stage
            .lab
            .apply(&[other.clone(), subscription("lively", &json!({}))])?;
        let installed = stage.installs("lively", "1.0.0").await?;
        let object = subscription("lively", &json!({}));
        let is_well = |found: &Value| {
            let kinds = ["BundleUnpackFailed", "BundleUnpacking", "ResolutionFailed"];
            kinds.iter().all(|kind| condition(found, kind).is_none())
        };
        stage.becomes("it is well", &object, is_well).await?;
        let why = |found: &Value| {
            let failed = condition(found, "BundleUnpackFailed");
            let message = failed.and_then(|failed| failed["message"].as_str());
            message.unwrap_or_default().to_owned()
        };
        let failed = stage
            .becomes("the other one names its image", &other, |found| {
                why(found).contains(&reference)
            })
            .await?;
        ensure!(
            why(&failed).starts_with("Bundle unpacking failed - DeadlineExceeded: "),
            "{failed}"
        );
        let plan = stage.phase("lively", "Complete").await?;
        ensure!(
            plan["spec"]["clusterServiceVersionNames"] == json!(["lively.v1.0.0"]),
            "{plan}"
        );

        // The image comes, and the installed operator stays as it is.
        let files = samples::renamed_bundle("vacant", "1.0.0", OPERATOR);
        stage.lab.push_bundle("vacant-bundle:v1.0.0", &files).await?;
        let is_installed = |found: &Value| {
            found["status"]["installedCSV"] == "vacant.v1.0.0"
                && condition(found, "BundleUnpackFailed").is_none()
        };
        stage.becomes("both are installed", &other, is_installed).await?;
        let after = stage.get(&object).await?.context("it is gone")?;
        ensure!(
            after["status"]["installPlanRef"] == installed["status"]["installPlanRef"],
            "{after}"
        );
        Ok(())
    })
}
