//! Compares the claims of `docs/design/architecture.md` with the sources: its map of crates, the direction of imports,
//! and the invariants that sources and manifests show. Other tests check the rest on a cluster and on real bundles.
#![expect(
    clippy::unwrap_used,
    reason = "a manifest that cannot be read fails the test, wherever it is read"
)]

mod circles;
mod names;
mod purity;
mod roles;
mod rooms;
mod settings;
mod stages;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The kind of a crate in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Touches no network, file system, environment, clock or randomness.
    Pure,
    /// Talks to the outside and does not depend on a controller.
    Edge,
    /// Wires both together.
    Program,
    /// Tests all of them.
    Tests,
}

struct Manifest {
    folder: PathBuf,
    /// The dependencies of every kind and target, except those for tests.
    dependencies: BTreeMap<String, toml::Value>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// The members of the workspace by name.
fn manifests() -> BTreeMap<String, Manifest> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: toml::Table = toml::from_str(&text).unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let mut folders = Vec::new();
    for member in members.iter().filter_map(toml::Value::as_str) {
        match member.strip_suffix("/*") {
            None => folders.push(root().join(member)),
            Some(parent) => {
                let entries = std::fs::read_dir(root().join(parent)).unwrap();
                folders.extend(entries.map(|entry| entry.unwrap().path()));
            }
        }
    }
    folders
        .into_iter()
        .map(|folder| {
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let manifest: toml::Table = toml::from_str(&text).unwrap();
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            let targets = manifest.get("target").and_then(toml::Value::as_table);
            let targets = targets.into_iter().flat_map(toml::Table::values);
            let tables = targets.filter_map(toml::Value::as_table).chain([&manifest]);
            let dependencies = tables
                .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
                .flatten()
                .filter_map(toml::Value::as_table)
                .flat_map(|table| table.iter().map(|(name, value)| (name.clone(), value.clone())))
                .collect();
            (name, Manifest { folder, dependencies })
        })
        .collect()
}

/// The folder and kind of each crate in the map of `docs/design/architecture.md`.
fn map() -> BTreeMap<String, (String, Kind)> {
    let page = std::fs::read_to_string(root().join("docs/design/architecture.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (folder, name, kind) = (cells.next()?, cells.next()?, cells.next()?);
        let kind = match kind {
            "pure" => Kind::Pure,
            "edge" => Kind::Edge,
            "program" => Kind::Program,
            "tests" => Kind::Tests,
            _ => return None,
        };
        let folder = folder.trim_matches('`').trim_end_matches('/').to_owned();
        Some((name.to_owned(), (folder, kind)))
    })
    .collect()
}

/// The crates of these kinds.
fn crates(kinds: &[Kind]) -> BTreeMap<String, Manifest> {
    let map = map();
    let mut found = manifests();
    found.retain(|name, _| map.get(name).is_some_and(|(_, kind)| kinds.contains(kind)));
    assert!(!found.is_empty(), "there are no crates of {kinds:?}");
    found
}

fn ours(manifest: &Manifest) -> BTreeSet<String> {
    let known = map();
    let names = manifest.dependencies.keys();
    names.filter(|name| known.contains_key(*name)).cloned().collect()
}

#[test]
fn every_crate_has_a_place_in_the_map() {
    let found: BTreeMap<String, String> = manifests()
        .into_iter()
        .map(|(name, manifest)| {
            let folder = manifest.folder.strip_prefix(root()).unwrap();
            (name, folder.display().to_string())
        })
        .collect();
    let drawn: BTreeMap<String, String> = map()
        .into_iter()
        .map(|(name, (folder, _))| (name, folder))
        .collect();
    assert_eq!(
        found, drawn,
        "the workspace, and the map in docs/design/architecture.md"
    );
}

#[test]
fn arrows_point_from_pure_to_edge_to_program_to_test() {
    let map = map();
    for (name, manifest) in crates(&[Kind::Pure, Kind::Edge, Kind::Program]) {
        // A program does not depend on a program.
        let most = map[&name].1.min(Kind::Edge);
        for dependency in ours(&manifest) {
            assert!(
                map[&dependency].1 <= most,
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn the_platform_crate_knows_no_product_crate() {
    let found = manifests();
    assert_eq!(
        ours(&found["olm-platform"]),
        BTreeSet::from(["olm-text".to_owned()])
    );
}

#[test]
fn the_cluster_crate_knows_no_kind_of_ours() {
    let ours = [
        "ClusterCatalog",
        "ClusterExtension",
        "ClusterObjectSet",
        "ChangePolicy",
    ];
    let mut read = 0;
    for (path, text) in sources(&root().join("crates/cluster/src")) {
        let paths = tokens::paths(&tokens::production(&text));
        read += paths.len();
        for used in paths {
            let is_ours = used.split("::").any(|part| ours.contains(&part));
            let is_name = used == "olm_api::names" || used.starts_with("olm_api::names::");
            assert!(
                !is_ours && (is_name || !used.starts_with("olm_api")),
                "{} uses {used}",
                path.display()
            );
        }
    }
    assert!(read > 100, "only {read} paths were read");
}

/// The Rust files below a folder except tests, with their content.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // The main programs of generators write files, and tests read committed files; the library does neither.
            if stem == "tests" || stem.ends_with("_tests") || stem == "bin" {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

#[test]
fn the_base_names_its_namespace_only_where_kustomize_changes_it() {
    for folder in ["base", "catalogd", "operator-controller"] {
        for entry in std::fs::read_dir(root().join("manifests").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.contains("olmv1-system")) {
                assert!(
                    matches!(line.trim(), "namespace: olmv1-system" | "name: olmv1-system"),
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn no_source_carries_a_path_or_address_of_the_machine_it_was_written_on() {
    let listed = std::process::Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    assert!(!files.is_empty(), "git lists no files");
    for file in files.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for home in [concat!("/wo", "rk/"), concat!("/ro", "ot/")] {
                assert!(!line.contains(home), "{file}:{} names {home}", number + 1);
            }
        }
    }
}

#[test]
fn make_verbs_ask_for_the_registry_before_they_build_or_apply() {
    for verb in ["push", "deploy"] {
        let run = std::process::Command::new("make")
            .args(["--no-print-directory", verb, "PREFIX="])
            .current_dir(root())
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{verb}");
        assert!(
            said.contains(&format!("make {verb} PREFIX=registry.example/olmv1")),
            "{said}"
        );
        assert!(run.stdout.is_empty(), "{}", String::from_utf8_lossy(&run.stdout));
    }
}
