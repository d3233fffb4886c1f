//! A catalog that tries to take over the extensions of another one.

use anyhow::{Result, ensure};
use kube::Api;
use olm_api::names::{annotation, label, user};
use olm_api::{ClusterCatalog, ClusterObjectSet, conditions};
use olm_test::extensions::{
    administrator, await_progressing, await_version, catalog, extensions, installed_version, patch_source,
    revisions,
};
use olm_test::samples;
use olm_test::world::World;
use serde_json::{Value, json};

use crate::SOON;
use crate::running::{WORLD, extension};

/// A catalog of one version of a package that follows every other version, and that wins by its priority.
async fn usurping(world: &World, name: &str, package: &str) -> Result<Value> {
    let files = samples::renamed_bundle(package, "9.0.0", samples::OPERATOR_IMAGE);
    let image = world
        .push_bundle(&format!("{name}-bundle:v9.0.0"), &files)
        .await?;
    let bundle = format!("{package}.v9.0.0");
    let blobs = [
        json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }),
        json!({
            "schema": "olm.channel", "package": package, "name": "stable",
            "entries": [{ "name": bundle, "skipRange": "<9.0.0" }],
        }),
        json!({
            "schema": "olm.bundle", "package": package, "name": bundle, "image": image,
            "properties": [{ "type": "olm.package", "value": { "packageName": package, "version": "9.0.0" } }],
        }),
    ];
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    let reference = world
        .push_catalog(&format!("{name}-catalog:latest"), &text)
        .await?;
    let mut catalog = catalog(name, &reference);
    catalog["spec"]["priority"] = json!(1000);
    Ok(catalog)
}

async fn await_served(world: &World, name: &str) -> Result<()> {
    let catalogs: Api<ClusterCatalog> = Api::all(world.client.clone());
    world
        .eventually(&format!("catalog {name} is served"), SOON, async || {
            let found = catalogs.get(name).await?;
            Ok(conditions::is_true(found.conditions(), conditions::SERVING).then_some(()))
        })
        .await
}

/// Publishes these versions in the catalog that has the package's name.
pub(crate) async fn publish(world: &World, package: &str, versions: &[&str]) -> Result<()> {
    let reference = world.publish(package, versions, samples::OPERATOR_IMAGE).await?;
    let mut catalog = catalog(package, &reference);
    catalog["metadata"]["annotations"] = json!({ user::POLL: versions.join(",") });
    world.apply(&[catalog])
}

async fn install(world: &World, package: &str) -> Result<()> {
    publish(world, package, &["1.0.0"]).await?;
    world.apply(&administrator(package, "installer"))?;
    world.apply(&[extension(package, package, Some("installer"))])?;
    await_version(world, package, "1.0.0").await.map(drop)
}

async fn newest(world: &World, package: &str) -> Result<ClusterObjectSet> {
    let mut sets = revisions(world)
        .list(&kube::api::ListParams::default())
        .await?
        .items;
    sets.retain(|set| set.label(label::OWNER_NAME) == Some(package));
    sets.sort_by_key(|set| set.spec.revision);
    sets.pop()
        .ok_or_else(|| anyhow::anyhow!("{package} has no revision"))
}

#[test]
fn a_catalog_with_the_highest_priority_takes_over_no_installed_extension() -> Result<()> {
    WORLD.with(async |world| {
        install(world, "prize").await?;
        let from = newest(world, "prize").await?;
        ensure!(
            from.annotation(annotation::CATALOG) == Some("prize"),
            "{:?}",
            from.metadata
        );
        world.apply(&[usurping(world, "usurping", "prize").await?])?;
        await_served(world, "usurping").await?;
        // An upgrade of its own catalog shows that it was chosen for after that.
        publish(world, "prize", &["1.0.0", "1.0.1"]).await?;
        await_version(world, "prize", "1.0.1").await?;
        let sets = world.kubectl(&["get", "clusterobjectsets", "-o", "name"])?;
        ensure!(
            !sets.contains("prize-3"),
            "more than the upgrade was made: {sets}"
        );
        // The selector in the spec decides.
        let both = json!({ "selector": { "matchExpressions": [
            { "key": label::METADATA_NAME, "operator": "In", "values": ["prize", "usurping"] },
        ] } });
        patch_source(world, "prize", both).await?;
        await_version(world, "prize", "9.0.0").await?;
        let from = newest(world, "prize").await?;
        ensure!(
            from.annotation(annotation::CATALOG) == Some("usurping"),
            "{:?}",
            from.metadata
        );
        world.kubectl(&["delete", "clustercatalog", "usurping"]).map(drop)
    })
}

#[test]
fn an_extension_of_an_earlier_version_stays_with_the_catalog_that_lists_its_bundle() -> Result<()> {
    WORLD.with(async |world| {
        install(world, "heirloom").await?;
        world.apply(&[usurping(world, "newcomer", "heirloom").await?])?;
        await_served(world, "newcomer").await?;
        let set = newest(world, "heirloom").await?;
        let mark = format!("{}-", annotation::CATALOG);
        world.kubectl(&["annotate", "clusterobjectset", set.name(), &mark])?;
        world
            .eventually("the catalog is recorded again", SOON, async || {
                let set = newest(world, "heirloom").await?;
                ensure!(set.spec.revision == 1, "{:?}", set.metadata);
                Ok((set.annotation(annotation::CATALOG) == Some("heirloom")).then_some(()))
            })
            .await?;
        let found = extensions(world).get("heirloom").await?;
        ensure!(installed_version(&found) == Some("1.0.0"), "{:?}", found.status);
        world.kubectl(&["delete", "clustercatalog", "newcomer"]).map(drop)
    })
}

#[test]
fn a_catalog_that_does_not_answer_stops_no_upgrade_from_another_catalog() -> Result<()> {
    // First installations wait for it.
    WORLD.alone(async |world| {
        let world = &*world;
        install(world, "steady").await?;
        world.apply(&[catalog("unreachable", "registry.invalid/catalog:v1")])?;
        publish(world, "steady", &["1.0.0", "1.0.1"]).await?;
        await_version(world, "steady", "1.0.1").await?;
        let found = extensions(world).get("steady").await?;
        let ready = serde_json::to_string(&found.status)?;
        ensure!(
            !ready.contains("unreachable"),
            "a catalog that it does not use is reported: {ready}"
        );
        world.kubectl(&["delete", "clustercatalog", "unreachable", "steady"])?;
        let part = "no upgrades: catalog \"steady\", which the extension was installed from, does not exist";
        await_progressing(world, "steady", "Succeeded", part)
            .await
            .map(drop)
    })
}
