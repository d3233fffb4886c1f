//! Real custom resource definitions replace those of the version before.

use std::collections::BTreeMap;
use std::path::Path;

use olm_preflight::crd_upgrade::existing::schema_checks;
use olm_preflight::crd_upgrade::{Policy, compare, definition_name};
use olm_version::{BuildMetadata, VersionRelease};
use olm_yaml::{Limits, documents};
use serde_json::Value;

use super::bundles::directories;
use super::{Kind, guarded};

/// Compares the definitions of consecutive versions below `dir/bundles/PACKAGE/VERSION`. A case is a definition in both
/// versions. Its outcome is that it may be replaced, or the first finding. All findings are counted by check.
pub fn run(dir: &Path) -> Kind {
    let mut kind = Kind {
        name: "definitions",
        ..Kind::default()
    };
    let root = dir.join("bundles");
    for package in directories(&root) {
        let versions = versions(&root.join(&package));
        for (before, after) in versions.iter().zip(versions.iter().skip(1)) {
            let of = |version: &str| definitions(&root.join(&package).join(version));
            let (old, new) = (of(before), of(after));
            for (name, new) in &new {
                let Some(old) = old.get(name) else { continue };
                let findings = &mut kind.findings;
                let outcome = guarded(|| replace(old, new, findings));
                kind.cases
                    .push((format!("bundles/{package}/{after}: {name}"), outcome));
            }
        }
    }
    kind
}

fn replace(old: &Value, new: &Value, counts: &mut BTreeMap<String, usize>) -> Result<String, String> {
    let policy = Policy::default();
    for definition in [old, new] {
        if !compare(definition, definition, &policy).is_empty()
            || !schema_checks(definition, definition).versions().is_empty()
        {
            return Err("something is found although nothing changes".to_owned());
        }
    }
    let found = compare(old, new, &policy);
    for finding in &found {
        *counts.entry(finding.check.to_string()).or_default() += 1;
    }
    Ok(match found.first() {
        None => "may be replaced".to_owned(),
        Some(first) => format!("refused, first for {}", first.check),
    })
}

/// The versions, the lowest first; names that are not versions come before.
fn versions(package: &Path) -> Vec<String> {
    let mut versions: Vec<(Option<VersionRelease>, String)> = directories(package)
        .into_iter()
        .map(|name| (VersionRelease::parse(&name, BuildMetadata::Release).ok(), name))
        .collect();
    versions.sort_by(|(left, _), (right, _)| match (left, right) {
        (Some(left), Some(right)) => left.compare(right),
        _ => left.is_some().cmp(&right.is_some()),
    });
    versions.into_iter().map(|(_, name)| name).collect()
}

fn definitions(bundle: &Path) -> BTreeMap<String, Value> {
    let manifests = bundle.join("manifests");
    let mut found = BTreeMap::new();
    for file in super::walk(&manifests).unwrap_or_default() {
        let text = std::fs::read(manifests.join(file)).unwrap_or_default();
        for document in documents(text.as_slice(), &Limits::default()) {
            let Ok(object) = document.and_then(olm_yaml::Document::into_value) else {
                break;
            };
            if let Some(name) = definition_name(&object) {
                found.insert(name.to_owned(), object.clone());
            }
        }
    }
    found
}
