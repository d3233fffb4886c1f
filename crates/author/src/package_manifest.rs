//! Package manifests: the legacy form of a catalog, a directory for each version.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::BundleFiles;
use olm_bundle::annotation_keys;
use olm_bundle::object::{list, text};
use olm_fbc::{Catalog, Channel, ChannelEntry, Package};
use serde_json::Value;

use crate::catalog_entry::{Entry, entry};

/// `NAME.package.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageManifest {
    /// The package.
    pub package_name: String,
    /// The channels, each with the ClusterServiceVersion at its head.
    pub channels: Vec<(String, String)>,
    /// The default channel; empty if it is not set.
    pub default_channel: String,
}

impl PackageManifest {
    /// Reads a parsed document; `None` if it is not a package manifest.
    #[must_use]
    pub fn read(document: &Value) -> Option<Self> {
        let found = Self {
            package_name: text(document, "/packageName").to_owned(),
            channels: list(document, "/channels")
                .iter()
                .map(|channel| {
                    (
                        text(channel, "/name").to_owned(),
                        text(channel, "/currentCSV").to_owned(),
                    )
                })
                .collect(),
            default_channel: text(document, "/defaultChannel").to_owned(),
        };
        // Manifests of other kinds have a `kind`.
        let is_other = !text(document, "/kind").is_empty();
        (!is_other && found != Self::default()).then_some(found)
    }

    /// The default channel; the only one when none is named.
    #[must_use]
    pub fn default_channel(&self) -> &str {
        match self.channels.as_slice() {
            [(only, _)] if self.default_channel.is_empty() => only,
            _ => &self.default_channel,
        }
    }

    /// The faults of the package manifest alone.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.package_name.is_empty() {
            faults.push("packageName empty".to_owned());
        }
        if self.channels.is_empty() {
            faults.push("channels empty".to_owned());
            return faults;
        }
        if self.default_channel.is_empty() && self.channels.len() > 1 {
            faults.push("default channel is empty but more than one channel exists".to_owned());
        }
        let mut seen = BTreeSet::new();
        for (at, (name, csv)) in self.channels.iter().enumerate() {
            if name.is_empty() {
                faults.push(format!("channel {at} name is empty"));
            }
            if csv.is_empty() {
                faults.push(format!("channel {name:?} currentCSV is empty"));
            }
            if !seen.insert(name) {
                faults.push(format!("duplicate package manifest channel name {name:?}"));
            }
        }
        if !self.default_channel.is_empty() && !seen.contains(&self.default_channel) {
            faults.push(format!(
                "default channel {:?} not found in the list of declared channels",
                self.default_channel
            ));
        }
        faults
    }
}

/// The result of the conversion of a directory of package manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The package as a catalog.
    pub catalog: Catalog,
    /// The omitted content, one warning each.
    pub warnings: Vec<String>,
}

fn manifests(files: &BundleFiles) -> impl Iterator<Item = (&str, PackageManifest)> {
    files
        .iter()
        .filter(|(path, _)| !path.contains('/') && !path.starts_with('.'))
        .filter_map(|(path, content)| {
            let document = olm_yaml::to_json(content).ok()?;
            Some((path.as_str(), PackageManifest::read(&document)?))
        })
}

/// Converts a directory of package manifests to a catalog. `image` returns the reference of a bundle's image by
/// package, name and version; empty for a bundle without image.
///
/// # Errors
/// All faults: of the package manifest, of each version, and of the references between them.
pub fn convert(files: &BundleFiles, image: &dyn Fn(&Entry) -> String) -> Result<Converted, Vec<String>> {
    let found: Vec<(&str, PackageManifest)> = manifests(files).collect();
    let manifest = match found.as_slice() {
        [] => {
            return Err(vec![
                "no package manifest found: a file PACKAGE.package.yaml with packageName and channels"
                    .to_owned(),
            ]);
        }
        [(_, manifest)] => manifest,
        several => {
            let names: Vec<&str> = several.iter().map(|(path, _)| *path).collect();
            return Err(vec![format!(
                "multiple package manifest files found in directory: {}",
                names.join(", ")
            )]);
        }
    };
    let mut faults = manifest.faults();
    let mut warnings = Vec::new();
    let entries = versions(files, manifest, &mut faults, &mut warnings);
    for (channel, csv) in manifest.channels.iter().filter(|(_, csv)| !csv.is_empty()) {
        if !entries.contains_key(csv) {
            faults.push(format!(
                "channel {channel:?}: currentCSV {csv:?} is not in the package"
            ));
        }
    }
    for (name, entry) in &entries {
        if let Some(replaced) = entry.edges.replaces()
            && !entries.contains_key(replaced)
        {
            faults.push(format!("{name} replaces {replaced}, which is not in the package"));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Converted {
        catalog: catalog(manifest, entries, image),
        warnings,
    })
}

/// The version in each directory, by the name of its ClusterServiceVersion.
fn versions(
    files: &BundleFiles,
    manifest: &PackageManifest,
    faults: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, Entry> {
    let mut directories: BTreeMap<&str, BundleFiles> = BTreeMap::new();
    for (path, content) in files {
        if let Some((directory, name)) = path.split_once('/') {
            let name = name.strip_prefix("manifests/").unwrap_or(name);
            let directory = directories.entry(directory).or_default();
            directory.insert(format!("manifests/{name}"), content.clone());
        }
    }
    let annotations = format!(
        "annotations: {}\n",
        serde_json::json!({ annotation_keys::PACKAGE: manifest.package_name })
    );
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for (directory, mut files) in directories {
        files.insert(
            "metadata/annotations.yaml".to_owned(),
            annotations.clone().into_bytes(),
        );
        match entry(&files, &BTreeMap::new(), "") {
            Ok(entry) => {
                let found = entry.warnings.iter();
                warnings.extend(found.map(|warning| format!("{directory}: {warning}")));
                if let Some(other) = entries.insert(entry.bundle.name.clone(), entry) {
                    faults.push(format!("{directory}: {} occurs twice", other.bundle.name));
                }
            }
            Err(error) => faults.push(format!("{directory}: {error}")),
        }
    }
    entries
}

fn catalog(
    manifest: &PackageManifest,
    entries: BTreeMap<String, Entry>,
    image: &dyn Fn(&Entry) -> String,
) -> Catalog {
    let mut catalog = Catalog::default();
    let mut used: BTreeSet<String> = BTreeSet::new();
    for (name, head) in &manifest.channels {
        let members = members(head, &entries);
        used.extend(members.iter().map(|entry| entry.name.clone()));
        catalog.channels.push(Channel {
            name: name.clone(),
            package: manifest.package_name.clone(),
            entries: members.into(),
            ..Channel::default()
        });
    }
    let default = manifest.default_channel();
    let head = manifest.channels.iter().find(|(name, _)| name == default);
    let head = head.and_then(|(_, csv)| entries.get(csv));
    catalog.packages.push(Package {
        name: manifest.package_name.clone(),
        default_channel: default.to_owned(),
        description: head.map(|head| head.description.clone()).unwrap_or_default(),
        icon: head.and_then(|head| head.icon.clone()),
        ..Package::default()
    });
    for mut entry in entries
        .into_values()
        .filter(|entry| used.contains(&entry.bundle.name))
    {
        entry.bundle.image = image(&entry);
        catalog.bundles.push(entry.bundle);
    }
    catalog
}

/// The bundles of a channel from its head on, with the bundles that each replaces or skips, as far as the package
/// contains them.
fn members(head: &str, entries: &BTreeMap<String, Entry>) -> Vec<ChannelEntry> {
    let mut found: BTreeMap<&str, ChannelEntry> = BTreeMap::new();
    let mut open = vec![head];
    while let Some(name) = open.pop() {
        let Some(entry) = entries.get(name) else {
            continue;
        };
        if found.contains_key(name) {
            continue;
        }
        found.insert(name, entry.edges.clone());
        open.extend(entry.edges.replaces());
        open.extend(entry.edges.skips.iter().map(String::as_str));
    }
    found.into_values().collect()
}
