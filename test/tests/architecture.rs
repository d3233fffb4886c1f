//! Holds the crate map of `docs/architecture.md` against the manifests: arrows point one way, pure crates stay pure,
//! and the map names every crate.
#![expect(
    clippy::unwrap_used,
    reason = "a manifest that cannot be read fails the test, wherever it is read"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates that touch no network, file system, clock or randomness.
const PURE: &[&str] = &[
    "olm-api",
    "olm-version",
    "olm-yaml",
    "olm-fbc",
    "olm-constraint",
    "olm-bundle",
    "olm-author",
    "olm-resolve",
    "olm-preflight",
    "olm-rollout",
];
/// Crates that talk to the outside and know no product controller.
const EDGE: &[&str] = &[
    "olm-image",
    "olm-serve",
    "olm-platform",
    "olm-cluster",
    "olm-transport",
];
/// Programs.
const PROGRAMS: &[&str] = &["catalogd", "operator-controller", "olm"];

/// What a pure crate may not list, directly or behind a feature.
const IMPURE: &[&str] = &[
    "tokio",
    "tokio-util",
    "hyper",
    "hyper-util",
    "reqwest",
    "axum",
    "kube-client",
    "kube-runtime",
    "rustls",
    "tokio-rustls",
    "oci-distribution",
    "oci-client",
    "tempfile",
    "rustix",
    "rand",
    "getrandom",
    "tracing-subscriber",
];

/// Calls that a pure crate's sources may not contain.
const IMPURE_CALLS: &[&str] = &[
    "std::fs",
    "std::env::",
    "std::net::",
    "std::process",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
];

struct Manifest {
    folder: PathBuf,
    dependencies: BTreeMap<String, toml::Value>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn manifests() -> BTreeMap<String, Manifest> {
    let mut folders = vec!["api", "catalogd", "operator-controller", "olm", "test"]
        .into_iter()
        .map(|f| root().join(f))
        .collect::<Vec<_>>();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        folders.push(entry.unwrap().path());
    }
    folders
        .into_iter()
        .map(|folder| {
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let manifest: toml::Table = toml::from_str(&text).unwrap();
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            let dependencies = manifest
                .get("dependencies")
                .and_then(toml::Value::as_table)
                .map(|table| table.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
                .unwrap_or_default();
            (name, Manifest { folder, dependencies })
        })
        .collect()
}

fn ours(manifest: &Manifest) -> BTreeSet<&str> {
    let known: BTreeSet<&str> = PURE
        .iter()
        .chain(EDGE)
        .chain(PROGRAMS)
        .chain(&["olm-test"])
        .copied()
        .collect();
    manifest
        .dependencies
        .keys()
        .map(String::as_str)
        .filter(|name| known.contains(name))
        .collect()
}

#[test]
fn every_crate_has_a_place_in_the_map() {
    let known: BTreeSet<&str> = PURE
        .iter()
        .chain(EDGE)
        .chain(PROGRAMS)
        .chain(&["olm-test"])
        .copied()
        .collect();
    let found = manifests();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    let map = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    for name in found.keys() {
        assert!(
            map.contains(&format!("| {name} |")),
            "docs/architecture.md does not list the crate {name}"
        );
    }
}

#[test]
fn arrows_point_from_pure_to_edge_to_program_to_test() {
    let pure: BTreeSet<&str> = PURE.iter().copied().collect();
    let edge: BTreeSet<&str> = EDGE.iter().copied().collect();
    for (name, manifest) in manifests() {
        let allowed: BTreeSet<&str> = match name.as_str() {
            "olm-test" => continue,
            program if PROGRAMS.contains(&program) => pure.union(&edge).copied().collect(),
            crate_ if edge.contains(crate_) => pure.union(&edge).copied().collect(),
            _ => pure.clone(),
        };
        let wrong: Vec<_> = ours(&manifest).difference(&allowed).copied().collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}

#[test]
fn the_platform_crate_knows_no_product_crate() {
    let found = manifests();
    assert_eq!(ours(&found["olm-platform"]), BTreeSet::new());
}

#[test]
fn pure_crates_list_no_runtime_network_or_client() {
    for (name, manifest) in manifests()
        .iter()
        .filter(|(name, _)| PURE.contains(&name.as_str()))
    {
        for (dependency, value) in &manifest.dependencies {
            assert!(
                !IMPURE.contains(&dependency.as_str()),
                "{name} is pure and may not depend on {dependency}"
            );
            let features: Vec<&str> = value
                .get("features")
                .and_then(toml::Value::as_array)
                .map(|list| list.iter().filter_map(toml::Value::as_str).collect())
                .unwrap_or_default();
            if dependency == "kube" {
                assert!(
                    !features
                        .iter()
                        .any(|f| ["client", "runtime", "config", "rustls-tls"].contains(f)),
                    "{name} is pure and may not use kube's client ({features:?})"
                );
            }
        }
    }
}

#[test]
fn pure_crates_touch_no_files_environment_network_or_clock() {
    for (name, manifest) in manifests()
        .iter()
        .filter(|(name, _)| PURE.contains(&name.as_str()))
    {
        for file in sources(&manifest.folder.join("src")) {
            // A generator's own main writes files, and tests read what is committed; the library does neither.
            let stem = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_test = stem == "tests" || stem.ends_with("_tests");
            if is_test || file.components().any(|part| part.as_os_str() == "bin") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let production = text.split("#[cfg(test)]").next().unwrap_or_default();
            for call in IMPURE_CALLS {
                let hit = production
                    .lines()
                    .find(|line| line.contains(call) && !line.trim_start().starts_with("//"));
                assert!(
                    hit.is_none(),
                    "{name} is pure, but {} has {hit:?}",
                    file.display()
                );
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
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
fn what_needs_a_registry_asks_for_it_before_anything_is_built_or_applied() {
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
