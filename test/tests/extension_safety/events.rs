//! What events tell of a life in which nothing goes wrong.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use olm_test::extensions::{await_gone, await_version, extensions, patch_source, rollback};
use olm_test::world::World;
use serde_json::json;

use super::{await_event, events_of, install};

pub(crate) async fn a_life_without_trouble_is_told_without_warnings(world: &World) -> Result<()> {
    world.kubectl(&[
        "wait",
        "--for=condition=Serving",
        "--timeout=120s",
        "clustercatalog/samples",
    ])?;
    install(world, "lid", "1.0.0").await?;
    patch_source(world, "lid", json!({ "version": "1.0.1" })).await?;
    await_version(world, "lid", "1.0.1").await?;
    let (done, text) = rollback(world, "lid", &[])?;
    ensure!(done, "{text}");
    await_version(world, "lid", "1.0.0").await?;
    extensions(world).delete("lid", &DeleteParams::default()).await?;
    await_gone(world, "lid").await?;
    for (reason, note) in [
        ("Installed", "Installed lid.v1.0.0 1.0.0"),
        ("Upgrading", "the revision of 1.0.1 adds "),
        ("Upgraded", "Replaced lid.v1.0.0 1.0.0 by lid.v1.0.1 1.0.1"),
        ("Downgrading", "the revision of 1.0.0 adds "),
        ("Downgraded", "Replaced lid.v1.0.1 1.0.1 by lid.v1.0.0 1.0.0"),
        (
            "Uninstalling",
            "uninstalling deletes 1 custom resource definition(s)",
        ),
        ("Uninstalled", "Removed all objects"),
    ] {
        await_event(world, "lid", reason, note).await?;
    }
    let told = events_of(world, "lid")?;
    let known = [
        "Installed",
        "Warned",
        "Upgrading",
        "Upgraded",
        "Downgrading",
        "Downgraded",
        "Uninstalling",
        "Uninstalled",
    ];
    // A machine with much else to do is slow to answer, which is tried again.
    let others: BTreeSet<&String> = told
        .iter()
        .filter(|event| {
            let is_known = |reason: &&str| event.starts_with(&format!("Normal {reason} "));
            !known.iter().any(is_known) && !event.starts_with("Warning Retrying ")
        })
        .collect();
    ensure!(others.is_empty(), "{others:#?}");
    Ok(())
}
