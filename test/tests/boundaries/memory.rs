//! Memory that a catalog took goes back to the node with it.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::ClusterCatalog;
use olm_api::conditions::{self, PROGRESSING, SERVING};
use olm_api::names::label;
use olm_test::bench::process;
use olm_test::extensions::{catalog, extensions};
use olm_test::world::World;

use crate::SOON;
use crate::running::{WORLD, extension};

/// How much more than before a manager may hold after the deletion, in bytes.
const LEFT: u64 = 20 << 20;
/// Packages of the catalog.
const PACKAGES: usize = 6;

/// Blobs that take a hundred times their text while they are read.
fn blobs() -> String {
    let objects = vec![r#"{"":0}"#; 45_000].join(",");
    let properties = ",{}".repeat(45_000);
    let mut text = String::new();
    for number in 0..PACKAGES {
        let name = format!("voluminous-{number}");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            r#"{{"schema":"olm.package","name":"{name}","defaultChannel":"stable"}}
{{"schema":"olm.channel","package":"{name}","name":"stable","entries":[{{"name":"{name}.v1.0.0"}}]}}
{{"schema":"olm.bundle","package":"{name}","name":"{name}.v1.0.0","image":"registry.invalid/b:v1","properties":[{{"type":"olm.package","value":{{"packageName":"{name}","version":"1.0.0"}}}}{properties}]}}
{{"schema":"custom","package":"{name}","objects":[{objects}]}}"#
        );
    }
    text
}

/// The memory that both managers hold beside that of files, in bytes.
fn held(world: &World) -> Result<[u64; 2]> {
    let of = |pid: Option<u32>| process::anonymous(pid.context("a manager does not run")?);
    Ok([of(world.catalogd.pid())?, of(world.operator_controller.pid())?])
}

#[test]
fn memory_that_a_catalog_took_goes_back_after_its_deletion() -> Result<()> {
    WORLD.alone(async |world| {
        let world = &*world;
        let before = held(world)?;
        let reference = world.push_catalog("voluminous:latest", &blobs()).await?;
        world.apply(&[catalog("voluminous", &reference)])?;
        let catalogs: Api<ClusterCatalog> = Api::all(world.client.clone());
        world
            .eventually("the catalog is served", SOON, async || {
                let found = catalogs.get("voluminous").await?;
                Ok(conditions::is_true(found.conditions(), SERVING).then_some(()))
            })
            .await?;
        for number in 0..PACKAGES {
            let name = format!("voluminous-{number}");
            let mut wanted = extension(&name, &name, None);
            wanted["spec"]["source"]["catalog"]["selector"] =
                serde_json::json!({ "matchLabels": { label::METADATA_NAME: "voluminous" } });
            world.apply(&[wanted])?;
            world
                .eventually("the package is read", SOON, async || {
                    let found = extensions(world).get(&name).await?;
                    Ok(conditions::find(found.conditions(), PROGRESSING).map(drop))
                })
                .await?;
        }
        for number in 0..PACKAGES {
            world.kubectl(&["delete", "clusterextension", &format!("voluminous-{number}")])?;
        }
        world.kubectl(&["delete", "clustercatalog", "voluminous"])?;
        world
            .eventually("memory is given back", SOON, async || {
                let after = held(world)?;
                let is_back = after
                    .iter()
                    .zip(before)
                    .all(|(after, before)| *after < before + LEFT);
                ensure!(is_back, "{before:?} bytes before, {after:?} after");
                Ok(Some(()))
            })
            .await
    })
}
