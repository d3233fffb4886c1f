//! The lives of catalogs.

use anyhow::Result;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::ClusterCatalog;
use olm_api::names::user;
use olm_test::extensions::{SOON, catalog};
use olm_test::world::World;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::watching::Which;
use super::{CLUSTER, oracle, watching};

const KIND: &str = "ClusterCatalog";

/// Pushes a catalog with one package, named like its tag.
async fn push(world: &World, name: &str, tag: &str) -> Result<String> {
    let blobs = format!("{}\n", json!({ "schema": "olm.package", "name": tag }));
    world.push_catalog(&format!("{name}:{tag}"), &blobs).await
}

/// The parts of a lifecycle of a catalog.
struct Life<'a> {
    world: &'a World,
    http: &'a reqwest::Client,
    name: &'a str,
}

impl Life<'_> {
    async fn change(&self, patch: Value) -> Result<()> {
        let catalogs = Api::<ClusterCatalog>::all(self.world.client.clone());
        catalogs
            .patch(self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    async fn change_image(&self, reference: &str) -> Result<()> {
        self.change(json!({ "spec": { "source": { "image": { "ref": reference } } } }))
            .await
    }

    async fn pause(&self, value: Option<&str>) -> Result<()> {
        self.change(json!({ "metadata": { "annotations": { user::PAUSED: value } } }))
            .await
    }

    async fn rest(&self, expected: &str) -> Result<()> {
        let Self { world, http, name } = self;
        let truth = async |object: &Value| oracle::catalog(world, http, object).await;
        world
            .eventually(&format!("{name} is {expected}"), SOON, async || {
                let found = watching::settled(&world.client, KIND, name, truth, expected).await;
                found.map(Some)
            })
            .await
            .map(drop)
    }
}

/// Runs a lifecycle of a catalog, and compares every write of its status with the served content.
fn lifecycle(name: &str, run: impl AsyncFnOnce(&Life<'_>) -> Result<()>) -> Result<()> {
    CLUSTER.with(async |world| {
        let authority = world.catalogd_authority().await?;
        let http = reqwest::Client::builder().tls_certs_only([authority]).build()?;
        let truth = async |object: &Value| oracle::catalog(world, &http, object).await;
        let (stop, stopped) = watch::channel(false);
        let following = watching::follow(&world.client, KIND, Which::Name(name), truth, stopped);
        let life = Life {
            world,
            http: &http,
            name,
        };
        let running = async {
            let done = run(&life).await;
            stop.send_replace(true);
            done
        };
        let (seen, done) = tokio::join!(following, running);
        let judged = watching::judge(&seen?);
        done?;
        judged
    })
}

#[test]
fn tools_are_right_about_a_catalog_that_changes_and_breaks() -> Result<()> {
    lifecycle("changing", async |life| {
        let first = push(life.world, life.name, "v1").await?;
        let second = push(life.world, life.name, "v2").await?;
        life.world.apply(&[catalog(life.name, &first)])?;
        life.rest("Current").await?;
        life.change_image(&second).await?;
        life.rest("Current").await?;
        let missing = second.replace(":v2", ":missing");
        life.change_image(&missing).await?;
        life.rest("InProgress").await?;
        life.change_image(&first).await?;
        life.rest("Current").await
    })
}

#[test]
fn tools_are_right_about_a_catalog_that_is_paused_switched_off_and_deleted() -> Result<()> {
    lifecycle("switched", async |life| {
        let first = push(life.world, life.name, "v1").await?;
        let second = push(life.world, life.name, "v2").await?;
        life.world.apply(&[catalog(life.name, &first)])?;
        life.rest("Current").await?;
        life.pause(Some("true")).await?;
        life.rest("Failed").await?;
        life.change_image(&second).await?;
        life.rest("Failed").await?;
        life.pause(None).await?;
        life.rest("Current").await?;
        life.change(json!({ "spec": { "availabilityMode": "Unavailable" } }))
            .await?;
        life.rest("Current").await?;
        life.change(json!({ "spec": { "availabilityMode": "Available" } }))
            .await?;
        life.rest("Current").await?;
        let catalogs = Api::<ClusterCatalog>::all(life.world.client.clone());
        catalogs.delete(life.name, &DeleteParams::default()).await?;
        life.world
            .eventually("the catalog is gone", SOON, async || {
                Ok(catalogs.get_opt(life.name).await?.is_none().then_some(()))
            })
            .await
    })
}
