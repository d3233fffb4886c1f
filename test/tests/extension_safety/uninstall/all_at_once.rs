//! A namespace, an account, its rights and the extension, deleted by one command.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use olm_api::conditions::reason;
use olm_api::names::user;
use olm_test::extensions::{SOON, await_progressing, extensions, revisions};
use olm_test::world::World;
use serde_json::json;

use crate::{CLUSTER, annotate, await_event, definition, file, greeting, install};

/// The time limit.
const LONGEST: Duration = Duration::from_mins(2);

/// Deletes all that the file has by one command; `kubectl` would wait for all of it.
fn delete(world: &World, path: &str) -> Result<Instant> {
    let begun = Instant::now();
    world.kubectl(&["delete", "-f", path, "--wait=false"])?;
    Ok(begun)
}

/// Waits until neither the extension nor its revision nor the namespace is there.
async fn await_end(world: &World, name: &str, begun: Instant) -> Result<()> {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    world
        .eventually(&format!("nothing of {name} is there"), SOON, async || {
            let extension = extensions(world).get_opt(name).await?;
            ensure!(
                extension.is_none(),
                "{:?}",
                extension.and_then(|found| found.status)
            );
            ensure!(
                revisions(world).get_opt(&format!("{name}-1")).await?.is_none(),
                "the revision"
            );
            ensure!(namespaces.get_opt(name).await?.is_none(), "the namespace");
            Ok(Some(()))
        })
        .await?;
    let took = begun.elapsed();
    ensure!(took < LONGEST, "{name} took {took:?}");
    Ok(())
}

#[test]
fn a_namespace_with_account_and_extension_is_deleted_by_one_command() -> Result<()> {
    CLUSTER.with(async |world| {
        for name in ["all-at-once", "reversed", "all-but-crds"] {
            install(world, name, "1.0.0").await?;
            world.apply(&[greeting(name, "v1", "stored", json!({ "name": "x" }))])?;
        }
        annotate(world, "all-but-crds", user::UNINSTALL, Some("keep-crds")).await?;
        let path = file(world, "reversed", "1.0.0")?;
        let text = std::fs::read_to_string(&path)?;
        let documents: Vec<&str> = text.rsplit("\n---\n").collect();
        std::fs::write(&path, documents.join("\n---\n"))?;

        let reversed = delete(world, &path)?;
        let kept = delete(world, &file(world, "all-but-crds", "1.0.0")?)?;
        let all = delete(world, &file(world, "all-at-once", "1.0.0")?)?;
        // Meanwhile the status reports the treatment of the remaining objects.
        let expected = "garbage collection removes the rest";
        await_progressing(world, "all-at-once", reason::RETRYING, expected).await?;
        await_end(world, "all-at-once", all).await?;
        await_end(world, "all-but-crds", kept).await?;
        await_end(world, "reversed", reversed).await?;

        let expected = "The Kubernetes garbage collector removes";
        await_event(world, "all-at-once", "Uninstalled", expected).await?;
        await_event(
            world,
            "all-at-once",
            "Uninstalled",
            "greetings.all-at-once.olm.example",
        )
        .await?;
        await_event(world, "all-but-crds", "Uninstalled", " on the cluster").await?;
        world
            .eventually("the definitions are collected", SOON, async || {
                for name in ["all-at-once", "reversed"] {
                    ensure!(definition(world, name)?.is_none(), "{name}");
                }
                Ok(Some(()))
            })
            .await?;
        // Kept objects stay and have no owner.
        world
            .eventually("the kept definition has no owner", SOON, async || {
                let kept = definition(world, "all-but-crds")?.context("the definition")?;
                ensure!(kept.pointer("/metadata/deletionTimestamp").is_none(), "{kept}");
                Ok(kept.pointer("/metadata/ownerReferences").is_none().then_some(()))
            })
            .await?;
        world
            .kubectl(&["delete", "crd", "greetings.all-but-crds.olm.example"])
            .map(drop)
    })
}
