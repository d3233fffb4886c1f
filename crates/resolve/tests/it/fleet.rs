//! The changes that another catalog would cause on clusters, from their records alone.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use olm_api::names::{CLUSTER_INVENTORY, INVENTORY_API_VERSION};
use olm_fbc::Blob;
use olm_resolve::cluster::fleet::{Change, ClusterRecord, KnownCatalog, Planner, RecordError};
use olm_resolve::{Package, ReleaseField};
use serde_json::{Value, json};

/// A package whose versions each replace the one before; the newest has further properties.
fn package(name: &str, versions: &[&str], properties: &[Value]) -> Package {
    let bundle = |version: &str| format!("{name}.v{version}");
    let entries = versions.iter().enumerate().map(|(number, version)| {
        let before = number.checked_sub(1).map(|before| bundle(versions[before]));
        json!({"name": bundle(version), "replaces": before})
    });
    let entries: Vec<Value> = entries.collect();
    let channel = json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": entries});
    let mut blobs = vec![channel];
    for version in versions {
        let mut all =
            vec![json!({"type": "olm.package", "value": {"packageName": name, "version": version}})];
        if versions.last() == Some(version) {
            all.extend_from_slice(properties);
        }
        blobs.push(json!({
            "schema": "olm.bundle", "package": name, "name": bundle(version), "image": "i", "properties": all,
        }));
    }
    let blobs = blobs.iter().map(|blob| {
        let schema = blob["schema"].as_str().unwrap();
        Blob::from_json(schema, &blob.to_string()).unwrap()
    });
    Package::new(blobs, ReleaseField::Counts).unwrap()
}

fn known(name: &str, packages: Vec<(&str, Package)>) -> KnownCatalog {
    let packages = packages.into_iter();
    KnownCatalog {
        name: name.to_owned(),
        packages: packages
            .map(|(name, package)| (name.to_owned(), package))
            .collect(),
    }
}

fn catalog(name: &str) -> Value {
    json!({"name": name, "labels": {"olm.operatorframework.io/metadata.name": name}})
}

/// An extension with its own name as the package, and an installed version from a catalog.
fn extension(name: &str, installed: Option<(&str, &str)>, spec: &Value) -> Value {
    let mut filter = json!({"packageName": name});
    for (key, value) in spec.as_object().into_iter().flatten() {
        filter[key] = value.clone();
    }
    let mut record = json!({"name": name, "catalog": filter});
    if let Some((version, catalog)) = installed {
        record["installed"] =
            json!({"name": format!("{name}.v{version}"), "version": version, "catalog": catalog});
    }
    record
}

fn record(catalogs: &[Value], extensions: &[Value]) -> ClusterRecord {
    let document = json!({
        "apiVersion": INVENTORY_API_VERSION, "kind": CLUSTER_INVENTORY, "cluster": "c", "kubernetes": "v1.36.0+x",
        "catalogs": catalogs, "extensions": extensions, "apis": {"v1": ["Pod"]},
    });
    ClusterRecord::read(document).unwrap()
}

/// Change, updates and hindrance of each extension.
fn planned(catalogs: &[KnownCatalog], record: &ClusterRecord) -> BTreeMap<String, (Change, String, String)> {
    let plan = Planner::new(catalogs).plan(record);
    let line = plan.extensions.into_iter().map(|extension| {
        let updates = extension.updates.iter().map(|step| step.bundle.version.as_str());
        let updates = updates.collect::<Vec<_>>().join(" ");
        let held = extension.held_back_by.unwrap_or_default().to_owned();
        (extension.extension, (extension.change, updates, held))
    });
    line.collect()
}

#[track_caller]
fn check(catalogs: &[KnownCatalog], record: &ClusterRecord, expected: &[(&str, Change, &str, &str)]) {
    let expected = expected.iter().map(|(name, change, updates, held)| {
        (
            (*name).to_owned(),
            (*change, (*updates).to_owned(), (*held).to_owned()),
        )
    });
    assert_eq!(planned(catalogs, record), expected.collect());
}

#[test]
fn an_extension_follows_its_catalog_step_by_step_as_far_as_it_may() {
    let versions = ["1.0.0", "1.1.0", "2.0.0"];
    let names = ["fresh", "free", "held", "kept", "newest"];
    let next = known(
        "next",
        names.map(|name| (name, package(name, &versions, &[]))).into(),
    );
    let there = Some(("1.0.0", "next"));
    let mut kept = extension("kept", there, &json!({}));
    kept["paused"] = json!(true);
    let extensions = [
        extension("fresh", None, &json!({})),
        extension("free", there, &json!({})),
        extension("held", there, &json!({"version": "1.x"})),
        kept,
        extension("newest", Some(("2.0.0", "next")), &json!({})),
        extension("vanished", there, &json!({})),
        extension("wrong", there, &json!({"version": "not a range"})),
    ];
    check(
        &[next],
        &record(&[catalog("next")], &extensions),
        &[
            ("fresh", Change::Install, "2.0.0", ""),
            ("free", Change::Update, "1.1.0 2.0.0", ""),
            ("held", Change::Update, "1.1.0", "Range"),
            ("kept", Change::Stay, "", "Paused"),
            ("newest", Change::Stay, "", ""),
            ("vanished", Change::NoBundle, "", ""),
            ("wrong", Change::NoBundle, "", ""),
        ],
    );
}

#[test]
fn an_extension_stays_with_its_catalog_unless_it_selects_others() {
    let catalogs = [
        known("next", vec![("one", package("one", &["1.0.0", "1.1.0"], &[]))]),
        known("rest", vec![("two", package("two", &["1.0.0"], &[]))]),
    ];
    let selecting =
        |name: &str| json!({"selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": name}}});
    let cluster = |spec: &Value, home: &str| {
        let extensions = [extension("one", Some(("1.0.0", home)), spec)];
        let mut off = catalog("off");
        off["unavailable"] = json!(true);
        record(
            &[catalog("next"), catalog("rest"), catalog("unread"), off],
            &extensions,
        )
    };
    for (spec, home, expected) in [
        (json!({}), "next", ("one", Change::Update, "1.1.0", "")),
        (json!({}), "unread", ("one", Change::OtherCatalog, "", "")),
        (selecting("next"), "unread", ("one", Change::Update, "1.1.0", "")),
        (selecting("unread"), "next", ("one", Change::OtherCatalog, "", "")),
        (selecting("off"), "next", ("one", Change::OtherCatalog, "", "")),
    ] {
        check(&catalogs, &cluster(&spec, home), &[expected]);
    }
    // The catalogs of the flag count as well.
    let mut defaulted = cluster(&json!({}), "unread");
    defaulted.default_catalogs = vec!["next".to_owned()];
    check(&catalogs, &defaulted, &[("one", Change::Update, "1.1.0", "")]);
    let plan = Planner::new(&catalogs).plan(&defaulted);
    assert_eq!(plan.extensions[0].unknown_catalogs, ["unread"]);
}

#[test]
fn requirements_hold_back_until_others_have_moved_and_some_only_move_together() {
    let needs = |package: &str, range: &str| json!({"type": "olm.package.required", "value": {"packageName": package, "versionRange": range}});
    let two = ["1.0.0", "1.1.0"];
    let next = known(
        "next",
        vec![
            ("after", package("after", &two, &[needs("first", ">=1.1.0")])),
            ("first", package("first", &two, &[])),
            ("left", package("left", &two, &[needs("right", ">=1.1.0")])),
            ("right", package("right", &two, &[needs("left", ">=1.1.0")])),
            ("lost", package("lost", &two, &[needs("nothing", ">=1.1.0")])),
        ],
    );
    let there = Some(("1.0.0", "next"));
    let extensions =
        ["after", "first", "left", "lost", "right"].map(|name| extension(name, there, &json!({})));
    let cluster = record(&[catalog("next")], &extensions);
    let catalogs = [next];
    check(
        &catalogs,
        &cluster,
        &[
            ("after", Change::Update, "1.1.0", ""),
            ("first", Change::Update, "1.1.0", ""),
            ("left", Change::Update, "1.1.0", ""),
            ("lost", Change::Stay, "", "Requirement"),
            ("right", Change::Update, "1.1.0", ""),
        ],
    );
    let plan = Planner::new(&catalogs).plan(&cluster);
    let left = plan
        .extensions
        .iter()
        .find(|one| one.extension == "left")
        .unwrap();
    assert_eq!(left.updates[0].together_with, ["right"]);
}

#[test]
fn a_document_of_something_else_is_refused() {
    let refused = |document: Value| ClusterRecord::read(document).unwrap_err().to_string();
    assert!(
        refused(json!({"apiVersion": "v1", "kind": "List"}))
            .starts_with("apiVersion \"v1\" and kind \"List\" are not")
    );
    let nameless = json!({"apiVersion": INVENTORY_API_VERSION, "kind": CLUSTER_INVENTORY});
    assert!(matches!(ClusterRecord::read(nameless), Err(RecordError::NoName)));
}

/// Prints the duration; `make bench` measures the command.
#[test]
fn a_thousand_clusters_ask_few_questions() {
    const CLUSTERS: usize = 1000;
    let versions: Vec<String> = (0..12).map(|minor| format!("1.{minor}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let names: Vec<String> = (0..30).map(|number| format!("p{number:02}")).collect();
    let packages: HashMap<String, Package> = names
        .iter()
        .map(|name| (name.clone(), package(name, &versions, &[])))
        .collect();
    let catalogs = [KnownCatalog {
        name: "next".to_owned(),
        packages,
    }];
    let clusters: Vec<ClusterRecord> = (0..CLUSTERS)
        .map(|cluster| {
            let extensions = names.iter().enumerate().map(|(number, name)| {
                let at = versions[(cluster * 7 + number * 3) % versions.len()];
                extension(name, Some((at, "next")), &json!({}))
            });
            record(&[catalog("next")], &extensions.collect::<Vec<_>>())
        })
        .collect();
    let mut planner = Planner::new(&catalogs);
    let begin = Instant::now();
    for cluster in &clusters {
        let plan = planner.plan(cluster);
        let last = plan.extensions[0].updates.last();
        assert!(last.is_none_or(|last| last.bundle.version == "1.11.0"));
    }
    let (asked, made) = planner.choices();
    assert_eq!(made, names.len() * versions.len());
    println!(
        "{CLUSTERS} clusters of {} extensions: {asked} choices asked for, {made} made, {:.1} s",
        names.len(),
        begin.elapsed().as_secs_f64()
    );
}
