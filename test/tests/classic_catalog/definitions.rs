//! CustomResourceDefinitions that several bundles have.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_test::samples;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, Stage, V1ALPHA1, catalog_source, named, subscription};

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
