//! Going back, and what the API server refuses on the way.

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, reason};
use olm_api::names::user;
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, extensions, installed_version, merge,
    patch_source, revisions, rollback,
};
use olm_test::world::World;
use serde_json::{Value, json};

use super::{annotate, install};

/// What the operator reads.
pub(crate) fn settings() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tin-settings" },
        "data": { "greeting": "hello" },
    })
}

/// From 1.0.1 on nobody may change it any more.
pub(crate) fn tin(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text.replace(
            r#""data":{"greeting":"hello"}"#,
            r#""data":{"greeting":"hi"},"immutable":true"#,
        ),
        _ => text,
    }
}

const MAP: [&str; 4] = ["configmap", "tin-settings", "-n", "tin"];

fn greeting(world: &World) -> Result<String> {
    world.kubectl(&[&["get"], &MAP[..], &["-o", "jsonpath={.data.greeting}"]].concat())
}

/// Pins 1.0.0 whatever the API server says, and waits until the condition explains why nothing happens. Gives the patch that
/// lifts the pin.
async fn pinned(world: &World) -> Result<Value> {
    let (done, text) = rollback(world, "tin", &["--accept-refusal"])?;
    ensure!(done, "{text}");
    let refused = "refuses objects of this revision (dry run); nothing is applied";
    let message = await_progressing(world, "tin", reason::RETRYING, refused).await?;
    let anew = format!(
        "set the annotation {} to \"true\", delete the object",
        user::PAUSED
    );
    for part in ["Kind=ConfigMap tin/tin-settings: ", "field is immutable", &anew] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    let (_, lift) = text
        .split_once("--type merge -p '")
        .context("how the pin is lifted")?;
    Ok(serde_json::from_str(lift.split('\'').next().unwrap_or_default())?)
}

pub(crate) async fn a_field_that_never_changes_stops_a_rollback_before_and_after_it_is_pinned(
    world: &World,
) -> Result<()> {
    world.apply(&administrator("tin", "tin-installer"))?;
    install(world, "tin", "1.0.0").await?;
    patch_source(world, "tin", json!({ "version": "1.0.1" })).await?;
    let before = await_version(world, "tin", "1.0.1").await?;

    let (done, text) = rollback(world, "tin", &[])?;
    for part in [
        "the API server refuses ConfigMap tin/tin-settings: ",
        "field is immutable",
        "refused: the API server does not take objects of that version",
        "--accept-refusal",
    ] {
        ensure!(!done && text.contains(part), "{part:?} is not in {text}");
    }
    ensure!(extensions(world).get("tin").await?.spec == before.spec);

    let lift = pinned(world).await?;
    let held = extensions(world).get("tin").await?;
    ensure!(installed_version(&held) == Some("1.0.1"));
    ensure!(conditions::is_true(held.conditions(), conditions::INSTALLED));
    ensure!(
        revisions(world).get_opt("tin-3").await?.is_none(),
        "nothing is half done"
    );
    ensure!(greeting(world)? == "hi");
    merge(world, "tin", lift).await?;
    let after = await_version(world, "tin", "1.0.1").await?;
    ensure!(after.spec == before.spec);

    // The other way out, as the condition says.
    pinned(world).await?;
    annotate(world, "tin", user::PAUSED, Some("true")).await?;
    let paused = "paused by the annotation";
    await_progressing(world, "tin", reason::BLOCKED, paused).await?;
    world
        .eventually("the object is gone and stays gone", SOON, async || {
            world.kubectl(&[&["delete", "--ignore-not-found"], &MAP[..]].concat())?;
            let set = revisions(world).get("tin-2").await?;
            let told = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = told.map(|told| told.message.as_str()).unwrap_or_default();
            ensure!(
                message.contains(paused) && message.contains("tin-settings"),
                "{message}"
            );
            Ok(Some(()))
        })
        .await?;
    annotate(world, "tin", user::PAUSED, None).await?;
    await_version(world, "tin", "1.0.0").await?;
    ensure!(greeting(world)? == "hello");
    Ok(())
}
