//! The memory of a deleted catalog is returned to the node.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::Duration;

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

/// The limit for the additional memory of a manager after the deletion, in bytes. The catalog needs more.
const LEFT: u64 = 20 << 20;
/// The time limit for unpacking and reading the catalog.
const LIMIT: Duration = Duration::from_mins(5);
/// Packages of the catalog.
const PACKAGES: usize = 4;
/// Bundles of each package.
const BUNDLES: usize = 19_500;

/// 78,000 bundles with names of their own, each with an entry in a channel.
fn blobs() -> String {
    let mut text = String::new();
    for number in 0..PACKAGES {
        let package = format!("voluminous-{number}");
        let entries: Vec<String> = (0..BUNDLES)
            .map(|patch| format!(r#"{{"name":"{package}.v1.0.{patch}"}}"#))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            r#"{{"schema":"olm.package","name":"{package}","defaultChannel":"stable"}}
{{"schema":"olm.channel","package":"{package}","name":"stable","entries":[{}]}}"#,
            entries.join(",")
        );
        for patch in 0..BUNDLES {
            let _ = writeln!(
                text,
                r#"{{"schema":"olm.bundle","package":"{package}","name":"{package}.v1.0.{patch}","image":"registry.invalid/b:v1","properties":[{{"type":"olm.package","value":{{"packageName":"{package}","version":"1.0.{patch}"}}}}]}}"#
            );
        }
    }
    text
}

/// The anonymous memory of both managers, in bytes.
fn held(world: &World) -> Result<[u64; 2]> {
    let of = |pid: Option<u32>| process::anonymous(pid.context("a manager does not run")?);
    Ok([of(world.catalogd.pid())?, of(world.operator_controller.pid())?])
}

#[test]
fn memory_that_a_catalog_took_goes_back_after_its_deletion() -> Result<()> {
    WORLD.alone(async |world| {
        let world = &*world;
        let before = held(world)?;
        let most = Cell::new(before);
        let look = || {
            let ([first, second], now) = (most.get(), held(world)?);
            most.set([first.max(now[0]), second.max(now[1])]);
            anyhow::Ok(())
        };
        let reference = world.push_catalog("voluminous:latest", &blobs()).await?;
        world.apply(&[catalog("voluminous", &reference)])?;
        let catalogs: Api<ClusterCatalog> = Api::all(world.client.clone());
        world
            .eventually("the catalog is served", LIMIT, async || {
                look()?;
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
                .eventually("the package is read", LIMIT, async || {
                    look()?;
                    let found = extensions(world).get(&name).await?;
                    Ok(conditions::find(found.conditions(), PROGRESSING).map(drop))
                })
                .await?;
        }
        let took = most.get();
        ensure!(
            took.iter()
                .zip(before)
                .all(|(most, before)| *most > before + LEFT),
            "{took:?} bytes are no more than the {before:?} before, which shows nothing"
        );
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
                ensure!(
                    is_back,
                    "{before:?} bytes before, {took:?} at most, {after:?} after"
                );
                Ok(Some(()))
            })
            .await
    })
}
