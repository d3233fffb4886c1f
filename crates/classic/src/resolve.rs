//! The resolution of a namespace: the operators that its Subscriptions install.

use std::sync::Arc;

use serde_json::Value;

use crate::cluster::text;
use crate::subscription::{Resolution, ResolveError};

mod chain;
mod content;
mod entry;
mod predicate;
mod snapshot;
mod solver;
mod steps;
mod unpacked;
mod variables;

pub use chain::ends_in_failure;
pub use content::Content;
pub use entry::{EXISTING, Entry};
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
    /// What it offers, or why that is not known.
    pub content: Result<Arc<Content>, String>,
}

/// What a resolution looks at.
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

/// What a resolution finds.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The operators that are chosen and not installed.
    pub operators: Vec<Entry>,
    /// The steps, the bundles to unpack, and the Subscriptions that move.
    pub resolution: Resolution,
}

/// Resolves a namespace. The answer does not depend on the order of the lists.
///
/// # Errors
/// When a catalog cannot be read, a chain or a requirement is unsound, or the constraints contradict each other.
pub fn resolve(request: &Request<'_>) -> Result<Resolved, ResolveError> {
    let [group] = request.operator_groups[..] else {
        return Err(ResolveError::Other(format!(
            "expected 1 OperatorGroup in the namespace, found {}",
            request.operator_groups.len()
        )));
    };
    let snapshot = snapshot::Snapshot::new(request, group).map_err(ResolveError::Other)?;
    let is_here = |object: &&Value| text(object, "/metadata/namespace") == request.namespace;
    let mut subscriptions: Vec<&Value> = request.subscriptions.iter().copied().filter(is_here).collect();
    subscriptions.sort_by_key(|subscription| text(subscription, "/metadata/name"));
    let variables =
        variables::variables(&snapshot, request.namespace, &subscriptions).map_err(ResolveError::Other)?;
    let chosen = match solve(&variables.all) {
        Ok(chosen) => chosen,
        Err(SolveError::NotSatisfiable(texts)) => return Err(ResolveError::NotSatisfiable(texts)),
        Err(error) => return Err(ResolveError::Other(error.to_string())),
    };
    let chosen = chosen.iter().filter_map(|id| variables.entries.get(id));
    let operators: Vec<Entry> = chosen.filter(|entry| !entry.is_existing()).cloned().collect();
    steps::resolved(request.namespace, operators, &subscriptions, &request.csvs).map_err(ResolveError::Other)
}
