//! Upgrades along a channel.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use olm_test::samples;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, SOON, V1ALPHA1, catalog_source, condition, csv, named, subscription};

#[test]
fn a_newer_catalog_upgrades_what_is_installed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("rising", &["1.0.0"]).await?;
        stage.subscribe("rising", &json!({}))?;
        stage.installs("rising", "1.0.0").await?;
        let blobs = stage
            .lab
            .push_bundles("rising", &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let image = stage.lab.push_catalog("rising-catalog:second", &blobs).await?;
        stage.lab.apply(&[catalog_source("rising", &image)])?;
        let subscription = stage.installs("rising", "1.0.1").await?;
        ensure!(
            subscription["status"]["installPlanGeneration"] == 2,
            "{}",
            subscription["status"]
        );
        let newer = stage
            .becomes(
                "the newer version is installed",
                &csv("rising", "1.0.1"),
                |found| found["status"]["phase"] == "Succeeded",
            )
            .await?;
        ensure!(
            newer["spec"]["replaces"] == "rising.v1.0.0",
            "{}",
            newer["spec"]["replaces"]
        );
        stage.goes(&csv("rising", "1.0.0")).await
    })
}

#[test]
fn a_starting_version_is_installed_first_and_upgraded_then() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("pinned", &["1.0.1", "1.1.0"]).await?;
        let more = json!({"startingCSV": "pinned.v1.0.1", "installPlanApproval": "Manual"});
        stage.subscribe("pinned", &more)?;
        let first = stage.phase("pinned", "RequiresApproval").await?;
        ensure!(first["spec"]["clusterServiceVersionNames"] == json!(["pinned.v1.0.1"]));
        stage.patch(&first, &json!({"spec": {"approved": true}})).await?;
        let object = subscription("pinned", &json!({}));
        let moves = |found: &Value| {
            found["status"]["currentCSV"] == "pinned.v1.1.0"
                && found["status"]["installedCSV"] == "pinned.v1.0.1"
        };
        stage
            .becomes("the upgrade waits for its approval", &object, moves)
            .await?;
        let second = stage.phase("pinned", "RequiresApproval").await?;
        ensure!(second["spec"]["clusterServiceVersionNames"] == json!(["pinned.v1.1.0"]));
        Ok(())
    })
}

#[test]
fn another_channel_leads_to_its_head() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("moving", &["1.1.0", "2.0.0"]).await?;
        stage.subscribe("moving", &json!({}))?;
        stage.installs("moving", "1.1.0").await?;
        stage.subscribe("moving", &json!({"channel": "candidate"}))?;
        stage.installs("moving", "2.0.0").await?;
        Ok(())
    })
}

#[test]
fn a_version_that_is_passed_over_is_explained() -> Result<()> {
    CLUSTER.with(async |stage| {
        let files = |version: &str| samples::renamed_bundle("short", version, OPERATOR);
        let mut bundles = BTreeMap::new();
        for version in ["1.0.0", "1.0.1"] {
            let name = format!("short-bundle:v{version}");
            bundles.insert(version, stage.lab.push_bundle(&name, &files(version)).await?);
        }
        let catalog = samples::catalog(&["1.0.0", "1.0.1"], |version| bundles[version].clone());
        let needs = r#"{"type":"olm.gvk.required","value":{"group":"x.y","version":"v1","kind":"Memcached"}},{"type":"olm.package","value":{"packageName":"short","version":"1.0.1"}}"#;
        let catalog = samples::renamed("short", &catalog);
        let plain = r#"{"type":"olm.package","value":{"packageName":"short","version":"1.0.1"}}"#;
        ensure!(catalog.contains(plain), "{catalog}");
        let image = stage
            .lab
            .push_catalog("short-catalog:latest", &catalog.replace(plain, needs))
            .await?;
        stage.group("short", json!({}))?;
        stage.lab.apply(&[catalog_source("short", &image)])?;
        stage.subscribe("short", &json!({}))?;
        stage.installs("short", "1.0.0").await?;
        let why = stage.says("short", "UpgradeBlocked", "True", "DependencyUnsatisfied").await?;
        ensure!(
            why.starts_with("short.v1.0.1 is skipped: ") && why.contains("kind: Memcached"),
            "{why}"
        );
        Ok(())
    })
}

#[test]
fn a_package_that_left_the_catalog_stops_only_its_own_subscription() -> Result<()> {
    CLUSTER.with(async |stage| {
        let stale = stage.lab.push_bundles("stale", &["1.0.0"], OPERATOR).await?;
        let steady = stage.lab.push_bundles("steady", &["1.0.0"], OPERATOR).await?;
        let both = format!("{steady}{stale}");
        let image = stage.lab.push_catalog("steady-catalog:first", &both).await?;
        stage.group("steady", json!({}))?;
        stage.lab.apply(&[catalog_source("steady", &image)])?;
        let mut other = subscription("steady", &json!({"name": "stale"}));
        other["metadata"]["name"] = "stale".into();
        stage.lab.apply(std::slice::from_ref(&other))?;
        stage.subscribe("steady", &json!({}))?;
        stage.installs("steady", "1.0.0").await?;
        let is_installed = |found: &Value| found["status"]["installedCSV"] == "stale.v1.0.0";
        stage.becomes("both are installed", &other, is_installed).await?;

        let steady = stage
            .lab
            .push_bundles("steady", &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let image = stage.lab.push_catalog("steady-catalog:second", &steady).await?;
        stage.lab.apply(&[catalog_source("steady", &image)])?;
        stage.installs("steady", "1.0.1").await?;
        // While the version is replaced, the condition may be there for a moment.
        let is_well = |found: &Value| condition(found, "ResolutionFailed").is_none();
        let upgraded = subscription("steady", &json!({}));
        stage
            .becomes("the upgraded one is well", &upgraded, is_well)
            .await?;
        let is_refused = |found: &Value| {
            let failed = condition(found, "ResolutionFailed");
            failed
                .and_then(|failed| failed["message"].as_str())
                .is_some_and(|why| {
                    why.contains(
                        "no operators found in package stale in the catalog referenced by subscription stale",
                    )
                })
        };
        stage
            .becomes("the other one names the missing package", &other, is_refused)
            .await?;
        let installed = named(V1ALPHA1, "ClusterServiceVersion", "steady", "stale.v1.0.0");
        ensure!(stage.get(&installed).await?.is_some(), "the version is gone");
        eventually("an event names it", SOON, async || {
            let events = stage.list(&named("v1", "Event", "default", "")).await?;
            let is_it = |event: &Value| {
                let note = event["message"].as_str().unwrap_or_default();
                event["involvedObject"]["name"] == "steady"
                    && note.starts_with("Subscription stale is left out: ")
            };
            Ok(events.iter().any(is_it).then_some(()))
        })
        .await?;

        stage.goes(&csv("steady", "1.0.0")).await?;
        let image = stage
            .lab
            .push_catalog("steady-catalog:third", &format!("{steady}{stale}"))
            .await?;
        stage.lab.apply(&[catalog_source("steady", &image)])?;
        stage.becomes("the package is back", &other, is_well).await?;
        Ok(())
    })
}
