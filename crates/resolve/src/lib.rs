//! The bundle that an extension gets from the catalogs, or the reason why it gets none.
//!
//! [`resolve`] reads from top to bottom like the decision:
//!
//! 1. the available catalogs that the request selects ([`selector`], [`catalog`]);
//! 2. of each, the bundles that are in a requested channel, satisfy the version range and may follow the installed one
//!    ([`mod@package`], `channels`, `range`, `successors`);
//! 3. of those, the bundles without blockers on the cluster: their requirements are met, no dependent of the extension
//!    is broken, the cluster is new enough ([`cluster`]);
//! 4. the best bundle of each catalog, then the best catalog (`choose`).
//!
//! A [`Refusal`] has a fixed first line, which clients match. Below it are the candidates, the reasons that exclude
//! them, and possible changes for the user. [`fallback`] decides when the installed bundle may stay after a failed
//! resolution, [`deprecation`] which deprecations concern it.
//!
//! Nothing here fetches anything: a catalog's answer about one package is prepared once as a [`Package`] and then used
//! for any number of requests.

pub mod blocker;
pub mod catalog;
pub mod cluster;
pub mod deprecation;
pub mod fallback;
pub mod package;
pub mod refusal;
pub mod request;
pub mod selector;

mod channels;
mod choose;
mod explain;
mod range;
mod successors;

use std::cmp::Ordering;
use std::collections::HashSet;

use olm_api::text::escape;

use cluster::compatibility;

pub use blocker::Blocker;
pub use catalog::{Availability, Catalog, PackageAnswer};
pub use choose::BlockedBundle;
pub use cluster::compatibility::{
    ClusterState, Dependents, InstalledExtension, broken_by_removal, recorded_version, unmet,
};
pub use cluster::platform::{ClusterPlatform, Platform};
pub use explain::refuse;
pub use package::{
    Candidate, DeclaredRequirement, MAX_PACKAGE_BYTES, Package, PackageBuilder, PackageTooLarge,
    ReleaseField, VersionFault,
};
pub use refusal::{InstalledError, MAX_LINE, Reason, Refusal};
pub use request::{Installed, Request, UpgradeConstraintPolicy};
pub use selector::{Selector, SelectorRequirement};
pub use successors::Edge;

/// The bundle that a request gets.
#[derive(Clone, Debug)]
pub struct Resolution<'a> {
    /// The bundle.
    pub bundle: &'a Candidate,
    /// The catalog it comes from.
    pub catalog: &'a str,
    /// The channels that hold it: the requested ones, or all if none is requested.
    pub channels: Vec<&'a str>,
    /// The edge from the installed bundle; none for a first installation and for an update without an edge.
    pub edge: Option<Edge>,
    /// The package in that catalog.
    pub package: &'a Package,
    /// Blocked bundles with precedence over this one, highest first, the first few of each catalog. They come from the
    /// same catalog or one of higher priority, or are newer and come from one of the same priority.
    pub blocked: Vec<BlockedBundle<'a>>,
}

impl Resolution<'_> {
    /// The bundles that are held back, the highest of each catalog, with the reasons; `None` if there are none.
    pub fn held(&self) -> Option<String> {
        let mut catalogs = HashSet::new();
        let lines = self
            .blocked
            .iter()
            .filter(|blocked| catalogs.insert(blocked.catalog));
        let lines: Vec<String> = lines
            .map(|blocked| {
                let of = if blocked.catalog == self.catalog {
                    String::new()
                } else {
                    format!(" of catalog {}", escape(blocked.catalog))
                };
                let why = blocker::listed(&blocked.blockers);
                format!("{}{of} is held back: {why}", escape(&blocked.bundle.name))
            })
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// The bundles of the same catalog that are held back.
    pub fn held_in_catalog(&self) -> impl Iterator<Item = &BlockedBundle<'_>> {
        self.blocked
            .iter()
            .filter(|blocked| blocked.catalog == self.catalog)
    }
}

/// The bundle that a request gets, or the reason why it gets none. The cluster is unknown, so requirements of bundles
/// are ignored.
///
/// The catalogs may come in any order; the outcome does not depend on it.
///
/// # Errors
/// A [`Refusal`], whose [`Reason`] is the class of the fault.
pub fn resolve<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
) -> Result<Resolution<'a>, Refusal> {
    choose_one(catalogs, request, installed, None)
}

/// The bundle that a request gets on this cluster: the newest fitting one that is not blocked.
///
/// # Errors
/// A [`Refusal`], whose [`Reason`] is the class of the fault.
pub fn resolve_in<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &ClusterState<'_>,
) -> Result<Resolution<'a>, Refusal> {
    let served = compatibility::without_own(facts);
    let mut check = compatibility::CompatibilityCheck::new(*facts, &served);
    choose_one(catalogs, request, installed, Some(&mut check))
}

fn choose_one<'a: 'j, 'j>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    mut check: Option<&mut compatibility::CompatibilityCheck<'j>>,
) -> Result<Resolution<'a>, Refusal> {
    let (selected, context) = fitting(catalogs, request, installed)?;
    let (mut best, mut blocked) = (Vec::new(), Vec::new());
    for catalog in &selected {
        let (choice, skipped_versions) = choose::best_of(catalog, &context, check.as_deref_mut());
        best.extend(choice);
        blocked.extend(skipped_versions);
    }
    let chosen = match choose::between(best) {
        Ok(chosen) => chosen,
        Err(contenders) if contenders.is_empty() && !blocked.is_empty() => {
            return Err(explain::blocked(blocked));
        }
        Err(contenders) => return Err(explain::no_choice(catalogs, &selected, &contenders, &context)),
    };
    if let Err(fault) = &chosen.candidate.version {
        let reason = Reason::Version {
            bundle: chosen.candidate.name.clone(),
            fault: fault.clone(),
        };
        return Err(Refusal::new(reason).with_hint("the author of the catalog must correct it"));
    }
    blocked.retain(|blocked| comes_first(blocked, &selected, &chosen));
    blocked.sort_by(|left, right| choose::rank(right.bundle, left.bundle));
    Ok(resolution(&chosen, request, blocked))
}

/// Whether a bundle would have precedence over the chosen one, or tie with it, if it were not blocked.
fn comes_first(
    blocked: &BlockedBundle<'_>,
    selected: &[catalog::Selected<'_>],
    chosen: &choose::Choice<'_>,
) -> bool {
    if blocked.catalog == chosen.catalog.name {
        return true;
    }
    let priority = selected.iter().find(|catalog| catalog.name == blocked.catalog);
    let priority = priority.map(|catalog| catalog.priority.cmp(&chosen.catalog.priority));
    priority.is_some_and(|priority| match priority {
        Ordering::Greater => true,
        Ordering::Equal => choose::rank(blocked.bundle, chosen.candidate).is_gt(),
        Ordering::Less => false,
    })
}

fn resolution<'a>(
    chosen: &choose::Choice<'a>,
    request: &Request<'_>,
    blocked: Vec<BlockedBundle<'a>>,
) -> Resolution<'a> {
    Resolution {
        bundle: chosen.candidate,
        catalog: chosen.catalog.name,
        channels: channels::holding(chosen.catalog.package, request, &chosen.candidate.name),
        edge: chosen.edge,
        package: chosen.catalog.package,
        blocked,
    }
}

/// The catalogs to choose from, and the request with the installed bundle.
fn fitting<'a, 'r>(
    catalogs: &[Catalog<'a>],
    request: &'r Request<'r>,
    installed: Option<&Installed<'r>>,
) -> Result<(Vec<catalog::Selected<'a>>, choose::Context<'r>), Refusal> {
    let context = choose::Context::new(request, installed)?;
    let selected = catalog::select(catalogs, request)?;
    // Without a catalog, edges do not matter.
    let context = if selected.is_empty() {
        context
    } else {
        context.with_current()?
    };
    Ok((selected, context))
}

/// All bundles in the range and the channels of a request, by catalog and newest first. Update edges, requirements of
/// bundles and priorities of catalogs are ignored.
///
/// # Errors
/// A [`Refusal`] if the request cannot be read or no bundle fits.
pub fn candidates<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
) -> Result<Vec<&'a Candidate>, Refusal> {
    let (selected, context) = fitting(catalogs, request, None)?;
    let all = selected
        .iter()
        .flat_map(|catalog| choose::all_of(catalog, &context));
    let all: Vec<_> = all.map(|choice| choice.candidate).collect();
    if all.is_empty() {
        return Err(explain::no_choice(catalogs, &selected, &[], &context));
    }
    Ok(all)
}

/// The bundles of a package that may follow the installed one, with their edges, in the order of the catalog. They are
/// in a requested channel and have any version.
///
/// # Errors
/// When the recorded version of the installed bundle cannot be read.
pub fn successors<'a>(
    package: &'a Package,
    request: &Request<'_>,
    installed: &Installed<'_>,
) -> Result<Vec<(&'a Candidate, Edge)>, Refusal> {
    let current = successors::Current::read(installed)?;
    Ok(successors::within(package, request, &current))
}

/// The bundles of a package that an update from the installed to the chosen bundle skips: newer than the former, older
/// than the latter and in a requested channel, oldest first.
///
/// # Errors
/// When the recorded version of the installed bundle cannot be read.
pub fn skipped_versions<'a>(
    package: &'a Package,
    request: &Request<'_>,
    installed: &Installed<'_>,
    chosen: &Candidate,
) -> Result<Vec<&'a Candidate>, Refusal> {
    let current = successors::Current::read(installed)?;
    Ok(successors::between(package, request, &current, chosen))
}
