//! Failed InstallPlans, and plans that are edited.

use anyhow::{Context as _, Result, ensure};
use olm_test::samples;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{
    CLUSTER, OPERATOR, SOON, Stage, V1ALPHA1, catalog_source, condition, csv, named, subscription,
};

/// A definition of the operator's kind whose stored version its bundle does not have: no plan may replace it.
pub(crate) fn older_definition(package: &str) -> Value {
    let group = format!("{package}.olm.example");
    let mut definition = named(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        &format!("greetings.{group}"),
    );
    definition["spec"] = json!({
        "group": group, "scope": "Namespaced", "names": {"kind": "Greeting", "plural": "greetings"},
        "versions": [{
            "name": "v1old", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
        }],
    });
    definition
}

/// Has the first plan of a package fail because of an older definition, which is deleted then, and returns the plan.
async fn failing(stage: &Stage, package: &str) -> Result<Value> {
    let definition = older_definition(package);
    stage.lab.apply(std::slice::from_ref(&definition))?;
    stage
        .becomes("the older definition is served", &definition, |found| {
            found["status"]["storedVersions"] == json!(["v1old"])
        })
        .await?;
    stage.offer(package, &["1.0.0"]).await?;
    stage.subscribe(package, &json!({}))?;
    let plan = stage.phase(package, "Failed").await?;
    stage
        .says(package, "InstallPlanFailed", "True", "InstallComponentFailed")
        .await?;
    stage.delete(&definition).await?;
    Ok(plan)
}

/// Waits until a Subscription refers to another plan.
async fn another(stage: &Stage, namespace: &str, before: &Value) -> Result<()> {
    let object = subscription(namespace, &json!({}));
    let is_other = |found: &Value| {
        let reference = &found["status"]["installPlanRef"]["uid"];
        reference.is_string() && *reference != before["metadata"]["uid"]
    };
    stage.becomes("another plan is made", &object, is_other).await?;
    Ok(())
}

#[test]
fn an_edit_of_the_subscription_makes_a_new_plan_in_place_of_a_failed_one() -> Result<()> {
    CLUSTER.with(async |stage| {
        let failed = failing(stage, "edited").await?;
        let more = json!({"config": {"env": [{"name": "A", "value": "b"}]}});
        stage.subscribe("edited", &more)?;
        another(stage, "edited", &failed).await?;
        let installed = stage.installs("edited", "1.0.0").await?;
        ensure!(
            installed["status"]["installPlanGeneration"] == 2,
            "{}",
            installed["status"]
        );
        ensure!(
            condition(&installed, "InstallPlanFailed").is_none(),
            "{installed}"
        );
        Ok(())
    })
}

#[test]
fn another_resolution_makes_a_new_plan_in_place_of_a_failed_one() -> Result<()> {
    CLUSTER.with(async |stage| {
        let failed = failing(stage, "moved").await?;
        let blobs = stage
            .lab
            .push_bundles("moved", &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let image = stage.lab.push_catalog("moved-catalog:newer", &blobs).await?;
        stage.lab.apply(&[catalog_source("moved", &image)])?;
        another(stage, "moved", &failed).await?;
        stage.installs("moved", "1.0.1").await?;
        Ok(())
    })
}

#[test]
fn a_plan_that_lacked_a_kind_is_carried_out_once_it_is_served() -> Result<()> {
    CLUSTER.with(async |stage| {
        let mut files = samples::renamed_bundle("lacking", "1.0.0", OPERATOR);
        let monitor = json!({
            "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "lacking"},
            "spec": {"endpoints": [], "selector": {}},
        });
        files.insert("manifests/monitor.json".to_owned(), monitor.to_string().into_bytes());
        let reference = stage.lab.push_bundle("lacking-bundle:v1.0.0", &files).await?;
        let catalog = samples::renamed("lacking", &samples::catalog(&["1.0.0"], |_| reference.clone()));
        let image = stage.lab.push_catalog("lacking-catalog:latest", &catalog).await?;
        stage.group("lacking", json!({}))?;
        stage.lab.apply(&[catalog_source("lacking", &image)])?;
        stage.subscribe("lacking", &json!({}))?;
        let failed = stage.phase("lacking", "Failed").await?;
        let why = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            why.starts_with("api-server resource not found installing ServiceMonitor"),
            "{why}"
        );
        stage.lab.apply_file("test/samples/definitions/monitoring.yaml")?;
        let complete = stage.phase("lacking", "Complete").await?;
        ensure!(complete["metadata"]["uid"] == failed["metadata"]["uid"]);
        let monitor = named("monitoring.coreos.com/v1", "ServiceMonitor", "lacking", "lacking");
        ensure!(stage.get(&monitor).await?.is_some(), "there is no ServiceMonitor");
        Ok(())
    })
}

/// Replaces the manifest of a step of a plan in its status.
fn edit_step(stage: &Stage, plan: &Value, step: usize) -> Result<()> {
    let name = plan["metadata"]["name"].as_str().context("no name")?;
    let namespace = plan["metadata"]["namespace"].as_str().context("no namespace")?;
    let patch =
        json!([{"op": "replace", "path": format!("/status/plan/{step}/resource/manifest"), "value": "{}"}]);
    let patch = format!("--patch={patch}");
    stage.lab.kubectl(&[
        "patch",
        "installplan",
        name,
        "-n",
        namespace,
        "--subresource=status",
        "--type=json",
        &patch,
    ])?;
    Ok(())
}

#[test]
fn a_plan_that_was_edited_is_refused_and_another_one_waits_for_approval() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("changed", &["1.0.0"]).await?;
        stage.subscribe("changed", &json!({"installPlanApproval": "Manual"}))?;
        let plan = stage.phase("changed", "RequiresApproval").await?;
        edit_step(stage, &plan, 0)?;
        stage.patch(&plan, &json!({"spec": {"approved": true}})).await?;
        let refused = stage
            .becomes("the plan is refused", &plan, |found| {
                found["status"]["phase"] == "Failed"
            })
            .await?;
        let installed = condition(&refused, "Installed").context("nothing says why")?;
        ensure!(installed["reason"] == "InstallCheckFailed", "{installed}");
        let why = installed["message"].as_str().unwrap_or_default();
        ensure!(why.contains("its steps are not those that were planned"), "{why}");
        another(stage, "changed", &plan).await?;
        let next = stage.phase("changed", "RequiresApproval").await?;
        ensure!(
            stage.get(&csv("changed", "1.0.0")).await?.is_none(),
            "installed without approval"
        );
        stage.patch(&next, &json!({"spec": {"approved": true}})).await?;
        stage.installs("changed", "1.0.0").await?;
        Ok(())
    })
}

#[test]
fn an_edit_of_the_steps_after_the_approval_stops_the_plan() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("stopped", &["1.0.0"]).await?;
        stage
            .lab
            .apply(&[named("v1", "ServiceAccount", "stopped", "powerless")])?;
        stage.group("stopped", json!({"serviceAccountName": "powerless"}))?;
        stage.subscribe("stopped", &json!({"installPlanApproval": "Manual"}))?;
        let plan = stage.phase("stopped", "RequiresApproval").await?;
        stage.patch(&plan, &json!({"spec": {"approved": true}})).await?;
        let stuck = stage
            .becomes("the account lacks rights", &plan, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                found["status"]["phase"] == "Installing" && message.contains("forbidden")
            })
            .await?;
        let approved = stuck["metadata"]["annotations"]["olm.operatorframework.io/approved-plan"]
            .as_str()
            .context("the approval is bound to nothing")?;
        let uid = plan["metadata"]["uid"].as_str().unwrap_or_default();
        ensure!(approved.starts_with(&format!("{uid}/sha256:")), "{approved}");
        let steps = stuck["status"]["plan"].as_array().context("no steps")?;
        // A running pass writes over the edit with the approved steps that it read.
        let last = steps.len() - 1;
        let refused = eventually("the plan is refused", SOON, async || {
            edit_step(stage, &plan, last)?;
            let found = stage.get(&plan).await?.context("no plan")?;
            Ok((found["status"]["phase"] == "Failed").then_some(found))
        })
        .await?;
        let installed = condition(&refused, "Installed").context("nothing says why")?;
        ensure!(installed["reason"] == "InstallCheckFailed", "{installed}");
        // The account could not even create the version, so nothing keeps the refused plan.
        another(stage, "stopped", &plan).await?;
        stage.phase("stopped", "RequiresApproval").await?;
        Ok(())
    })
}

#[test]
fn unpacked_bundles_that_no_plan_needs_are_removed() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.offer("pruned", &["1.0.0"]).await?;
        stage.subscribe("pruned", &json!({}))?;
        stage.installs("pruned", "1.0.0").await?;
        stage.phase("pruned", "Complete").await?;
        stage.offer("waiting", &["1.0.0"]).await?;
        stage.subscribe("waiting", &json!({"installPlanApproval": "Manual"}))?;
        let waiting = stage.phase("waiting", "RequiresApproval").await?;
        let complete = stage.phase("pruned", "Complete").await?;
        let folder = stage.lab.folder().join("catalogs/bundles");
        let file = |plan: &Value| -> Result<_> {
            let images = plan["metadata"]["annotations"]["olm.operatorframework.io/bundle-images"].as_str();
            let (_, digest) = images
                .and_then(|images| images.split_once("@sha256:"))
                .context("no digest")?;
            let digest = digest.get(..64).context("no digest")?;
            Ok(folder.join(format!("sha256-{digest}.contents")))
        };
        let (needed, unneeded) = (file(&waiting)?, file(&complete)?);
        ensure!(needed.exists() && unneeded.exists(), "bundles are not kept");
        stage.catalog.stop().await?;
        stage.catalog.start(&stage.lab.cluster)?;
        stage.catalog.ready().await?;
        eventually("the bundle is removed", SOON, async || {
            Ok((!unneeded.exists()).then_some(()))
        })
        .await?;
        ensure!(needed.exists(), "a bundle of a waiting plan is gone");
        stage
            .patch(&waiting, &json!({"spec": {"approved": true}}))
            .await?;
        stage.installs("waiting", "1.0.0").await?;
        Ok(())
    })
}

#[test]
fn a_catalog_and_its_bundles_come_from_a_registry_that_wants_a_password() -> Result<()> {
    CLUSTER.with(async |stage| {
        let registry = stage.lab.cluster.registry().context("no registry")?.clone();
        let blobs = stage.lab.push_bundles("private", &["1.0.0"], OPERATOR).await?;
        let hidden = blobs.replace(&registry.tls, &registry.auth);
        ensure!(hidden != blobs, "the bundle is elsewhere: {blobs}");
        let image = stage.lab.push_catalog("private-catalog:hidden", &hidden).await?;
        let image = image.replace(&registry.tls, &registry.auth);
        stage.group("private", json!({}))?;
        let mut source = catalog_source("private", &image);
        stage.lab.apply(std::slice::from_ref(&source))?;
        stage.subscribe("private", &json!({}))?;
        stage
            .becomes("the registry refuses", &source, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                found["status"]["connectionState"]["lastObservedState"] == "TRANSIENT_FAILURE"
                    && message.to_lowercase().contains("auth")
            })
            .await?;
        let credentials = json!({"auths": {&registry.auth: {
            "username": registry.username, "password": registry.password,
        }}});
        let mut secret = named("v1", "Secret", "private", "pull");
        secret["type"] = "kubernetes.io/dockerconfigjson".into();
        secret["stringData"] = json!({".dockerconfigjson": credentials.to_string()});
        source["spec"]["secrets"] = json!(["pull"]);
        stage.lab.apply(&[secret, source.clone()])?;
        stage
            .becomes("the catalog is served", &source, |found| {
                found["status"]["connectionState"]["lastObservedState"] == "READY"
            })
            .await?;
        stage.installs("private", "1.0.0").await?;
        ensure!(
            stage
                .list(&named(V1ALPHA1, "InstallPlan", "private", ""))
                .await?
                .len()
                == 1
        );
        Ok(())
    })
}
