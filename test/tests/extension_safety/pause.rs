//! A pause ends when it is lifted, whatever other blockers exist.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, reason};
use olm_api::names::user;
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, installed_version, merge, patch_source, revisions,
};
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, install};

/// Pauses the extension and deletes the Deployment, which is not restored.
async fn damaged(world: &World) -> Result<()> {
    merge(world, "resumed", annotations(&json!({ user::PAUSED: "true" }))).await?;
    await_progressing(world, "resumed", reason::BLOCKED, "paused by the annotation").await?;
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "resumed");
    world
        .eventually("the revision reports what it does not repair", SOON, async || {
            let present = deployments.get_opt("resumed-operator").await?;
            if present.is_some_and(|found| found.metadata.deletion_timestamp.is_none()) {
                let params = DeleteParams::default();
                deployments.delete("resumed-operator", &params).await?;
            }
            let set = revisions(world).get("resumed-1").await?;
            let progressing = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = progressing
                .map(|found| found.message.as_str())
                .unwrap_or_default();
            ensure!(
                message.contains("to be applied: ") && message.contains("resumed-operator"),
                "{message}"
            );
            Ok(Some(()))
        })
        .await
}

async fn repaired(world: &World) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "resumed");
    world
        .eventually("the Deployment is back", SOON, async || {
            let set = revisions(world).get("resumed-1").await?;
            ensure!(
                set.annotation(user::PAUSED).is_none(),
                "the revision is still paused"
            );
            let present = deployments.get_opt("resumed-operator").await?;
            Ok(present
                .filter(|found| found.metadata.deletion_timestamp.is_none())
                .map(drop))
        })
        .await
}

fn annotations(annotations: &Value) -> Value {
    json!({ "metadata": { "annotations": annotations } })
}

#[test]
fn a_pause_that_is_lifted_ends_although_something_else_stands_in_the_way() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "resumed", "1.0.0").await?;

        // No catalog has the requested version.
        damaged(world).await?;
        patch_source(world, "resumed", json!({ "version": "9.9.9" })).await?;
        merge(world, "resumed", annotations(&json!({ user::PAUSED: null }))).await?;
        repaired(world).await?;
        let message = await_progressing(world, "resumed", reason::RETRYING, "9.9.9").await?;
        ensure!(
            installed_version(&extensions(world).get("resumed").await?) == Some("1.0.0"),
            "{message}"
        );

        // An option has an invalid value.
        damaged(world).await?;
        let change = json!({ user::PAUSED: null, user::ADOPT: "perhaps" });
        merge(world, "resumed", annotations(&change)).await?;
        repaired(world).await?;
        await_progressing(world, "resumed", reason::BLOCKED, user::ADOPT).await?;

        // The value of the pause is invalid: drift is still repaired.
        damaged_again_by_a_typing_error(world).await?;
        merge(
            world,
            "resumed",
            annotations(&json!({ user::PAUSED: null, user::ADOPT: null })),
        )
        .await?;
        patch_source(world, "resumed", json!({ "version": "1.0.0" })).await?;
        await_version(world, "resumed", "1.0.0").await.map(drop)
    })
}

async fn damaged_again_by_a_typing_error(world: &World) -> Result<()> {
    merge(world, "resumed", annotations(&json!({ user::ADOPT: null }))).await?;
    damaged(world).await?;
    merge(world, "resumed", annotations(&json!({ user::PAUSED: "yes" }))).await?;
    repaired(world).await?;
    await_progressing(world, "resumed", reason::BLOCKED, "it is not paused")
        .await
        .map(drop)
}
