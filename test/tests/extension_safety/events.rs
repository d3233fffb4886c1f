//! The events of a lifecycle without faults.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use olm_test::extensions::{await_gone, await_version, extensions, patch_source, rollback};
use serde_json::json;

use super::{CLUSTER, await_event, events_of, install};

#[test]
fn an_uneventful_life_emits_no_warnings() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "uneventful", "1.0.0").await?;
        patch_source(world, "uneventful", json!({ "version": "1.0.1" })).await?;
        await_version(world, "uneventful", "1.0.1").await?;
        let (done, text) = rollback(world, "uneventful", &[])?;
        ensure!(done, "{text}");
        await_version(world, "uneventful", "1.0.0").await?;
        extensions(world)
            .delete("uneventful", &DeleteParams::default())
            .await?;
        await_gone(world, "uneventful").await?;
        for (reason, note) in [
            ("Installed", "Installed uneventful.v1.0.0 1.0.0"),
            ("Upgrading", "the revision of 1.0.1 adds "),
            (
                "Upgraded",
                "Replaced uneventful.v1.0.0 1.0.0 by uneventful.v1.0.1 1.0.1",
            ),
            ("Downgrading", "the revision of 1.0.0 adds "),
            (
                "Downgraded",
                "Replaced uneventful.v1.0.1 1.0.1 by uneventful.v1.0.0 1.0.0",
            ),
            (
                "Uninstalling",
                "uninstalling deletes 1 custom resource definition with all custom resources: ",
            ),
            ("Uninstalled", "Removed all objects"),
        ] {
            await_event(world, "uneventful", reason, note).await?;
        }
        let events = events_of(world, "uneventful")?;
        let known = [
            "Installed",
            "Warned",
            "UpdateAvailable",
            "Upgrading",
            "Upgraded",
            "Downgrading",
            "Downgraded",
            "Uninstalling",
            "Uninstalled",
        ];
        // A machine with much else to do is slow to answer, which is tried again.
        let others: BTreeSet<&String> = events
            .iter()
            .filter(|event| {
                let is_known = |reason: &&str| event.starts_with(&format!("Normal {reason} "));
                !known.iter().any(is_known) && !event.starts_with("Warning Retrying ")
            })
            .collect();
        ensure!(others.is_empty(), "{others:#?}");
        Ok(())
    })
}
