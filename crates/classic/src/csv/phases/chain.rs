//! Chains of replacements in a namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::CsvPass;
use crate::cluster::{items, label, text};
use crate::csv::ClusterServiceVersion;
use crate::names;

/// The one that replaces a ClusterServiceVersion, the first by name where several do. Copies do not.
pub(super) fn next<'a>(pass: &'a CsvPass<'_>, name: &'a str) -> Option<&'a Value> {
    siblings(pass).find(|other| {
        !is_copy(other) && text(other, "/spec/replaces") == name && text(other, "/metadata/name") != name
    })
}

/// The end of the chain of those that replace each other.
///
/// # Errors
/// When the chain is a circle.
pub(super) fn last<'a>(pass: &'a CsvPass<'_>, first: &'a Value) -> Result<&'a Value, String> {
    let replacements: BTreeMap<&str, &Value> = siblings(pass)
        .filter(|other| label(other, names::COPIED_FROM_LABEL).is_empty())
        .map(|other| (text(other, "/spec/replaces"), other))
        .filter(|(replaced, _)| !replaced.is_empty())
        .collect();
    let (mut here, mut seen) = (first, BTreeSet::new());
    while let Some(next) = replacements.get(text(here, "/metadata/name")) {
        let name = text(here, "/metadata/name");
        if !seen.insert(name) {
            return Err(format!("csv {}/{name} has already been seen", pass.namespace()));
        }
        here = next;
    }
    Ok(here)
}

fn is_copy(csv: &Value) -> bool {
    ClusterServiceVersion::read(csv).is_ok_and(|csv| csv.is_copy())
}

/// The first of a chain that is not itself being replaced: those before it were installed, and none of them will come
/// back.
pub(super) fn running<'a>(pass: &'a CsvPass<'_>, first: &'a Value) -> &'a Value {
    let (mut here, mut seen) = (first, BTreeSet::from([pass.name()]));
    while matches!(text(here, "/status/phase"), "Replacing" | "Deleting")
        && seen.insert(text(here, "/metadata/name"))
    {
        match next(pass, text(here, "/metadata/name")) {
            Some(found) if !seen.contains(text(found, "/metadata/name")) => here = found,
            _ => break,
        }
    }
    here
}

/// Whether a ClusterServiceVersion outside the chain of this one owns one of its CustomResourceDefinitions. The chain
/// are those that it replaces and those that replace it, directly or through others.
pub(super) fn has_other_owner(pass: &CsvPass<'_>) -> bool {
    let owned: BTreeSet<&str> = pass
        .csv
        .spec
        .custom_resource_definitions
        .owned
        .iter()
        .map(|owned| owned.name.as_str())
        .collect();
    let mut chain = BTreeSet::from([pass.name()]);
    let mut here = pass.csv.spec.replaces.as_str();
    while let Some(found) = pass.sibling(here)
        && chain.insert(here)
    {
        here = text(found, "/spec/replaces");
    }
    here = pass.name();
    while let Some(found) = next(pass, here) {
        here = text(found, "/metadata/name");
        if !chain.insert(here) {
            break;
        }
    }
    siblings(pass)
        .filter(|other| label(other, names::COPIED_FROM_LABEL).is_empty())
        .filter(|other| !chain.contains(text(other, "/metadata/name")))
        .any(|other| {
            items(other, "/spec/customresourcedefinitions/owned")
                .any(|definition| owned.contains(text(definition, "/name")))
        })
}

fn siblings<'a>(pass: &'a CsvPass<'_>) -> impl Iterator<Item = &'a Value> {
    pass.facts.cluster.in_namespace(names::CSV_KIND, pass.namespace())
}
