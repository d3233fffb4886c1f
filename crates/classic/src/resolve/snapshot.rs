//! The operators that a resolution may choose from.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::names::EXCLUDE_GLOBAL_CATALOGS;
use olm_fbc::Gvk;
use serde_json::Value;

use super::chain::{self, ends_in_failure};
use super::entry::{EXISTING, Entry};
use super::predicate::Predicate;
use super::{CatalogContent, Request};
use crate::cluster::text;
use crate::csv::ClusterServiceVersion;

/// The entries of the visible catalogs and of the installed ClusterServiceVersions, with indices.
pub(super) struct Snapshot {
    pub(super) entries: Vec<Entry>,
    /// The catalogs as (namespace, name) in the order of preference.
    catalogs: Vec<(String, String)>,
    /// The entries of each channel; the channels are sorted by catalog, package and name.
    channels: Vec<Vec<usize>>,
    /// The channel of each entry, as an index of `channels`.
    channel_of: Vec<usize>,
    by_gvk: BTreeMap<Gvk, Vec<usize>>,
    by_package: BTreeMap<String, Vec<usize>>,
    /// How many entries there are with the id of each.
    counts: BTreeMap<String, usize>,
}

impl Snapshot {
    pub(super) fn new(request: &Request<'_>, group: &Value) -> Result<Self, String> {
        let is_excluded = group
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(EXCLUDE_GLOBAL_CATALOGS))
            .is_some_and(|value| value == "true");
        let mut visible: Vec<&CatalogContent> = request.catalogs.iter().collect();
        visible.retain(|catalog| {
            catalog.namespace == request.namespace
                || (catalog.namespace == request.global_namespace && !is_excluded)
        });
        visible.sort_by_key(|catalog| {
            let is_global = catalog.namespace != request.namespace;
            (-catalog.priority, is_global, catalog.name.as_str())
        });
        let mut errors = Vec::new();
        let mut snapshot = Self {
            entries: Vec::new(),
            catalogs: Vec::new(),
            channels: Vec::new(),
            channel_of: Vec::new(),
            by_gvk: BTreeMap::new(),
            by_package: BTreeMap::new(),
            counts: BTreeMap::new(),
        };
        match existing(request, group) {
            Ok(entries) => snapshot.entries = entries,
            Err(error) => errors.push((request.namespace.to_owned(), EXISTING.to_owned(), error)),
        }
        for catalog in visible {
            snapshot
                .catalogs
                .push((catalog.namespace.clone(), catalog.name.clone()));
            match &catalog.bundles {
                Ok(bundles) => {
                    for bundle in bundles.iter() {
                        // A bundle that cannot be read, or whose package cannot be, is not offered.
                        let Some(package) = catalog.packages.get(&bundle.package_name) else {
                            continue;
                        };
                        if let Ok(mut entry) = Entry::of_bundle(bundle, Some(package)) {
                            entry.catalog.clone_from(&catalog.name);
                            entry.catalog_namespace.clone_from(&catalog.namespace);
                            snapshot.entries.push(entry);
                        }
                    }
                }
                Err(error) => errors.push((catalog.namespace.clone(), catalog.name.clone(), error.clone())),
            }
        }
        errors.sort();
        let texts = errors
            .into_iter()
            .map(|(namespace, name, error)| format!("error using catalogsource {namespace}/{name}: {error}"));
        let texts: Vec<String> = texts.collect();
        if !texts.is_empty() {
            return Err(aggregate(texts));
        }
        snapshot.index();
        Ok(snapshot)
    }

    fn index(&mut self) {
        let mut channels: BTreeMap<[&str; 4], Vec<usize>> = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let key = [
                entry.catalog_namespace.as_str(),
                entry.catalog.as_str(),
                entry.package.as_str(),
                entry.channel.as_str(),
            ];
            channels.entry(key).or_default().push(index);
            for gvk in entry.gvks() {
                self.by_gvk.entry(gvk.clone()).or_default().push(index);
            }
            let named = entry.packages().iter().map(|(package, _)| package);
            let packages: BTreeSet<&String> = named.chain([&entry.package]).collect();
            for package in packages {
                self.by_package.entry(package.clone()).or_default().push(index);
            }
            *self.counts.entry(entry.id()).or_default() += 1;
        }
        self.channels = channels.into_values().collect();
        let mut of_entries: Vec<(usize, usize)> = Vec::new();
        for (channel, members) in self.channels.iter().enumerate() {
            of_entries.extend(members.iter().map(|index| (*index, channel)));
        }
        of_entries.sort_unstable();
        self.channel_of = of_entries.into_iter().map(|(_, channel)| channel).collect();
    }

    /// The installed entries.
    pub(super) fn existing(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take_while(|entry| entry.is_existing())
    }

    /// Whether there is no other entry with the same id.
    pub(super) fn is_unique(&self, entry: &Entry) -> bool {
        self.counts.get(&entry.id()) == Some(&1)
    }

    /// The entries of a catalog; of all, also the installed ones, where none is named.
    pub(super) fn of_catalog<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| {
            let is_any = namespace.is_empty() && name.is_empty();
            is_any || (entry.catalog == name && entry.catalog_namespace == namespace)
        })
    }

    /// The entries that satisfy a requirement of another one: installed ones first, then by catalog, channel and chain.
    pub(super) fn providers(&self, of: &Entry, wanted: &Predicate) -> Result<Vec<&Entry>, String> {
        let found: Vec<usize> = match wanted {
            Predicate::Gvk(gvk) => self.by_gvk.get(gvk).cloned().unwrap_or_default(),
            Predicate::Package(name, ..) => self.by_package.get(name).cloned().unwrap_or_default(),
            _ => (0..self.entries.len()).collect(),
        };
        let found = found
            .into_iter()
            .filter_map(|index| Some((index, self.entries.get(index)?)))
            .filter(|(_, entry)| wanted.holds(entry));
        let (mut providers, mut channels) = (Vec::new(), BTreeSet::new());
        for (index, entry) in found {
            if let Some(channel) = self.channel_of.get(index) {
                channels.insert((self.rank(of, entry), !entry.is_default_channel, *channel));
            }
        }
        for (_, _, channel) in channels {
            let members = self.channels.get(channel).into_iter().flatten();
            let members = members.filter_map(|index| self.entries.get(*index));
            // Of the installed ones only those count that satisfy the requirement.
            let members: Vec<&Entry> = members
                .filter(|entry| !entry.is_existing() || wanted.holds(entry))
                .collect();
            let chain = chain::sorted(&members)?;
            providers.extend(chain.into_iter().filter(|entry| wanted.holds(entry)));
        }
        Ok(providers)
    }

    /// The preference of an entry's catalog where another entry requires it: first the installed ones, then the requiring
    /// entry's own catalog.
    fn rank(&self, of: &Entry, entry: &Entry) -> usize {
        if entry.is_existing() {
            return 0;
        }
        if of.catalog == entry.catalog && of.catalog_namespace == entry.catalog_namespace {
            return 1;
        }
        let mut catalogs = self.catalogs.iter();
        let found = catalogs
            .position(|(namespace, name)| *namespace == entry.catalog_namespace && *name == entry.catalog);
        found.map_or(usize::MAX, |index| index + 2)
    }
}

/// Several errors as one; an error that is there twice is shown once.
pub(super) fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match &errors[..] {
        [error] => error.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The installed ClusterServiceVersions. Where the OperatorGroup lets upgrades pass over failures, those that a failed one
/// replaces are left out.
fn existing(request: &Request<'_>, group: &Value) -> Result<Vec<Entry>, String> {
    let fails_forward = text(group, "/spec/upgradeStrategy") == "TechPreviewUnsafeFailForward";
    let is_here = |object: &&Value| text(object, "/metadata/namespace") == request.namespace;
    let mut csvs: Vec<&Value> = request.csvs.iter().copied().filter(is_here).collect();
    csvs.sort_by_key(|csv| text(csv, "/metadata/name"));
    let mut entries = Vec::new();
    for object in &csvs {
        let csv = ClusterServiceVersion::read(object).map_err(|error| error.to_string())?;
        if csv.is_copy() {
            continue;
        }
        if fails_forward && ends_in_failure(&csv.metadata.name, &csvs)? && csv.status.phase == "Replacing" {
            continue;
        }
        entries.push(Entry::of_csv(
            object,
            request.subscriptions.iter().copied().filter(is_here),
        )?);
    }
    Ok(entries)
}
