//! The next version, the newest version, and the reasons why they differ.

use std::fmt;

use olm_api::text::escape;
use olm_api::updates::held_back;
use olm_version::masterminds::Constraint;

use crate::blocker::Blocker;
use crate::catalog::{Catalog, Selected};
use crate::channels;
use crate::choose;
use crate::cluster::compatibility::{self, ClusterState, CompatibilityCheck};
use crate::package::Candidate;
use crate::range::{Fit, fit};
use crate::refusal::Refusal;
use crate::request::{Installed, Request};
use crate::successors::Successors;
use crate::{Resolution, fitting, resolve_in};

/// The bundle that an extension would get now, and newer ones.
#[derive(Debug)]
pub struct Updates<'a> {
    /// The chosen bundle, or the reason why there is none.
    pub chosen: Result<Resolution<'a>, Refusal>,
    /// The newest bundle of the package, if it is newer than the chosen one.
    pub newest: Option<Newest<'a>>,
}

/// The newest bundle, and the reasons why it is not chosen.
#[derive(Clone, Debug)]
pub struct Newest<'a> {
    /// The bundle.
    pub bundle: &'a Candidate,
    /// The catalog that has it.
    pub catalog: &'a str,
    /// The obstacles; empty if it is chosen, or no bundle is.
    pub obstacles: Vec<UpdateObstacle>,
}

impl fmt::Display for Newest<'_> {
    /// The text on one line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why: Vec<String> = self
            .obstacles
            .iter()
            .map(|obstacle| escape(&obstacle.to_string()).into_owned())
            .collect();
        let (bundle, catalog) = (escape(&self.bundle.name), escape(self.catalog));
        write!(
            formatter,
            "{bundle} of catalog {catalog} is not chosen: {}",
            why.join("; ")
        )
    }
}

/// An obstacle to an update to a bundle.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpdateObstacle {
    /// The bundle is not in a requested channel.
    #[error("it is in other channels: {0}")]
    Channel(String),
    /// The request is pinned to another version.
    #[error("the version is pinned to {0}")]
    Pin(String),
    /// The bundle is outside the range.
    #[error("it is outside the version range {0:?}")]
    Range(String),
    /// The bundle is a pre-release, which the range excludes.
    #[error("it is a pre-release, which the version range {0:?} does not admit")]
    Prerelease(String),
    /// No edge leads to the bundle.
    #[error("no update edge leads to it from {0}")]
    Edge(String),
    /// The bundle has a blocker on the cluster.
    #[error(transparent)]
    Blocked(#[from] Blocker),
    /// The catalog deprecates it, but not the chosen one.
    #[error("its catalog deprecates it")]
    Deprecated,
    /// Another catalog has precedence.
    #[error("catalog {0} comes first")]
    Priority(String),
}

impl UpdateObstacle {
    /// The reason why the bundle is held back, one of [`held_back`]'s constants.
    pub fn held_back_by(&self) -> &'static str {
        match self {
            Self::Channel(_) => held_back::CHANNEL,
            Self::Pin(_) => held_back::PIN,
            Self::Range(_) => held_back::RANGE,
            Self::Prerelease(_) => held_back::PRERELEASE,
            Self::Edge(_) => held_back::EDGE,
            Self::Blocked(blocker) => blocker.held_back_by(),
            Self::Deprecated => held_back::DEPRECATED,
            Self::Priority(_) => held_back::CATALOG,
        }
    }
}

/// The bundle that a request gets on a cluster, and the newest bundle of the selected catalogs with its obstacles.
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
    let reached = chosen.as_ref().ok();
    let newest = highest(&selected);
    let newest = newest
        .filter(|(_, newest)| reached.is_none_or(|reached| newest.compare_versions(reached.bundle).is_gt()));
    let newest = newest.map(|(catalog, bundle)| {
        let mut obstacles = excluded(catalog, bundle, &context);
        obstacles.extend(blocked(bundle, facts));
        obstacles.extend(
            reached
                .filter(|_| obstacles.is_empty())
                .map(|chosen| preferred(bundle, chosen)),
        );
        Newest {
            bundle,
            catalog: catalog.name,
            obstacles,
        }
    });
    Ok(Updates { chosen, newest })
}

/// The newest bundle of the selected catalogs, if it is newer than the installed one or, without an installed one, than
/// the chosen one. The state of the cluster is read only if it alone decides, not for bundles that the request
/// excludes.
///
/// # Errors
/// When the request or a catalog cannot be read.
pub fn newest<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &ClusterState<'_>,
    chosen: Option<&Resolution<'a>>,
) -> Result<Option<Newest<'a>>, Refusal> {
    let (selected, context) = fitting(catalogs, request, installed)?;
    let Some((catalog, bundle)) = highest(&selected) else {
        return Ok(None);
    };
    let beyond = |chosen: &Resolution<'_>| bundle.compare_versions(chosen.bundle).is_gt();
    let present = installed.and_then(|installed| installed.version_release().ok());
    let is_newer = match (&present, &bundle.version) {
        (Some(present), Ok(version)) => version.compare(present).is_gt(),
        _ => chosen.is_none_or(beyond),
    };
    if !is_newer {
        return Ok(None);
    }
    let mut obstacles = Vec::new();
    if chosen.is_none_or(beyond) {
        obstacles = excluded(catalog, bundle, &context);
        if obstacles.is_empty() {
            obstacles = blocked(bundle, facts);
        }
        obstacles.extend(
            chosen
                .filter(|_| obstacles.is_empty())
                .map(|chosen| preferred(bundle, chosen)),
        );
    }
    Ok(Some(Newest {
        bundle,
        catalog: catalog.name,
        obstacles,
    }))
}

/// A bundle of the selected catalogs with its obstacles.
#[derive(Clone, Debug)]
pub struct EvaluatedBundle<'a> {
    /// The bundle.
    pub bundle: &'a Candidate,
    /// The catalog that has it.
    pub catalog: &'a str,
    /// Whether it is chosen.
    pub is_chosen: bool,
    /// The obstacles; empty for the chosen bundle, and for bundles that are only older than the chosen one.
    pub obstacles: Vec<UpdateObstacle>,
}

/// All bundles of the selected catalogs, newest first. `chosen` is the result of the request.
///
/// # Errors
/// When the request or a catalog cannot be read.
pub fn considered<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &ClusterState<'_>,
    chosen: Option<&Resolution<'a>>,
) -> Result<Vec<EvaluatedBundle<'a>>, Refusal> {
    let (selected, context) = fitting(catalogs, request, installed)?;
    let mut found = Vec::new();
    for catalog in &selected {
        for bundle in catalog.package.candidates() {
            let is_chosen = chosen
                .is_some_and(|chosen| chosen.catalog == catalog.name && chosen.bundle.name == bundle.name);
            let mut obstacles = excluded(catalog, bundle, &context);
            if obstacles.is_empty() {
                obstacles = blocked(bundle, facts);
            }
            let beyond = |chosen: &&Resolution<'_>| !bundle.compare_versions(chosen.bundle).is_lt();
            if let Some(chosen) = chosen.filter(beyond)
                && obstacles.is_empty()
                && !is_chosen
            {
                obstacles.push(preferred(bundle, chosen));
            }
            found.push(EvaluatedBundle {
                bundle,
                catalog: catalog.name,
                is_chosen,
                obstacles,
            });
        }
    }
    found.sort_by(|left, right| right.bundle.compare_versions(left.bundle));
    Ok(found)
}

/// The bundle with the highest version, the first of equal ones.
fn highest<'a, 'c>(selected: &'c [Selected<'a>]) -> Option<(&'c Selected<'a>, &'a Candidate)> {
    let candidates = selected.iter().flat_map(|catalog| {
        let candidates = catalog.package.candidates().iter();
        candidates.map(move |candidate| (catalog, candidate))
    });
    let readable = candidates.filter(|(_, candidate)| candidate.version.is_ok());
    readable.max_by(|(left_catalog, left), (right_catalog, right)| {
        let by_catalog = || left_catalog.priority.cmp(&right_catalog.priority);
        let by_name = || right_catalog.name.cmp(left_catalog.name);
        left.compare_versions(right)
            .then_with(by_catalog)
            .then_with(by_name)
    })
}

/// The filter of the request that excludes a bundle.
fn excluded(
    catalog: &Selected<'_>,
    bundle: &Candidate,
    context: &choose::Context<'_>,
) -> Vec<UpdateObstacle> {
    let (package, request) = (catalog.package, context.request);
    let mut found = Vec::new();
    let range = request.version.unwrap_or_default().to_owned();
    match fit(bundle, context.range.as_ref()) {
        Fit::Inside | Fit::Unknown => {}
        Fit::Prerelease => found.push(UpdateObstacle::Prerelease(range)),
        Fit::Outside => found.push(match context.range.as_ref().and_then(Constraint::exact) {
            Some(version) => UpdateObstacle::Pin(version.to_string()),
            None => UpdateObstacle::Range(range),
        }),
    }
    let members = channels::members(package, request);
    if members.is_some_and(|members| !members.contains(bundle.name.as_str())) {
        let channels: Vec<&str> = package.channels_of(&bundle.name).collect();
        found.push(UpdateObstacle::Channel(channels.join(", ")));
    }
    if let Some(current) = &context.current
        && Successors::new(package, request, current).to(bundle).is_none()
    {
        found.push(UpdateObstacle::Edge(current.name.to_owned()));
    }
    found
}

/// The blockers of a bundle on this cluster.
fn blocked(bundle: &Candidate, facts: &ClusterState<'_>) -> Vec<UpdateObstacle> {
    let served = compatibility::without_own(facts);
    let blockers = CompatibilityCheck::new(*facts, &served).blockers(bundle);
    blockers.into_iter().map(UpdateObstacle::from).collect()
}

/// The reason why another bundle is preferred to this one.
fn preferred(bundle: &Candidate, chosen: &Resolution<'_>) -> UpdateObstacle {
    if bundle.is_deprecated {
        UpdateObstacle::Deprecated
    } else {
        UpdateObstacle::Priority(chosen.catalog.to_owned())
    }
}
