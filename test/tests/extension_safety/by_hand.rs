//! Objects that an administrator creates by hand under the name of an extension.

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, reason};
use olm_api::names::{self, annotation, label};
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, extensions, patch_source, revisions,
};
use olm_test::samples;
use serde_json::json;

use super::{CLUSTER, definition, file};

#[test]
fn a_handmade_revision_and_an_unowned_crd_are_reported_and_replaced() -> Result<()> {
    CLUSTER.with(async |world| {
    world.apply(&administrator("handmade", "handmade-installer"))?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "handmade", "9.9.9")?])?;
    let uid = extensions(world)
        .get("handmade")
        .await?
        .metadata
        .uid
        .context("a UID")?;
    world.apply(&[json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {
            "name": "handmade-1",
            "labels": { label::OWNER_KIND: names::CLUSTER_EXTENSION, label::OWNER_NAME: "handmade" },
            "annotations": { annotation::SERVICE_ACCOUNT: "handmade/handmade-installer" },
            "ownerReferences": [{
                "apiVersion": names::API_VERSION, "kind": names::CLUSTER_EXTENSION, "name": "handmade", "uid": uid,
                "controller": true,
            }],
        },
        "spec": {
            "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent",
            "phases": [{ "name": "deploy", "objects": [{ "object": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "by-hand", "namespace": "handmade" },
            } }] }],
        },
    })])?;
    // The API server would refuse a status with its empty name, and no status would be written again.
    world
        .eventually("a complete revision without a bundle is reported", SOON, async || {
            let extension = extensions(world).get("handmade").await?;
            let message = |kind| {
                let found = conditions::find(extension.conditions(), kind);
                found.map(|found| found.message.as_str()).unwrap_or_default()
            };
            let status = serde_json::to_string(&extension.status)?;
            ensure!(
                message(conditions::INSTALLED) == "No bundle installed"
                    && message(conditions::READY).contains("handmade-1 is complete, but its annotations "),
                "{status}"
            );
            ensure!(!conditions::is_true(
                extension.conditions(),
                conditions::INSTALLED
            ));
            Ok(Some(()))
        })
        .await?;

    // A first installation also compares existing definitions.
    let files = samples::bundle("1.1.0", samples::OPERATOR_IMAGE);
    let definition_file = files.iter().find(|(path, _)| path.ends_with("greetings.yaml"));
    let (_, content) = definition_file.context("the definition")?;
    let path = world.folder().join("handmade-definition.yaml");
    std::fs::write(&path, samples::renamed("handmade", &String::from_utf8_lossy(content)))?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    patch_source(world, "handmade", json!({ "version": "1.0.0" })).await?;
    let expected = "compared with the definition on the cluster, which has no controller (written by \
                kubectl): greetings.handmade.olm.example";
    let message = await_progressing(world, "handmade", reason::RETRYING, expected).await?;
    ensure!(
        message.contains("existingFieldRemoval: removed field"),
        "{message}"
    );
    world.kubectl(&["delete", "crd", "greetings.handmade.olm.example"])?;

    await_version(world, "handmade", "1.0.0").await?;
    ensure!(definition(world, "handmade")?.is_some());
    world
        .eventually("the next revision takes its place", SOON, async || {
            let set = revisions(world).get("handmade-1").await?;
            let condition = conditions::find(set.conditions(), conditions::PROGRESSING);
            ensure!(
                condition.is_some_and(|condition| condition.reason == reason::ARCHIVED),
                "{:?}",
                set.status
            );
            Ok(Some(()))
        })
        .await?;
    let left = world.kubectl(&["get", "configmap", "by-hand", "-n", "handmade", "--ignore-not-found"])?;
    ensure!(left.trim().is_empty(), "{left}");
    Ok(())
    })
}
