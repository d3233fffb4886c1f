//! A new request replaces a stuck rollout.

use anyhow::{Context as _, Result, ensure};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::reason;
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, merge, patch_source, revisions,
};
use serde_json::json;

use super::{CLUSTER, file, install};

/// Only the first version has an object of a kind that the cluster lacks.
pub(crate) fn with_monitor_at_first(version: &str, text: String) -> String {
    if version == "1.0.0" || !text.contains("\"ServiceMonitor\"") {
        return text;
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "instead-of-a-monitor"}});
    map.to_string()
}

#[test]
fn a_stuck_rollout_gives_way_to_another_configuration_channel_and_version() -> Result<()> {
    CLUSTER.with(async |world| {
        world.apply(&administrator("stuck-rollout", "stuck-rollout-installer"))?;
        world.kubectl(&[
            "apply",
            "--server-side",
            "-f",
            &file(world, "stuck-rollout", "1.0.0")?,
        ])?;
        let lacks = "the cluster has no kind ServiceMonitor";
        await_progressing(world, "stuck-rollout", reason::RETRYING, lacks).await?;
        let config = json!({ "configType": "Inline", "inline": { "watchNamespace": "stuck-rollout" } });
        merge(world, "stuck-rollout", json!({ "spec": { "config": config } })).await?;
        world
            .eventually("another configuration makes another revision", SOON, async || {
                Ok(revisions(world).get_opt("stuck-rollout-2").await?.map(drop))
            })
            .await?;
        let source = json!({ "channels": ["candidate"], "version": "2.0.0" });
        patch_source(world, "stuck-rollout", source).await?;
        await_version(world, "stuck-rollout", "2.0.0").await?;
        world
            .eventually("the stuck revisions are archived", SOON, async || {
                for name in ["stuck-rollout-1", "stuck-rollout-2"] {
                    let set = revisions(world).get_opt(name).await?.context(name)?;
                    ensure!(set.spec.lifecycle_state == LifecycleState::Archived, "{name}");
                }
                Ok(Some(()))
            })
            .await
    })
}

/// The second version runs nowhere until a node has its label.
pub(crate) fn with_node_selector(version: &str, text: String) -> String {
    if version == "1.1.0" {
        let place = "                serviceAccountName: ";
        return text.replace(
            place,
            &format!("                nodeSelector: {{follow-up: ready}}\n{place}"),
        );
    }
    text
}

/// If the next version is an update of the one that rolls out, the message does not suggest to force it.
#[test]
fn an_update_of_a_version_still_rolling_out_follows_by_itself() -> Result<()> {
    CLUSTER.with(async |world| {
    install(world, "follow-up", "1.0.0").await?;
    patch_source(world, "follow-up", json!({ "version": "1.1.0" })).await?;
    world
        .eventually("the second revision rolls out", SOON, async || {
            Ok(revisions(world).get_opt("follow-up-2").await?.map(drop))
        })
        .await?;
    let source = json!({ "channels": ["stable", "candidate"], "version": "2.0.0" });
    patch_source(world, "follow-up", source).await?;
    let expected = "follow-up.v1.1.0 is rolling out as follow-up-2. follow-up.v2.0.0 is an update of it and follows when follow-up.v1.1.0 is complete";
    let message = await_progressing(world, "follow-up", reason::RETRYING, expected).await?;
    ensure!(!message.contains("SelfCertified"), "{message}");
    world.kubectl(&["label", "nodes", "--all", "follow-up=ready"])?;
    await_version(world, "follow-up", "2.0.0").await.map(drop)
    })
}
