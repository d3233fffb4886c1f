//! The findings about one Subscription. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::ClusterExtension;
use serde::Serialize;
use serde_json::Value;

use crate::check::{Choices, Finding, Severity, check};
use crate::facts::{Case, ClassicObjects, name};
use crate::mapping::{self, Change};
use crate::needs::group_of;

/// Whether a Subscription can move, and its new objects.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assessment {
    /// The namespace of the Subscription.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The package.
    pub package: String,
    /// The installed version; empty if unknown.
    pub version: String,
    /// Whether nothing blocks the move.
    #[serde(rename = "canMove")]
    is_free: bool,
    /// The Subscriptions, as `NAMESPACE/NAME`, that move in the same call because the operators need each other.
    #[serde(rename = "movesWith")]
    pub moves_with: Vec<String>,
    /// The findings against the move.
    pub findings: Vec<Finding>,
    /// The new places of the settings.
    pub changes: Vec<Change>,
    /// The ClusterCatalog that is missing, and the ClusterExtension.
    pub manifests: Vec<Value>,
    /// The ClusterExtension.
    #[serde(skip)]
    pub extension: ClusterExtension,
}

impl Assessment {
    /// Whether nothing blocks the move.
    pub fn can_move(&self) -> bool {
        self.is_free
    }

    /// Adds findings that the facts do not show.
    pub fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|finding| finding.severity);
        self.is_free = is_free(&self.findings);
    }

    /// `NAMESPACE/NAME` of the Subscription.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Judges a Subscription that would become a ClusterExtension called `extension`.
pub fn assess(case: Case<'_>, extension: &str, choices: &Choices) -> Assessment {
    let findings = check(case, extension, choices);
    let made = mapping::extension(case, extension, choices, &findings);
    let catalog = mapping::catalog(case).and_then(|catalog| serde_json::to_value(catalog).ok());
    let manifests = catalog.into_iter().chain(serde_json::to_value(&made).ok());
    Assessment {
        namespace: case.namespace().to_owned(),
        name: name(case.subscription).to_owned(),
        package: case.package().to_owned(),
        version: case.number().to_owned(),
        is_free: is_free(&findings),
        moves_with: Vec::new(),
        changes: mapping::changes(case, &made),
        manifests: manifests.map(manifest).collect(),
        findings,
        extension: made,
    }
}

/// Whether none of the findings is due.
fn is_free(findings: &[Finding]) -> bool {
    let mut findings = findings.iter();
    findings.all(|finding| finding.severity == Severity::Acknowledged)
}

/// Orders the assessments of Subscriptions that move in one call: of operators that need each other, each comes after
/// those that it needs, and none moves if another one cannot.
pub fn bind(assessed: &mut Vec<Assessment>, groups: &[Vec<String>]) {
    let order: Vec<&String> = groups.iter().flatten().collect();
    assessed.sort_by_cached_key(|one| {
        let key = one.key();
        order
            .iter()
            .position(|known| **known == key)
            .unwrap_or(usize::MAX)
    });
    let held: BTreeSet<String> = assessed
        .iter()
        .filter(|one| !one.can_move())
        .map(Assessment::key)
        .collect();
    let present: BTreeSet<String> = assessed.iter().map(Assessment::key).collect();
    for one in assessed {
        let key = one.key();
        let group = group_of(groups, &key).into_iter();
        one.moves_with = group
            .filter(|other| *other != key && present.contains(other))
            .collect();
        let holding = one.moves_with.iter().find(|other| held.contains(*other));
        if let Some(other) = holding.filter(|_| one.is_free) {
            one.findings.insert(
                0,
                Finding::blocking(
                    "dependency",
                    format!("Subscription {other} moves together with this one, and cannot move yet"),
                    "see its findings",
                ),
            );
            one.is_free = false;
        }
    }
}

/// An object as a user writes it.
fn manifest(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

/// The names of the ClusterExtensions of all Subscriptions, by `NAMESPACE/NAME`: that of the Subscription, prefixed by
/// its namespace if several Subscriptions have the same name.
pub fn names(facts: &ClassicObjects) -> BTreeMap<String, String> {
    let mut seen = BTreeSet::new();
    let shared: BTreeSet<&str> = facts
        .subscriptions
        .iter()
        .map(name)
        .filter(|name| !seen.insert(*name))
        .collect();
    facts
        .subscriptions
        .iter()
        .map(|subscription| {
            let case = Case { facts, subscription };
            let own = name(subscription);
            let made = case.successor().map(|made| made.name().to_owned());
            let wanted = made.unwrap_or_else(|| {
                if shared.contains(own) {
                    format!("{}-{own}", case.namespace())
                } else {
                    own.to_owned()
                }
            });
            (case.key(), wanted)
        })
        .collect()
}
