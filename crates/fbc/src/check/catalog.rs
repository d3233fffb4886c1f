//! The rules between packages, channels and bundles.

use std::collections::{HashMap, HashSet};

use olm_version::{blang, quoted};

use super::{BlobLocation, BundleFacts, ChannelFacts, Checker, Object, Rule};
use crate::blob::channel::ChannelEntry;
use crate::graph;

impl Checker {
    pub(super) fn check_catalog(&mut self, channels: &[ChannelFacts], bundles: &[BundleFacts]) {
        self.check_bundles(channels, bundles);
        self.check_channels(channels, bundles);
        self.check_packages(channels, bundles);
    }

    fn check_bundles(&mut self, channels: &[ChannelFacts], bundles: &[BundleFacts]) {
        let entered: Names<'_> = channels
            .iter()
            .flat_map(|ChannelFacts { channel, .. }| {
                channel
                    .entries
                    .iter()
                    .map(|entry| (channel.package.as_str(), entry.name.as_str()))
            })
            .collect();
        let again = repeated(bundles);
        for (position, bundle) in bundles.iter().enumerate() {
            let BundleFacts {
                package, name, place, ..
            } = bundle;
            let object = Object::bundle(package, name);
            if package.is_empty() {
                continue;
            }
            if !self.packages.contains_key(&**package) {
                let message = format!("unknown package {} for bundle {}", quoted(package), quoted(name));
                self.find(Rule::BundlePackageUnknown, object, Some(place.clone()), message);
                continue;
            }
            if again.contains(&position) {
                let message = format!(
                    "package {} has duplicate bundle {}",
                    quoted(package),
                    quoted(name)
                );
                self.find(Rule::BundleDuplicate, object, Some(place.clone()), message);
            } else if !entered.contain(package, name) && !self.unreadable_channels.contains(&**package) {
                let message = format!(
                    "package {}, bundle {} not found in any channel entries",
                    quoted(package),
                    quoted(name)
                );
                self.find(Rule::BundleOrphan, object, Some(place.clone()), message);
            }
        }
        self.check_duplicate_versions(bundles, &entered);
    }

    fn check_duplicate_versions(&mut self, bundles: &[BundleFacts], entered: &Names<'_>) {
        let mut versions: Vec<(&str, &str, &str)> = bundles
            .iter()
            .filter(|bundle| entered.contain(&bundle.package, &bundle.name))
            .filter_map(|bundle| Some((&*bundle.package, bundle.version.as_deref()?, &*bundle.name)))
            .collect();
        versions.sort_unstable();
        versions.dedup();
        for of_package in versions.chunk_by(|left, right| left.0 == right.0) {
            let duplicates: Vec<String> = of_package
                .chunk_by(|left, right| left.1 == right.1)
                .filter(|same| same.len() > 1)
                .map(|same| {
                    let version = same.first().map_or("", |bundle| bundle.1);
                    let names: Vec<&str> = same.iter().map(|bundle| bundle.2).collect();
                    format!("{{{version}: [{}]}}", names.join(", "))
                })
                .collect();
            if !duplicates.is_empty() {
                let package = of_package.first().map_or("", |bundle| bundle.0);
                let place = self.packages.get(package).map(|package| package.place.clone());
                let message = format!("duplicate versions found in bundles: [{}]", duplicates.join(" "));
                self.find(Rule::VersionDuplicate, Object::package(package), place, message);
            }
        }
    }

    fn check_channels(&mut self, channels: &[ChannelFacts], bundles: &[BundleFacts]) {
        let bundles = Names::of(bundles);
        let mut seen: HashSet<(&str, &str)> = HashSet::new();
        for ChannelFacts { channel, place } in channels {
            let object = Object::channel(&channel.package, &channel.name);
            let (package, name) = (quoted(&channel.package), quoted(&channel.name));
            if !self.packages.contains_key(&channel.package) {
                let message = format!("unknown package {package} for channel {name}");
                self.find(Rule::ChannelPackage, object.clone(), Some(place.clone()), message);
            }
            if channel.name.is_empty() {
                let message = format!("package {package} contains channel with no name");
                self.find(Rule::ChannelName, object.clone(), Some(place.clone()), message);
            } else if !seen.insert((&channel.package, &channel.name)) {
                let message = format!("package {package} has duplicate channel {name}");
                self.find(
                    Rule::ChannelDuplicate,
                    object.clone(),
                    Some(place.clone()),
                    message,
                );
            }
            let mut names: HashSet<&str> = HashSet::new();
            let twice: Vec<&str> = channel
                .entries
                .iter()
                .map(|entry| entry.name.as_str())
                .filter(|name| !names.insert(name))
                .collect();
            for entry in twice {
                let message = format!(
                    "invalid package {package}, channel {name}: duplicate entry {}",
                    quoted(entry)
                );
                self.find(Rule::EntryDuplicate, object.clone(), Some(place.clone()), message);
            }
            let mut missing: Vec<&str> = names
                .into_iter()
                .filter(|name| !bundles.contain(&channel.package, name))
                .collect();
            if !missing.is_empty() {
                missing.sort_unstable();
                let missing = missing.join(" ");
                let message = format!(
                    "no olm.bundle blobs found in package {package} for olm.channel entries [{missing}]"
                );
                self.find(Rule::EntryBundle, object.clone(), Some(place.clone()), message);
            }
            for entry in &channel.entries {
                self.check_entry(&object, entry, place);
            }
            if channel.entries.is_empty() {
                let message = "channel must contain at least one bundle";
                self.find(Rule::ChannelEmpty, object, Some(place.clone()), message);
            } else if let Err(error) = graph::replaces_chain(&channel.entries) {
                self.find(Rule::ChannelGraph, object, Some(place.clone()), error.to_string());
            }
        }
    }

    fn check_entry(&mut self, channel: &Object, entry: &ChannelEntry, place: &BlobLocation) {
        let object = Object {
            bundle: entry.name.clone(),
            ..channel.clone()
        };
        let mut find = |rule, message: String| self.find(rule, object.clone(), Some(place.clone()), message);
        if entry.name.is_empty() {
            find(Rule::EntryName, "name must be set".to_owned());
        }
        for (field, value) in [("replaces", &entry.replaces), ("skipRange", &entry.skip_range)] {
            if value.as_deref() == Some("") {
                find(
                    Rule::EntryEdge,
                    format!("{field} must not be empty when it is given"),
                );
            }
        }
        for (index, _) in entry
            .skips
            .iter()
            .enumerate()
            .filter(|(_, skipped)| skipped.is_empty())
        {
            find(Rule::EntrySkip, format!("skip[{index}] is empty"));
        }
        if let Some(range) = entry.skip_range()
            && let Err(error) = blang::Range::parse(range)
        {
            find(
                Rule::EntrySkipRange,
                format!("invalid skipRange {}: {error}", quoted(range)),
            );
        }
    }

    fn check_packages(&mut self, channels: &[ChannelFacts], bundles: &[BundleFacts]) {
        let mut channels_of: HashMap<&str, HashSet<&str>> = HashMap::new();
        for ChannelFacts { channel, .. } in channels {
            channels_of
                .entry(&channel.package)
                .or_default()
                .insert(&channel.name);
        }
        let with_bundles: HashSet<&str> = bundles.iter().map(|bundle| &*bundle.package).collect();
        let mut faults: Vec<(Rule, String, BlobLocation, String)> = Vec::new();
        for (name, package) in &self.packages {
            let mut find = |rule, message: String| {
                faults.push((rule, name.clone(), package.place.clone(), message));
            };
            let channels = channels_of.get(name.as_str());
            let all_known = !self.unreadable_channels.contains(name);
            let default = package.default_channel.as_str();
            if all_known
                && !default.is_empty()
                && !channels.is_some_and(|channels| channels.contains(default))
            {
                find(
                    Rule::DefaultChannelUnknown,
                    format!("default channel {} not found in channels list", quoted(default)),
                );
            }
            if all_known && channels.is_none() {
                find(
                    Rule::PackageWithoutChannel,
                    "package must contain at least one channel".to_owned(),
                );
            }
            if !with_bundles.contains(name.as_str()) {
                find(
                    Rule::PackageWithoutBundle,
                    "package must contain at least one bundle".to_owned(),
                );
            }
        }
        faults.sort_by(|left, right| (&left.1, left.0).cmp(&(&right.1, right.0)));
        for (rule, package, place, message) in faults {
            self.find(rule, Object::package(&package), Some(place), message);
        }
    }
}

/// Packages and names in them, sorted: big catalogs have many, and a table with spare room costs three times as much.
pub(super) struct Names<'a>(Vec<(&'a str, &'a str)>);

impl<'a> FromIterator<(&'a str, &'a str)> for Names<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(names: I) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self(names)
    }
}

impl<'a> Names<'a> {
    pub(super) fn of(bundles: &'a [BundleFacts]) -> Self {
        bundles
            .iter()
            .map(|bundle| (&*bundle.package, &*bundle.name))
            .collect()
    }

    pub(super) fn contain(&self, package: &str, name: &str) -> bool {
        self.0.binary_search(&(package, name)).is_ok()
    }
}

/// The positions of bundles whose package and name occurred before.
fn repeated(bundles: &[BundleFacts]) -> HashSet<usize> {
    let key = |position: &usize| {
        bundles
            .get(*position)
            .map(|bundle| (&*bundle.package, &*bundle.name))
    };
    let mut positions: Vec<usize> = (0..bundles.len()).collect();
    // Stable: of the same bundles the first stays first.
    positions.sort_by_key(key);
    positions
        .chunk_by(|left, right| key(left) == key(right))
        .flat_map(|same| same.iter().skip(1).copied())
        .collect()
}
