//! CustomResourceDefinitions that several bundles have.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_test::samples;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, SOON, Stage, V1ALPHA1, catalog_source, named, subscription};

/// Pushes versions of a sample operator whose definitions are changed, and returns their bundles.
async fn push_changed(
    stage: &Stage,
    package: &str,
    versions: &[&'static str],
    change: impl Fn(&str, String) -> Result<String>,
) -> Result<BTreeMap<&'static str, String>> {
    let mut bundles = BTreeMap::new();
    for version in versions {
        let mut files = samples::renamed_bundle(package, version, OPERATOR);
        let mut paths = files.iter_mut();
        let (_, definition) = paths
            .find(|(path, _)| path.ends_with("_greetings.yaml"))
            .context("no definition")?;
        *definition = change(version, String::from_utf8(definition.clone())?)?.into_bytes();
        let name = format!("{package}-bundle:v{version}");
        bundles.insert(*version, stage.lab.push_bundle(&name, &files).await?);
    }
    Ok(bundles)
}

/// Pushes a catalog with versions of a package, and returns its image.
async fn push_catalog(
    stage: &Stage,
    package: &str,
    bundles: &BTreeMap<&'static str, String>,
    versions: &[&str],
) -> Result<String> {
    let catalog = samples::catalog(versions, |version| {
        bundles.get(version).cloned().unwrap_or_default()
    });
    let name = format!("{package}-catalog:{}", versions.join("-"));
    stage
        .lab
        .push_catalog(&name, &samples::renamed(package, &catalog))
        .await
}

/// The definition with another version, in which objects are stored.
fn with_second_version(text: &str) -> String {
    let second = "    - name: v2\n      served: true\n      storage: true\n      schema:\n        openAPIV3Schema:\n          \
                  type: object\n          x-kubernetes-preserve-unknown-fields: true\n";
    format!(
        "{}\n{second}",
        text.trim_end().replace("storage: true", "storage: false")
    )
}

#[test]
fn an_older_definition_replaces_no_newer_one_of_another_namespace() -> Result<()> {
    CLUSTER.with(async |stage| {
        let change = |version: &str, text: String| {
            Ok(if version == "1.0.1" {
                with_second_version(&text)
            } else {
                text
            })
        };
        let bundles = push_changed(stage, "crossed", &["1.0.0", "1.0.1"], change).await?;
        let older = push_catalog(stage, "crossed", &bundles, &["1.0.0"]).await?;
        let newer = push_catalog(stage, "crossed", &bundles, &["1.0.1"]).await?;
        let both = push_catalog(stage, "crossed", &bundles, &["1.0.0", "1.0.1"]).await?;
        let subscribe = |namespace: &str, image: &str| -> Result<()> {
            stage.group(namespace, json!({"targetNamespaces": [namespace]}))?;
            stage.lab.apply(&[
                catalog_source(namespace, image),
                subscription(namespace, &json!({"name": "crossed"})),
            ])
        };
        let version =
            |namespace: &str| named(V1ALPHA1, "ClusterServiceVersion", namespace, "crossed.v1.0.1");
        let succeeds = |found: &Value| found["status"]["phase"] == "Succeeded";
        subscribe("crossed-new", &newer)?;
        let before = stage
            .becomes("the newer one is installed", &version("crossed-new"), succeeds)
            .await?;
        let definition = named(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "",
            "greetings.crossed.olm.example",
        );
        let stored = stage.get(&definition).await?.context("no definition")?;
        ensure!(stored["status"]["storedVersions"] == json!(["v2"]), "{stored}");

        subscribe("crossed-old", &older)?;
        let failed = stage.phase("crossed-old", "Failed").await?;
        let why = "risk of data loss updating \"greetings.crossed.olm.example\": new CRD removes version v2 that is listed \
                   as a stored version on the existing CRD";
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        ensure!(message == why, "{message}");
        stage
            .says("crossed-old", "InstallPlanFailed", "True", "InstallComponentFailed")
            .await?;
        let now = stage.get(&definition).await?.context("no definition")?;
        ensure!(now["spec"] == stored["spec"], "{now}");
        let untouched = stage.get(&version("crossed-new")).await?.context("it is gone")?;
        for pointer in ["/metadata/generation", "/status/phase", "/status/lastTransitionTime"] {
            ensure!(untouched.pointer(pointer) == before.pointer(pointer), "{untouched}");
        }

        // A version that fits is installed beside the other.
        stage.lab.apply(&[catalog_source("crossed-old", &both)])?;
        for namespace in ["crossed-old", "crossed-new"] {
            stage
                .becomes("both are installed", &version(namespace), succeeds)
                .await?;
        }
        let object = subscription("crossed-old", &json!({}));
        let is_well = |found: &Value| {
            found["status"]["state"] == "AtLatestKnown"
                && crate::stage::condition(found, "InstallPlanFailed").is_none()
        };
        stage.becomes("the failure is forgotten", &object, is_well).await?;
        Ok(())
    })
}

/// Installs a version of a package, and offers one whose definition has lost a field to a Subscription with more fields
/// in its spec.
async fn lose_a_field(stage: &Stage, package: &str, more: &Value) -> Result<()> {
    let change = |version: &str, text: String| {
        let field = "                operatorVersion:\n                  type: string\n";
        ensure!(text.contains(field), "{text}");
        Ok(if version == "1.0.1" {
            text.replace(field, "")
        } else {
            text
        })
    };
    let bundles = push_changed(stage, package, &["1.0.0", "1.0.1"], change).await?;
    let image = push_catalog(stage, package, &bundles, &["1.0.0"]).await?;
    stage.group(package, json!({}))?;
    stage.lab.apply(&[catalog_source(package, &image)])?;
    stage.subscribe(package, &json!({}))?;
    stage.installs(package, "1.0.0").await?;
    stage.subscribe(package, more)?;
    let image = push_catalog(stage, package, &bundles, &["1.0.0", "1.0.1"]).await?;
    stage.lab.apply(&[catalog_source(package, &image)])
}

/// The events about the lost field of the plan of a namespace.
async fn told(stage: &Stage, plan: &Value) -> Result<usize> {
    let namespace = plan["metadata"]["namespace"].as_str().unwrap_or_default();
    let events = stage.list(&named("v1", "Event", namespace, "")).await?;
    let is_it = |event: &&Value| {
        let note = event["message"].as_str().unwrap_or_default();
        event["reason"] == "CRDUpgradeFindings"
            && event["involvedObject"]["name"] == plan["metadata"]["name"]
            && note.contains("existingFieldRemoval: removed field : v1.^.status.operatorVersion")
    };
    let counts = events.iter().filter(is_it);
    let counts = counts.map(|event| event["count"].as_u64().unwrap_or(1).max(1));
    Ok(usize::try_from(counts.sum::<u64>())?)
}

#[test]
fn a_crd_that_loses_a_field_is_installed_with_a_warning() -> Result<()> {
    CLUSTER.with(async |stage| {
        lose_a_field(stage, "losing", &json!({})).await?;
        stage.installs("losing", "1.0.1").await?;
        let plan = stage.phase("losing", "Complete").await?;
        eventually("an event names the field", SOON, async || {
            Ok((told(stage, &plan).await? == 1).then_some(()))
        })
        .await
    })
}

#[test]
fn an_approver_sees_once_that_a_crd_loses_a_field() -> Result<()> {
    CLUSTER.with(async |stage| {
        lose_a_field(stage, "asking", &json!({"installPlanApproval": "Manual"})).await?;
        let object = subscription("asking", &json!({}));
        let moves = |found: &Value| found["status"]["currentCSV"] == "asking.v1.0.1";
        stage.becomes("the upgrade is planned", &object, moves).await?;
        let plan = stage.phase("asking", "RequiresApproval").await?;
        let key = "olm.operatorframework.io/crd-findings";
        let is_noted = |found: &Value| {
            let note = found["metadata"]["annotations"][key].as_str().unwrap_or_default();
            note.contains("greetings.asking.olm.example") && note.contains("existingFieldRemoval")
        };
        stage.becomes("the plan names the field", &plan, is_noted).await?;
        eventually("an event names it, too", SOON, async || {
            Ok((told(stage, &plan).await? == 1).then_some(()))
        })
        .await?;
        ensure!(plan["spec"]["approved"] == false, "{plan}");
        stage.patch(&plan, &json!({"spec": {"approved": true}})).await?;
        stage.installs("asking", "1.0.1").await?;
        stage.phase("asking", "Complete").await?;
        ensure!(told(stage, &plan).await? == 1, "it is repeated");
        Ok(())
    })
}
