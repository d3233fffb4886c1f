//! The resolution of a namespace: the operators that its Subscriptions install.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::cluster::{items, text};
use crate::subscription::{Resolution, ResolveError};

mod chain;
mod entry;
mod entry_index;
mod predicate;
mod refused;
mod remedy;
mod skipped_versions;
mod snapshot;
mod solver;
mod steps;
mod unpacked;
mod variables;

pub use chain::ends_in_failure;
pub use entry::{EXISTING, Entry};
pub use entry_index::EntryIndex;
pub use refused::without_bundles;
use refused::without_refused;
pub use solver::{Constraint, Rule, SolveError, Variable, solve};
pub use unpacked::{Bundle, take_bundles};

/// A catalog. A clone shares the content.
#[derive(Debug, Clone)]
pub struct CatalogContent {
    /// The name of the CatalogSource.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its priority; higher ones are preferred.
    pub priority: i64,
    /// Its entries, or the reason why they are unknown.
    pub content: Result<Arc<EntryIndex>, String>,
}

/// Input of a resolution.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The namespace whose catalogs are visible everywhere.
    pub global_namespace: &'a str,
    /// The OperatorGroups of the namespace.
    pub operator_groups: Vec<&'a Value>,
    /// The catalogs of both namespaces.
    pub catalogs: &'a [CatalogContent],
    /// The Subscriptions of the namespace.
    pub subscriptions: Vec<&'a Value>,
    /// The ClusterServiceVersions of the namespace.
    pub csvs: Vec<&'a Value>,
}

/// Result of a resolution.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The operators that are chosen and not installed.
    pub operators: Vec<Entry>,
    /// The steps, the bundles to unpack, and the Subscriptions that move.
    pub resolution: Resolution,
    /// Subscriptions that need a bundle which cannot be unpacked and do not stop the others, by name.
    pub left_out: BTreeMap<String, BundleName>,
}

impl Resolved {
    /// The operator of a lookup.
    pub fn operator(&self, lookup: &Value) -> Option<&Entry> {
        let bundle = BundleName::of_lookup(lookup);
        self.operators.iter().find(|entry| bundle.is_of(entry))
    }

    /// Those of the Subscriptions that ask for the operator of a lookup; none for a dependency.
    pub fn asking<'a>(&self, lookup: &Value, subscriptions: &'a [Value]) -> Vec<&'a Value> {
        let operator = self.operator(lookup);
        let is_for = |found: &&Value| operator.is_some_and(|entry| steps::is_for(found, entry));
        subscriptions.iter().filter(is_for).collect()
    }
}

/// Those of the Subscriptions of a namespace whose requirements hold for a bundle that an InstallPlan refers to: all of
/// its package, whatever channel and catalog they ask for since the plan was made, and those that moved to it. All where
/// the lookup names no package.
pub fn asking_later<'a>(lookup: &Value, subscriptions: impl Iterator<Item = &'a Value>) -> Vec<&'a Value> {
    let properties: Value = serde_json::from_str(text(lookup, "/properties")).unwrap_or_default();
    let packages: Vec<&str> = items(&properties, "/properties")
        .filter(|property| text(property, "/type") == "olm.package")
        .map(|property| text(property, "/value/packageName"))
        .collect();
    let is_for = |found: &&Value| {
        packages.is_empty()
            || packages.contains(&text(found, "/spec/name"))
            || text(found, "/status/currentCSV") == text(lookup, "/identifier")
    };
    subscriptions.filter(is_for).collect()
}

/// The name of a bundle in a catalog.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleName {
    /// The namespace of the catalog.
    pub namespace: String,
    /// The name of the catalog.
    pub catalog: String,
    /// The name of the ClusterServiceVersion.
    pub name: String,
}

impl BundleName {
    /// The bundle of a lookup.
    pub fn of_lookup(lookup: &Value) -> Self {
        let of = |pointer: &str| text(lookup, pointer).to_owned();
        Self {
            namespace: of("/catalogSourceRef/namespace"),
            catalog: of("/catalogSourceRef/name"),
            name: of("/identifier"),
        }
    }

    fn is_of(&self, entry: &Entry) -> bool {
        self.name == entry.name && self.catalog == entry.catalog && self.namespace == entry.catalog_namespace
    }
}

/// Resolves a namespace. The answer does not depend on the order of the lists.
///
/// # Errors
/// When a catalog cannot be read, a chain or a requirement is unsound, or the constraints contradict each other.
pub fn resolve(request: &Request<'_>) -> Result<Resolved, ResolveError> {
    attempt(request, &subscriptions_here(request)).map_err(|failure| failure.error)
}

/// A resolution that failed.
struct Failure {
    error: ResolveError,
    /// What a user can change.
    remedies: Vec<String>,
}

impl Failure {
    /// The error, which also says what a user can change.
    fn explained(self) -> ResolveError {
        match self.error {
            ResolveError::NotSatisfiable(mut clauses) => {
                clauses.extend(self.remedies);
                ResolveError::NotSatisfiable(clauses)
            }
            error @ ResolveError::Other(_) => error,
        }
    }
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self {
            error: ResolveError::Other(error),
            remedies: Vec::new(),
        }
    }
}

/// The Subscriptions of the namespace, by name.
fn subscriptions_here<'a>(request: &Request<'a>) -> Vec<&'a Value> {
    let is_here = |object: &&Value| text(object, "/metadata/namespace") == request.namespace;
    let mut subscriptions: Vec<&Value> = request.subscriptions.iter().copied().filter(is_here).collect();
    subscriptions.sort_by_key(|subscription| text(subscription, "/metadata/name"));
    subscriptions
}

/// Resolves some of the Subscriptions. The versions that the others have installed may stay or not.
fn attempt(request: &Request<'_>, subscriptions: &[&Value]) -> Result<Resolved, Failure> {
    let [group] = request.operator_groups[..] else {
        let found = request.operator_groups.len();
        return Err(format!("expected 1 OperatorGroup in the namespace, found {found}").into());
    };
    let snapshot = snapshot::Snapshot::new(request, group)?;
    let variables = variables::variables(&snapshot, subscriptions)?;
    let chosen = match solve(&variables.all) {
        Ok(chosen) => chosen,
        Err(SolveError::NotSatisfiable(texts)) => {
            return Err(Failure {
                remedies: variables.remedies(&texts),
                error: ResolveError::NotSatisfiable(texts),
            });
        }
        Err(error) => return Err(error.to_string().into()),
    };
    let blocked = skipped_versions::skipped_versions(&variables, &chosen);
    let chosen = chosen.iter().filter_map(|id| variables.entries.get(id));
    let operators: Vec<Entry> = chosen.filter(|entry| !entry.is_existing()).cloned().collect();
    let mut resolved = steps::resolved(request.namespace, operators, subscriptions, &request.csvs)?;
    resolved.resolution.blocked = blocked;
    Ok(resolved)
}

/// Resolves a namespace as far as it can be.
///
/// Where Subscriptions cannot be satisfied for themselves, these are refused and the others move. Where catalogs cannot
/// be read, those Subscriptions move whose answer these catalogs could not have changed: each gets the version that it
/// prefers, and all that is new comes from the catalogs that Subscriptions name.
///
/// # Errors
/// As [`resolve`]; constraints that contradict each other are followed by what a user can change.
pub fn resolve_available(request: &Request<'_>) -> Result<Resolved, ResolveError> {
    let whole = match attempt(request, &subscriptions_here(request)) {
        Ok(resolved) => return Ok(resolved),
        Err(failure) => failure.explained(),
    };
    let readable: Vec<CatalogContent> = readable(request).cloned().collect();
    if readable.len() == request.catalogs.len() {
        return without_refused(request, &whole).ok_or(whole);
    }
    let reduced = Request {
        catalogs: &readable,
        ..request.clone()
    };
    let resolved = match resolve(&reduced) {
        Ok(resolved) => Some(resolved),
        Err(_) => without_refused(&reduced, &whole),
    };
    let mut resolved = match resolved {
        Some(resolved) if is_certain(&resolved, request, &refused(&resolved.resolution)) => resolved,
        _ => return Err(whole),
    };
    // What a refused Subscription lacks may be in a catalog that cannot be read.
    for error in resolved.resolution.refused.values_mut() {
        error.clone_from(&whole);
    }
    Ok(resolved)
}

/// The catalogs that can be read.
fn readable<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a CatalogContent> + use<'a> {
    let catalogs = request.catalogs.iter();
    catalogs.filter(|catalog| catalog.content.is_ok())
}

/// The names of the refused Subscriptions.
fn refused(resolution: &Resolution) -> BTreeSet<&str> {
    resolution.refused.keys().map(String::as_str).collect()
}

/// Whether more catalogs would not have changed the answer for the Subscriptions that are not left out.
fn is_certain(resolved: &Resolved, request: &Request<'_>, left_out: &BTreeSet<&str>) -> bool {
    let is_named = |entry: &Entry| {
        request.subscriptions.iter().any(|subscription| {
            if left_out.is_empty() {
                return text(subscription, "/spec/source") == entry.catalog
                    && text(subscription, "/spec/sourceNamespace") == entry.catalog_namespace;
            }
            // A dependency could stand in the way of what a Subscription that is left out gets later.
            !left_out.contains(text(subscription, "/metadata/name")) && steps::is_for(subscription, entry)
        })
    };
    resolved.resolution.blocked.is_empty() && resolved.operators.iter().all(is_named)
}

#[cfg(test)]
mod tests;
