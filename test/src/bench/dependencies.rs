//! The search for the newest bundle among those that may follow the installed one and have all requirements met.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use olm_fbc::Blob;
use olm_resolve::{
    Availability, Catalog, ClusterPlatform, ClusterState, Dependents, Installed, Package, PackageAnswer,
    ReleaseField, Request, resolve, resolve_in,
};
use serde_json::json;

use super::Figures;

/// The number of bundles of the package.
const BUNDLES: usize = 5000;

/// Every version but the oldest requires one of three APIs, a package or a rule, none of which exists.
fn package() -> Result<Package> {
    let mut blobs = Vec::new();
    for number in 0..BUNDLES {
        let api = |option: usize| json!({"gvk": {"group": "example.com", "version": format!("v{}", number % 100), "kind": format!("K{option}")}});
        let range =
            json!({"package": {"packageName": format!("p{number}"), "versionRange": ">=1.0.0 <2.0.0"}});
        let rule = format!("properties.exists(p, p.type == 'certified' && p.value == {number})");
        let any = json!({"any": {"constraints": [api(0), api(1), api(2), range, {"cel": {"rule": rule}}]}});
        let mut properties = vec![
            json!({"type": "olm.package", "value": {"packageName": "p", "version": format!("1.0.{number}")}}),
        ];
        if number > 0 {
            properties.push(json!({"type": "olm.constraint", "value": any}));
        }
        let bundle = json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v1.0.{number}"), "image": "i",
            "properties": properties});
        blobs.push(Blob::from_json("olm.bundle", &bundle.to_string())?);
    }
    Ok(Package::new(blobs, ReleaseField::Counts)?)
}

/// Every version follows the one before it, in two channels.
fn linked() -> Result<Package> {
    let name = |number: usize| format!("p.v{}.{}.0", number / 100, number % 100);
    let mut blobs = Vec::new();
    for channel in ["stable", "candidate"] {
        let entry = |number: usize| {
            let before = number.checked_sub(1).map(name);
            let range = format!(">=0.1.0 <{}.{}.0", number / 100, number % 100);
            json!({"name": name(number), "replaces": before, "skipRange": range})
        };
        let entries: Vec<_> = (0..BUNDLES).map(entry).collect();
        let channel = json!({"schema": "olm.channel", "package": "p", "name": channel, "entries": entries});
        blobs.push(Blob::from_json("olm.channel", &channel.to_string())?);
    }
    for number in 0..BUNDLES {
        let version = format!("{}.{}.0", number / 100, number % 100);
        let properties = json!([{"type": "olm.package", "value": {"packageName": "p", "version": version}}]);
        let bundle = json!({"schema": "olm.bundle", "package": "p", "name": name(number), "image": "i",
            "properties": properties});
        blobs.push(Blob::from_json("olm.bundle", &bundle.to_string())?);
    }
    Ok(Package::new(blobs, ReleaseField::Counts)?)
}

/// Measures the search along edges from an installed bundle.
fn along_edges(figures: &mut Figures) -> Result<()> {
    let (package, labels) = (linked()?, BTreeMap::new());
    let request = Request {
        package: "p",
        version: Some(">=1.0.0, <49"),
        ..Request::default()
    };
    let installed = Installed {
        name: "p.v3.7.0",
        version: "3.7.0",
        release: None,
    };
    let catalog = of(&package, &labels);
    let search = || {
        let begin = Instant::now();
        let found = resolve(&[catalog], &request, Some(&installed));
        let took = begin.elapsed();
        found.map(|_| took)
    };
    let first = search()?;
    let best = (0..20)
        .filter_map(|_| search().ok())
        .min()
        .context("no search ended")?;
    figures.add(
        &format!("search over {BUNDLES} bundles along edges: first, then"),
        &format!("{}, {}", milliseconds(first), milliseconds(best)),
    );
    Ok(())
}

fn of<'a>(package: &'a Package, labels: &'a BTreeMap<String, String>) -> Catalog<'a> {
    Catalog {
        name: "c",
        priority: 0,
        labels,
        availability: Availability::Available,
        answer: PackageAnswer::Package(package),
    }
}

fn milliseconds(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

/// Measures the first search, in which the constraints are read, and the best of the following.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    along_edges(figures)?;
    let (package, labels, served) = (package()?, BTreeMap::new(), HashSet::new());
    let catalog = of(&package, &labels);
    let facts = ClusterState {
        others: &[],
        own: None,
        served: &served,
        platform: ClusterPlatform::default(),
        dependents: Dependents::Protected,
    };
    let request = Request {
        package: "p",
        ..Request::default()
    };
    let search = || {
        let begin = Instant::now();
        let found = resolve_in(&[catalog], &request, None, &facts);
        let took = begin.elapsed();
        found.map(|_| took)
    };
    let first = search()?;
    let best = (0..20)
        .filter_map(|_| search().ok())
        .min()
        .context("no search ended")?;
    figures.add(
        &format!("search over {BUNDLES} bundles with constraints: first, then"),
        &format!("{}, {}", milliseconds(first), milliseconds(best)),
    );
    Ok(())
}
