//! The newest version that would be chosen, the newest that there is, and why the two differ.

use crate::blocker::Blocker;
use crate::catalog::Catalog;
use crate::channels;
use crate::choose;
use crate::cluster::compatibility::{self, ClusterState, CompatibilityCheck};
use crate::package::Candidate;
use crate::range::{Fit, fit};
use crate::refusal::Refusal;
use crate::request::{Installed, Request};
use crate::successors::Successors;
use crate::{Resolution, fitting, resolve_in};

/// What an extension would get now, and what there is beyond.
#[derive(Debug)]
pub struct Updates<'a> {
    /// What would be chosen, or why nothing.
    pub chosen: Result<Resolution<'a>, Refusal>,
    /// The newest bundle of the package, when it is newer than what would be chosen.
    pub newest: Option<Newest<'a>>,
}

/// A bundle that is not chosen although it is newer.
#[derive(Clone, Debug)]
pub struct Newest<'a> {
    /// The bundle.
    pub bundle: &'a Candidate,
    /// The catalog that has it.
    pub catalog: &'a str,
    /// Everything that stands in its way.
    pub obstacles: Vec<Obstacle>,
}

/// Why a bundle is not chosen.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Obstacle {
    /// The channels that are asked for do not hold it.
    #[error("it is in other channels: {0}")]
    Channel(String),
    /// It is outside the range.
    #[error("it is outside the version range {0:?}")]
    Range(String),
    /// It is a pre-release, which the range does not admit.
    #[error("it is a pre-release, which the version range {0:?} does not admit")]
    Prerelease(String),
    /// No edge leads to it.
    #[error("no update edge leads to it from {0}")]
    Edge(String),
    /// The cluster or its extensions do not meet what it needs.
    #[error(transparent)]
    Blocked(#[from] Blocker),
    /// Its catalog deprecates it, and the chosen one not.
    #[error("its catalog deprecates it")]
    Deprecated,
    /// Another catalog comes first.
    #[error("catalog {0} comes first")]
    Priority(String),
}

/// What a request gets on a cluster, and the newest bundle of the selected catalogs.
///
/// # Errors
/// When the request or a catalog cannot be read.
pub fn updates<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &ClusterState<'_>,
) -> Result<Updates<'a>, Refusal> {
    let chosen = resolve_in(catalogs, request, installed, facts);
    let (selected, context) = fitting(catalogs, request, installed)?;
    let candidates = selected.iter().flat_map(|catalog| {
        let candidates = catalog.package.candidates().iter();
        candidates.map(move |candidate| (catalog, candidate))
    });
    let readable = candidates.filter(|(_, candidate)| candidate.version.is_ok());
    // Of equals the one that comes first.
    let newest = readable.max_by(|(left_catalog, left), (right_catalog, right)| {
        let by_catalog = || left_catalog.priority.cmp(&right_catalog.priority);
        let by_name = || right_catalog.name.cmp(left_catalog.name);
        left.compare_versions(right)
            .then_with(by_catalog)
            .then_with(by_name)
    });
    let reached = chosen.as_ref().ok().map(|chosen| chosen.bundle);
    let newest =
        newest.filter(|(_, newest)| reached.is_none_or(|reached| newest.compare_versions(reached).is_gt()));
    let newest = newest.map(|(catalog, bundle)| {
        let mut obstacles = obstacles(catalog, bundle, &context, facts);
        if obstacles.is_empty()
            && let Ok(chosen) = &chosen
        {
            obstacles.push(if bundle.is_deprecated {
                Obstacle::Deprecated
            } else {
                Obstacle::Priority(chosen.catalog.to_owned())
            });
        }
        Newest {
            bundle,
            catalog: catalog.name,
            obstacles,
        }
    });
    Ok(Updates { chosen, newest })
}

fn obstacles(
    catalog: &crate::catalog::Selected<'_>,
    bundle: &Candidate,
    context: &choose::Context<'_>,
    facts: &ClusterState<'_>,
) -> Vec<Obstacle> {
    let (package, request) = (catalog.package, context.request);
    let mut found = Vec::new();
    let members = channels::members(package, request);
    if members.is_some_and(|members| !members.contains(bundle.name.as_str())) {
        let channels: Vec<&str> = package.channels_of(&bundle.name).collect();
        found.push(Obstacle::Channel(channels.join(", ")));
    }
    let range = request.version.unwrap_or_default().to_owned();
    match fit(bundle, context.range.as_ref()) {
        Fit::Inside | Fit::Unknown => {}
        Fit::Prerelease => found.push(Obstacle::Prerelease(range)),
        Fit::Outside => found.push(Obstacle::Range(range)),
    }
    if let Some(current) = &context.current
        && Successors::new(package, request, current).to(bundle).is_none()
    {
        found.push(Obstacle::Edge(current.name.to_owned()));
    }
    let served = compatibility::without_own(facts);
    let blockers = CompatibilityCheck::new(*facts, &served).blockers(bundle);
    found.extend(blockers.into_iter().map(Obstacle::from));
    found
}
