//! A rollout that cannot go on gives way to what is asked for next.

use anyhow::{Context as _, Result, ensure};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::reason;
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, merge, patch_source, revisions,
};
use olm_test::world::World;
use serde_json::json;

use super::{file, install};

/// Only the first version has an object of a kind that the cluster lacks.
pub(crate) fn vase(version: &str, text: String) -> String {
    if version == "1.0.0" || !text.contains("\"ServiceMonitor\"") {
        return text;
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vase-instead"}});
    map.to_string()
}

pub(crate) async fn a_stuck_rollout_gives_way_to_another_configuration_channel_and_version(
    world: &World,
) -> Result<()> {
    world.apply(&administrator("vase", "vase-installer"))?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "vase", "1.0.0")?])?;
    let lacks = "the cluster has no kind ServiceMonitor";
    await_progressing(world, "vase", reason::RETRYING, lacks).await?;
    let config = json!({ "configType": "Inline", "inline": { "watchNamespace": "vase" } });
    merge(world, "vase", json!({ "spec": { "config": config } })).await?;
    world
        .eventually("another configuration makes another revision", SOON, async || {
            Ok(revisions(world).get_opt("vase-2").await?.map(drop))
        })
        .await?;
    let source = json!({ "channels": ["candidate"], "version": "2.0.0" });
    patch_source(world, "vase", source).await?;
    await_version(world, "vase", "2.0.0").await?;
    world
        .eventually("the stuck revisions are archived", SOON, async || {
            for name in ["vase-1", "vase-2"] {
                let set = revisions(world).get_opt(name).await?.context(name)?;
                ensure!(set.spec.lifecycle_state == LifecycleState::Archived, "{name}");
            }
            Ok(Some(()))
        })
        .await
}

/// The second version runs nowhere until a node has its label.
pub(crate) fn tub(version: &str, text: String) -> String {
    if version == "1.1.0" {
        let place = "                serviceAccountName: ";
        return text.replace(
            place,
            &format!("                nodeSelector: {{tub: ready}}\n{place}"),
        );
    }
    text
}

/// Where the next version is an update of the one that rolls out, nobody is told to force it.
pub(crate) async fn what_is_an_update_of_what_rolls_out_follows_by_itself(world: &World) -> Result<()> {
    install(world, "tub", "1.0.0").await?;
    patch_source(world, "tub", json!({ "version": "1.1.0" })).await?;
    world
        .eventually("the second revision rolls out", SOON, async || {
            Ok(revisions(world).get_opt("tub-2").await?.map(drop))
        })
        .await?;
    let source = json!({ "channels": ["stable", "candidate"], "version": "2.0.0" });
    patch_source(world, "tub", source).await?;
    let told = "tub.v1.1.0 is on its way as tub-2, and tub.v2.0.0 is an update of it: that is tried once tub.v1.1.0 is complete";
    let message = await_progressing(world, "tub", reason::RETRYING, told).await?;
    ensure!(!message.contains("SelfCertified"), "{message}");
    world.kubectl(&["label", "nodes", "--all", "tub=ready"])?;
    await_version(world, "tub", "2.0.0").await.map(drop)
}
