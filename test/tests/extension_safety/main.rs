//! Unsafe changes, on real parts: refused and reported before any write, and possible if the user requests them. All
//! tests share one cluster; each has a separate package and namespace.

mod accounts;
mod by_hand;
mod causes;
mod content;
mod definitions;
mod events;
mod many;
mod migration;
mod order;
mod pause;
mod rights;
mod rollback;
mod stuck;
mod uninstall;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{SOON, await_version, catalog, merge};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// Publishes versions of the sample operator under another name, each file changed; gives the catalog's blobs.
async fn publish(
    world: &World,
    name: &str,
    versions: &[&str],
    change: impl Fn(&str, String) -> String,
) -> Result<String> {
    publish_with(world, name, versions, change, &[]).await
}

/// The same with more files.
async fn publish_with(
    world: &World,
    name: &str,
    versions: &[&str],
    change: impl Fn(&str, String) -> String,
    more: &[(&str, Value)],
) -> Result<String> {
    let mut images = BTreeMap::new();
    for version in versions {
        let mut files = samples::renamed_bundle(name, version, "sample-operator:v1");
        for content in files.values_mut() {
            *content = change(version, String::from_utf8_lossy(content).into_owned()).into_bytes();
        }
        for (path, object) in more {
            let text = change(version, object.to_string());
            files.insert((*path).to_owned(), text.into_bytes());
        }
        let image = world
            .push_bundle(&format!("{name}-bundle:v{version}"), &files)
            .await?;
        images.insert(*version, image);
    }
    let blobs = samples::catalog(versions, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    Ok(samples::renamed(name, &blobs))
}

/// The extension's file, with its namespace, account and rights.
fn file(world: &World, name: &str, version: &str) -> Result<String> {
    world.sample_file("manifests/samples/greeter.yaml", name, |text| {
        text.replace("1.0.x", version)
    })
}

/// The same without the extension.
fn account_file(world: &World, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(file(world, name, "1.0.0")?)?;
    let extension = text.rfind("---").context("the extension comes last")?;
    let path = world.folder().join(format!("{name}-account.yaml"));
    std::fs::write(&path, text.get(..extension).unwrap_or_default())?;
    Ok(path.display().to_string())
}

/// A custom resource of the operator in its namespace.
fn greeting(operator: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{operator}.olm.example/{version}"),
        "kind": "Greeting",
        "metadata": { "name": name, "namespace": operator },
        "spec": spec,
    })
}

/// Type, reason and note of each event of an extension.
fn events_of(world: &World, name: &str) -> Result<Vec<String>> {
    let selector = format!("involvedObject.name={name}");
    let lines = "jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\x00\"}{end}";
    let arguments = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector",
        &selector,
        "-o",
        lines,
    ];
    let text = world.kubectl(&arguments)?;
    let events = text.split('\0').filter(|event| !event.is_empty());
    Ok(events.map(str::to_owned).collect())
}

/// Waits for an event of an extension.
async fn await_event(world: &World, name: &str, reason: &str, part: &str) -> Result<()> {
    world
        .eventually(
            &format!("event {reason} of {name} with {part:?}"),
            SOON,
            async || {
                let found = events_of(world, name)?;
                let is_it = |event: &String| event.split(' ').nth(1) == Some(reason) && event.contains(part);
                let is_there = found.iter().any(is_it);
                ensure!(is_there, "there is {found:?}");
                Ok(Some(()))
            },
        )
        .await
}

async fn install(world: &World, name: &str, version: &str) -> Result<()> {
    world.kubectl(&["apply", "--server-side", "-f", &file(world, name, version)?])?;
    await_version(world, name, version).await.map(drop)
}

async fn annotate(world: &World, name: &str, key: &str, value: Option<&str>) -> Result<()> {
    merge(
        world,
        name,
        json!({ "metadata": { "annotations": { key: value } } }),
    )
    .await
}

fn definition(world: &World, name: &str) -> Result<Option<Value>> {
    let text = world.kubectl(&[
        "get",
        "crd",
        &format!("greetings.{name}.olm.example"),
        "-o",
        "json",
        "--ignore-not-found",
    ])?;
    Ok(if text.trim().is_empty() {
        None
    } else {
        Some(serde_json::from_str(&text)?)
    })
}

/// Both managers, with the packages of all tests in one catalog.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    let world = World::start(Options {
        operator_controller: migration::one_page_a_run(),
        ..Options::default()
    })
    .await?;
    let same = |_: &str, text: String| text;
    let mut blobs = String::new();
    for name in [
        "all-at-once",
        "all-but-crds",
        "deleted-revision",
        "handmade",
        "held-deletion",
        "lost-account",
        "resumed",
        "restored-account",
        "reversed",
        "traceless",
    ] {
        blobs.push_str(&publish(&world, name, &["1.0.0"], same).await?);
    }
    for name in ["lost-content", "one-grant", "uneventful"] {
        blobs.push_str(&publish(&world, name, &["1.0.0", "1.0.1"], same).await?);
    }
    let three = ["1.0.0", "1.0.1", "1.1.0"];
    let change = definitions::without_v1_or_with_a_required_field;
    blobs.push_str(&publish(&world, "breaking-crd", &three, change).await?);
    let change = definitions::with_another_selector_or_type;
    blobs.push_str(&publish(&world, "refused-objects", &three, change).await?);
    blobs.push_str(&publish(&world, "pod-causes", &["1.0.0"], causes::that_no_node_takes).await?);
    let change = definitions::without_v1_or_with_a_required_field;
    blobs.push_str(&publish(&world, "ordered", &three, change).await?);
    blobs.push_str(&publish(&world, "same-kind", &["1.0.0"], order::with_the_kind_of_another).await?);
    for name in ["stored-versions", "interrupted-migration"] {
        blobs.push_str(&publish(&world, name, &three, definitions::with_v2).await?);
    }
    blobs.push_str(&publish(&world, "unowned-crd", &["1.1.0"], definitions::with_v2).await?);
    let versions = ["1.0.0", "1.1.0", "2.0.0"];
    blobs.push_str(&publish(&world, "follow-up", &versions, stuck::with_node_selector).await?);
    let monitor = [("manifests/monitor.yaml", rights::monitor())];
    blobs.push_str(&publish_with(&world, "lost-rights", &["1.0.0"], same, &monitor).await?);
    let change = stuck::with_monitor_at_first;
    blobs.push_str(&publish_with(&world, "stuck-rollout", &["1.0.0", "2.0.0"], change, &monitor).await?);
    let two = ["1.0.0", "1.0.1"];
    let change = rollback::with_immutable_settings;
    let settings = [("manifests/settings.yaml", rollback::settings())];
    blobs.push_str(&publish_with(&world, "immutable-settings", &two, change, &settings).await?);
    let maps = many::maps();
    let maps: Vec<(&str, Value)> = maps
        .iter()
        .map(|(path, map)| (path.as_str(), map.clone()))
        .collect();
    blobs.push_str(&publish_with(&world, "many-objects", &two, same, &maps).await?);
    let reference = world.push_catalog("safety-catalog:latest", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let serving = [
        "wait",
        "--for=condition=Serving",
        "--timeout=120s",
        "clustercatalog/samples",
    ];
    world.kubectl(&serving)?;
    Ok(world)
}
