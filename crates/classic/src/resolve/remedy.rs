//! What a user can change about constraints that contradict each other, as more clauses of the refusal.

use std::collections::BTreeSet;

use olm_api::text::{escape, first_of};
use olm_fbc::similar::nearest;
use serde_json::Value;

use super::chain;
use super::entry::Entry;
use super::predicate::Predicate;
use super::snapshot::Snapshot;
use crate::cluster::text;

/// Most names of a list that are shown.
const SHOWN: usize = 10;

/// The field of a Subscription that leads to no operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The catalog.
    Catalog,
    /// The package.
    Package,
    /// The channel.
    Channel,
    /// The version to start with.
    StartingCsv,
}

/// The remedy for an installed version without a Subscription among these.
pub(super) fn of_unreferenced(entry: &Entry, subscriptions: &[&Value]) -> String {
    let (name, namespace) = (&entry.name, &entry.catalog_namespace);
    let mut subscriptions = subscriptions.iter();
    match subscriptions.find(|subscription| entry.is_of(text(subscription, "/spec/name"))) {
        Some(heir) => format!(
            "to continue, run `kubectl delete csv {name} -n {namespace}`: subscription {} installs the operator again",
            text(heir, "/metadata/name")
        ),
        None => {
            format!(
                "if nothing needs clusterserviceversion {name}, run `kubectl delete csv {name} -n {namespace}`"
            )
        }
    }
}

/// The remedy for a Subscription that leads to no operator.
pub(super) fn of_lack(snapshot: &Snapshot<'_>, subscription: &Value, lack: Lack) -> Option<String> {
    let of = |pointer| text(subscription, pointer);
    let (package, channel) = (of("/spec/name"), of("/spec/channel"));
    let (source, source_namespace) = (of("/spec/source"), of("/spec/sourceNamespace"));
    let found = snapshot.of_catalog(source_namespace, source);
    let entries = || found.iter().flat_map(|(_, index)| index.of_package(package));
    match lack {
        Lack::Catalog => Some(visible(snapshot, source_namespace, source)),
        Lack::Package => {
            let mut others = snapshot.catalogs();
            let other = others.find(|(_, index)| index.of_package(package).next().is_some());
            if let Some((other, _)) = other {
                return Some(format!(
                    "catalog {}/{} has package {package}",
                    other.namespace, other.name
                ));
            }
            let packages = found.iter().flat_map(|(_, index)| index.packages());
            let namespace = of("/metadata/namespace");
            Some(nearest(package, packages).map_or_else(
                || format!("`kubectl get packagemanifests -n {namespace}` lists the packages"),
                |similar| format!("the catalog has package {}", escape(similar)),
            ))
        }
        Lack::Channel => {
            let channels: BTreeSet<&str> = entries().map(|entry| entry.channel.as_str()).collect();
            Some(format!("package {package} has the channels {}", listed(channels)))
        }
        Lack::StartingCsv => {
            let is_meant = |entry: &&Entry| match channel {
                "" => entry.is_default_channel,
                channel => entry.channel == channel,
            };
            let members: Vec<&Entry> = entries().filter(is_meant).collect();
            let chain = chain::sorted(&members).ok()?;
            let newest = chain.first()?;
            Some(format!(
                "the newest version in channel {} is {}",
                escape(&newest.channel),
                escape(&newest.name)
            ))
        }
    }
}

/// The remedy for a requirement that no operator satisfies.
pub(super) fn of_requirement(snapshot: &Snapshot<'_>, wanted: &Predicate) -> String {
    if let Predicate::Package(name, ..) = wanted {
        let entries = snapshot.catalogs().flat_map(|(_, index)| index.of_package(name));
        let mut versions: Vec<_> = entries.filter_map(|entry| entry.version.as_ref()).collect();
        versions.sort();
        versions.dedup();
        versions.reverse();
        if !versions.is_empty() {
            let versions = first_of(versions.into_iter(), SHOWN);
            return format!(
                "the visible catalogs have package {} in the versions {versions}",
                escape(name)
            );
        }
    }
    format!("no visible catalog has an operator {}", wanted.text())
}

/// The visible catalogs, for a Subscription to one that offers nothing.
fn visible(snapshot: &Snapshot<'_>, namespace: &str, name: &str) -> String {
    let is_named = snapshot
        .catalogs()
        .any(|(catalog, _)| catalog.name == name && catalog.namespace == namespace);
    if is_named {
        return format!("catalog {namespace}/{name} has no packages");
    }
    let catalogs = snapshot
        .catalogs()
        .map(|(catalog, _)| format!("{}/{}", catalog.namespace, catalog.name));
    let catalogs: Vec<String> = catalogs.collect();
    if catalogs.is_empty() {
        return "no catalog is visible in the namespace".to_owned();
    }
    format!(
        "the visible catalogs are {}",
        first_of(catalogs.into_iter(), SHOWN)
    )
}

/// A list of names from a catalog.
fn listed(names: BTreeSet<&str>) -> String {
    first_of(names.into_iter().map(escape), SHOWN)
}
