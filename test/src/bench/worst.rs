//! The memory that both managers take under catalogs that are made to take as much as they can.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, PROGRESSING, SERVING};
use olm_api::{ClusterCatalog, ClusterExtension};
use serde_json::{Value, json};

use super::{Figures, process};
use crate::extensions::{catalog, extensions};
use crate::world::{Manager, Options, World, eventually};

/// How long a catalog may take.
const LIMIT: Duration = Duration::from_mins(10);
/// How long after the deletion of a catalog memory is looked at.
const REST: Duration = Duration::from_secs(20);
/// Packages of the largest catalog that is let through, one for each worker.
const PACKAGES: usize = 8;
/// Bytes of a channel blob that is let through, and of a bundle's line.
const LINES: [usize; 2] = [2_000_000, 8_000_000];

/// A catalog, and the packages that extensions ask it for.
struct Attack {
    name: &'static str,
    what: &'static str,
    blobs: String,
    packages: Vec<String>,
}

/// Measures, and prints the figures.
///
/// # Errors
/// When something cannot be started, or does not come to its end in time.
pub async fn run() -> Result<()> {
    let mut figures = Figures::new(&process::machine()?);
    let world = World::start(Options::default()).await?;
    for attack in [properties(), entries(), largest()] {
        measure(&world, &attack, &mut figures).await?;
    }
    super::print(&figures)
}

/// A package, its channel with these entries, and a bundle with these properties.
fn package(out: &mut String, name: &str, entries: &str, properties: &str) -> Result<(), std::fmt::Error> {
    let package = json!({ "schema": "olm.package", "name": name, "defaultChannel": "stable" });
    writeln!(out, "{package}")?;
    writeln!(
        out,
        r#"{{"schema":"olm.channel","package":"{name}","name":"stable","entries":[{{"name":"{name}.v1.0.0"}}{entries}]}}"#
    )?;
    let own = json!({ "type": "olm.package", "value": { "packageName": name, "version": "1.0.0" } });
    writeln!(
        out,
        r#"{{"schema":"olm.bundle","package":"{name}","name":"{name}.v1.0.0","image":"registry.invalid/{name}:v1","properties":[{own}{properties}]}}"#
    )
}

/// 30 properties of 60 MB in all.
fn properties() -> Attack {
    let value = "x".repeat(2_000_000);
    let properties = format!(r#",{{"type":"unknown","value":"{value}"}}"#).repeat(30);
    let mut blobs = String::new();
    // Writing to a string does not fail.
    let _ = package(&mut blobs, "properties", "", &properties);
    Attack {
        name: "properties",
        what: "30 properties of 60 MB in all",
        blobs,
        packages: vec!["properties".to_owned()],
    }
}

/// Entries of a channel as short as they can be, up to this many bytes.
fn tiny_entries(bytes: usize) -> String {
    let mut entries = String::with_capacity(bytes);
    let mut number = 0;
    while entries.len() + 24 < bytes {
        // Writing to a string does not fail.
        let _ = write!(entries, r#",{{"name":"{number}"}}"#);
        number += 1;
    }
    entries
}

/// 197 MB of tiny channel entries.
fn entries() -> Attack {
    let mut blobs = String::new();
    let _ = package(&mut blobs, "entries", &tiny_entries(197_000_000), "");
    Attack {
        name: "entries",
        what: "197 MB of tiny channel entries",
        blobs,
        packages: vec!["entries".to_owned()],
    }
}

/// Packages whose lines are as long as they may be, and which take as much memory as they may.
fn largest() -> Attack {
    let [channel, bundle] = LINES;
    let entries = tiny_entries(channel);
    let api = json!({ "type": "olm.gvk", "value": { "group": "g.example", "version": "v1", "kind": "K" } });
    let described = json!({ "type": "olm.csv.metadata", "value": { "description": "x".repeat(bundle) } });
    let properties = format!(",{described}{}", format!(",{api}").repeat(1000));
    let mut blobs = String::new();
    let packages: Vec<String> = (0..PACKAGES).map(|number| format!("largest-{number}")).collect();
    for name in &packages {
        let _ = package(&mut blobs, name, &entries, &properties);
    }
    Attack {
        name: "largest",
        what: "8 packages of 2 MB of tiny channel entries and 8 MB of a bundle each, which are let through",
        blobs,
        packages,
    }
}

async fn measure(world: &World, attack: &Attack, figures: &mut Figures) -> Result<()> {
    let Attack {
        name,
        what,
        blobs,
        packages,
    } = attack;
    let managers: [(&str, &Manager); 2] = [
        ("catalogd", &world.catalogd),
        ("operator-controller", &world.operator_controller),
    ];
    let pid = |manager: &Manager| manager.pid().context("a manager does not run");
    let reference = world.push_catalog(&format!("{name}:latest"), blobs).await?;
    for (_, manager) in managers {
        process::forget_peak(pid(manager)?)?;
    }
    let begin = Instant::now();
    world.apply(&[catalog(name, &reference)])?;
    let catalogs = Api::<ClusterCatalog>::all(world.client.clone());
    let answer = eventually("catalogd has looked at the catalog", LIMIT, async || {
        let catalog = catalogs.get(name).await?;
        let serving = conditions::is_true(catalog.conditions(), SERVING);
        let progressing = conditions::find(catalog.conditions(), PROGRESSING);
        let refused = progressing.filter(|found| !serving && found.message.len() > 40);
        Ok(match refused {
            Some(refused) => Some(refused.message.clone()),
            None => serving.then(|| "served".to_owned()),
        })
    })
    .await?;
    figures.add(&format!("{what}: catalogd"), &cell(&answer));
    let wanted: Vec<Value> = packages.iter().map(|package| wanted(package, name)).collect();
    world.apply(&wanted)?;
    let mut said = String::new();
    for package in packages {
        said = eventually(
            "operator-controller has looked at the package",
            LIMIT,
            async || {
                let extension: ClusterExtension = extensions(world).get(package).await?;
                let progressing = conditions::find(extension.conditions(), PROGRESSING);
                Ok(progressing.map(|found| found.message.clone()))
            },
        )
        .await?;
    }
    // What it does at first it does again.
    tokio::time::sleep(REST).await;
    figures.add(&format!("{what}: operator-controller"), &cell(&said));
    figures.add(
        &format!("{what}: took"),
        &format!("{:.0} s", begin.elapsed().as_secs_f64()),
    );
    for (manager, process) in managers {
        let peak = process::mebibytes(process::peak(pid(process)?)?);
        figures.add(&format!("{what}: peak memory of {manager}"), &peak);
    }
    for package in packages {
        extensions(world)
            .delete(package, &DeleteParams::default())
            .await?;
    }
    super::unpack::remove(world, name).await?;
    tokio::time::sleep(REST).await;
    for (manager, process) in managers {
        let rest = process::mebibytes(process::resident(pid(process)?)?);
        figures.add(
            &format!(
                "{what}: memory of {manager} {} s after its deletion",
                REST.as_secs()
            ),
            &rest,
        );
    }
    Ok(())
}

/// An extension without an account: whoever may write one may have a package read.
fn wanted(package: &str, catalog: &str) -> Value {
    let selector = json!({ "matchLabels": { olm_api::names::label::METADATA_NAME: catalog } });
    json!({
        "apiVersion": olm_api::names::API_VERSION,
        "kind": olm_api::names::CLUSTER_EXTENSION,
        "metadata": { "name": package },
        "spec": {
            "namespace": package,
            "source": {
                "sourceType": "Catalog",
                "catalog": { "packageName": package, "selector": selector },
            },
        },
    })
}

/// The beginning of a message, as a cell of a table.
fn cell(message: &str) -> String {
    let short: String = message.chars().take(200).collect();
    short.replace(['\n', '|'], " ")
}
