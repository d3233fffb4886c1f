//! `olm fleet plan` for many clusters, on one core.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Figures, catalog, process};
use crate::world::binary;

const CLUSTERS: usize = 1000;
const EXTENSIONS: usize = 30;

/// The packages of a catalog with their versions, oldest first.
fn packages(blobs: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in blobs.lines().filter(|line| line.contains("\"olm.channel\"")) {
        let channel: Value = serde_json::from_str(line)?;
        let package = channel["package"].as_str().unwrap_or_default();
        if found.last().is_some_and(|(last, _)| last == package) {
            continue;
        }
        let entries = channel["entries"].as_array().into_iter().flatten();
        let versions = entries.filter_map(|entry| entry["name"].as_str()?.split_once(".v"));
        let versions = versions.map(|(_, version)| version.to_owned()).collect();
        found.push((package.to_owned(), versions));
    }
    Ok(found)
}

/// A cluster with versions of its own of the first packages. Every tenth extension requires another package, every
/// third one has a range.
fn inventory(number: usize, packages: &[(String, Vec<String>)]) -> Value {
    let extensions = packages.iter().enumerate().take(EXTENSIONS).map(|(at, (package, versions))| {
        let index = (number * 7 + at * 3) % versions.len().max(1);
        let version = versions.get(index).cloned().unwrap_or_default();
        let api = |kind: usize| {
            let api = json!({"group": format!("{package}.example.org"), "kind": format!("Kind{kind}"), "version": "v1"});
            json!({"type": "olm.gvk", "value": api})
        };
        let mut properties: Vec<Value> = (0..5).map(api).collect();
        if at % 10 == 9 {
            let (other, _) = &packages[at - 1];
            let range = json!({"packageName": other, "versionRange": ">=1.0.0"});
            properties.push(json!({"type": "olm.package.required", "value": range}));
        }
        let mut filter = json!({"packageName": package});
        if at.is_multiple_of(3) {
            filter["version"] = json!("1.x");
        }
        json!({
            "name": package, "namespace": "operators", "catalog": filter,
            "installed": {"name": format!("{package}.v{version}"), "version": version, "catalog": "big",
                "image": format!("registry.example/{package}@sha256:{number:064}"), "properties": properties},
        })
    });
    let kinds: Vec<String> = (0..10).map(|kind| format!("Kind{kind}")).collect();
    let apis = (0..40).map(|group| (format!("group{group}.example.com/v1"), json!(kinds)));
    json!({
        "apiVersion": "inventory.olm.operatorframework.io/v1", "kind": "ClusterInventory",
        "cluster": format!("cluster-{number:04}"), "kubernetes": format!("v1.{}.0", 34 + number % 3),
        "architectures": ["amd64"], "extensions": extensions.collect::<Vec<_>>(),
        "catalogs": [{"name": "big", "labels": {"olm.operatorframework.io/metadata.name": "big"}}],
        "apis": apis.collect::<serde_json::Map<_, _>>(),
    })
}

/// Measures the whole command, once with inventories in JSON and once in YAML.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let blobs = catalog::generate(&catalog::Shape::default());
    std::fs::write(folder.path().join("big.json"), &blobs)?;
    let packages = packages(&blobs)?;
    for form in ["json", "yaml"] {
        let inventories = folder.path().join(form);
        std::fs::create_dir(&inventories)?;
        for number in 0..CLUSTERS {
            let value = inventory(number, &packages);
            let text = match form {
                "json" => value.to_string(),
                _ => olm_yaml::to_yaml(&value),
            };
            std::fs::write(inventories.join(format!("{number:04}.{form}")), text)?;
        }
        let begin = Instant::now();
        let child = Command::new(binary("olm")?)
            .args(["fleet", "plan", "big=big.json", form])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()?;
        process::confine(child.id(), 1)?;
        let ended = child.wait_with_output()?;
        let took = begin.elapsed();
        let text = String::from_utf8(ended.stdout)?;
        ensure!(ended.status.success(), "{text}");
        let summary = text.lines().rev().find(|line| line.contains("would change"));
        let summary = summary.context("the plan has no summary")?;
        ensure!(
            summary.starts_with(&format!("{CLUSTERS} of {CLUSTERS} ")),
            "{summary}"
        );
        figures.add(
            &format!("olm fleet plan, {CLUSTERS} clusters of {EXTENSIONS} extensions in {form}, one core"),
            &format!("{:.1} s", took.as_secs_f64()),
        );
    }
    Ok(())
}
