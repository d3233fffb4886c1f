//! The operators that a resolution may choose from.

use std::collections::BTreeSet;

use olm_api::names::EXCLUDE_GLOBAL_CATALOGS;
use serde_json::Value;

use super::chain::{Member, ends_in_failure};
use super::entry::{self, EXISTING, Entry};
use super::entry_index::EntryIndex;
use super::predicate::Predicate;
use super::{CatalogContent, Request};
use crate::cluster::text;
use crate::csv::ClusterServiceVersion;

/// The installed ClusterServiceVersions, and the entries of the visible catalogs.
pub(super) struct Snapshot<'a> {
    existing: EntryIndex,
    /// In the order of preference.
    catalogs: Vec<(&'a CatalogContent, &'a EntryIndex)>,
    /// The versions that a Subscription moves to or that another version replaces.
    moving: BTreeSet<&'a str>,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(request: &Request<'a>, group: &Value) -> Result<Self, String> {
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
        let existing = existing(request, group).unwrap_or_else(|error| {
            errors.push((request.namespace, EXISTING, error));
            Vec::new()
        });
        let mut catalogs = Vec::new();
        for catalog in visible {
            match &catalog.content {
                Ok(index) => catalogs.push((catalog, index.as_ref())),
                Err(error) => errors.push((&catalog.namespace, &catalog.name, error.clone())),
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
        Ok(Self {
            existing: EntryIndex::of(existing),
            catalogs,
            moving: moving(request),
        })
    }

    /// The installed entries.
    pub(super) fn existing(&self) -> impl Iterator<Item = Candidate<'_>> {
        let entries = self.existing.entries().iter();
        entries.map(|entry| Candidate { entry, catalog: None })
    }

    /// The installed entries that no Subscription refers to, and that are no part of an upgrade.
    pub(super) fn abandoned(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.existing.entries().iter();
        entries.filter(|entry| entry.subscription.is_none() && !self.moving.contains(entry.name.as_str()))
    }

    /// The visible catalogs, in the order of preference.
    pub(super) fn catalogs(&self) -> impl Iterator<Item = (&'a CatalogContent, &'a EntryIndex)> {
        self.catalogs.iter().copied()
    }

    /// Whether there is no other entry with the same id. The entry knows its catalog.
    pub(super) fn is_unique(&self, entry: &Entry) -> bool {
        if entry.is_existing() {
            return self.existing.is_unique(entry);
        }
        let mut catalogs = self.catalogs.iter();
        let found = catalogs.find(|(catalog, _)| {
            catalog.name == entry.catalog && catalog.namespace == entry.catalog_namespace
        });
        found.is_some_and(|(_, index)| index.is_unique(entry))
    }

    /// The index of a catalog that is not empty; of all catalogs and the installed versions where none is named.
    pub(super) fn of_catalog(
        &self,
        namespace: &str,
        name: &str,
    ) -> Vec<(Option<&'a CatalogContent>, &EntryIndex)> {
        let is_any = namespace.is_empty() && name.is_empty();
        let catalogs = self.catalogs.iter();
        let named = catalogs
            .filter(|(catalog, _)| is_any || (catalog.name == name && catalog.namespace == namespace))
            .map(|(catalog, index)| (Some(*catalog), *index));
        let installed = is_any.then_some((None, &self.existing));
        installed
            .into_iter()
            .chain(named)
            .filter(|(_, index)| !index.entries().is_empty())
            .collect()
    }

    /// The entries that satisfy a requirement of another one: installed ones first, then by catalog, channel and chain.
    /// The other one's own catalog is the first.
    pub(super) fn providers(&self, of: &Entry, wanted: &Predicate) -> Result<Vec<Candidate<'_>>, String> {
        let is_own = |catalog: &CatalogContent| {
            of.catalog == catalog.name && of.catalog_namespace == catalog.namespace
        };
        let existing = self.existing.by_chain(wanted)?.into_iter();
        let mut providers: Vec<Candidate<'_>> =
            existing.map(|entry| Candidate { entry, catalog: None }).collect();
        let own = self.catalogs.iter().filter(|(catalog, _)| is_own(catalog));
        let others = self.catalogs.iter().filter(|(catalog, _)| !is_own(catalog));
        for (catalog, index) in own.chain(others) {
            let found = index.by_chain(wanted)?.into_iter();
            providers.extend(found.map(|entry| Candidate {
                entry,
                catalog: Some(catalog),
            }));
        }
        Ok(providers)
    }
}

/// An entry with its catalog; without one it is installed.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) entry: &'a Entry,
    pub(super) catalog: Option<&'a CatalogContent>,
}

impl Member for Candidate<'_> {
    fn entry(&self) -> &Entry {
        self.entry
    }
}

impl Candidate<'_> {
    /// The name of its variable.
    pub(super) fn id(&self) -> String {
        let (namespace, name) = self.catalog.map_or_else(
            || (&self.entry.catalog_namespace, &self.entry.catalog),
            |catalog| (&catalog.namespace, &catalog.name),
        );
        entry::id(name, namespace, self.entry)
    }

    /// The entry, which knows its catalog.
    pub(super) fn to_entry(self) -> Entry {
        let mut entry = self.entry.clone();
        if let Some(catalog) = self.catalog {
            entry.catalog.clone_from(&catalog.name);
            entry.catalog_namespace.clone_from(&catalog.namespace);
        }
        entry
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

/// The versions that a Subscription moves to or that another version replaces.
fn moving<'a>(request: &Request<'a>) -> BTreeSet<&'a str> {
    let current = request
        .subscriptions
        .iter()
        .map(|found| text(found, "/status/currentCSV"));
    let replaced = request.csvs.iter().map(|csv| text(csv, "/spec/replaces"));
    current.chain(replaced).collect()
}

/// The installed ClusterServiceVersions. Where the OperatorGroup lets upgrades pass over failures, those that a failed
/// one replaces are left out.
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
