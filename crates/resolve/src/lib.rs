//! Which bundle of which catalog an extension gets, and if none, why.
//!
//! [`resolve`] reads top to bottom like the decision itself:
//!
//! 1. the catalogs that the request selects and that may be used ([`selector`], [`catalog`]);
//! 2. of each, the bundles that are in a requested channel, satisfy the version range and may follow what is
//!    installed ([`mod@package`], `channels`, `range`, `successors`);
//! 3. the best bundle of each catalog, then the best catalog (`choose`);
//! 4. what the chosen bundle must not have (`dependencies`).
//!
//! A [`Refusal`] says in its first line what it has always said on the wire, and below it which bundles there were,
//! what excluded them and what the user can change. [`keep`] says when what is installed may stay although nothing
//! could be resolved, [`deprecation`] what of it is deprecated.
//!
//! Nothing here fetches anything: a catalog's answer about one package is prepared once as a [`Package`] and then
//! used for any number of requests.

pub mod catalog;
pub mod deprecation;
pub mod keep;
pub mod package;
pub mod refusal;
pub mod request;
pub mod selector;

mod channels;
mod choose;
mod dependencies;
mod explain;
mod range;
mod successors;

use olm_fbc::Deprecations;

pub use catalog::{Availability, Catalog, Content};
pub use dependencies::DependencyFault;
pub use package::{Candidate, Package, ReleaseField, VersionFault};
pub use refusal::{Reason, Refusal};
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
    /// The channels that hold it: those requested, or all of the package when none is requested.
    pub channels: Vec<&'a str>,
    /// How it follows what is installed; none for a first installation and for an update without any edge.
    pub edge: Option<Edge>,
    /// What that catalog says is deprecated in the package.
    pub deprecations: Option<&'a Deprecations>,
}

/// The bundle that a request gets, or the reason why it gets none.
///
/// The catalogs may come in any order; the outcome does not depend on it.
///
/// # Errors
/// A [`Refusal`], whose [`Reason`] says what kind of fault it is.
pub fn resolve<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
) -> Result<Resolution<'a>, Refusal> {
    let context = choose::Context::new(request, installed)?;
    let selected = catalog::select(catalogs, request)?;
    // With nothing to choose from, nothing has to follow what is installed.
    let context = if selected.is_empty() {
        context
    } else {
        context.with_current()?
    };
    let best: Vec<_> = selected
        .iter()
        .filter_map(|catalog| choose::best_of(catalog, &context))
        .collect();
    let chosen = match choose::between(best) {
        Ok(chosen) => chosen,
        Err(contenders) => return Err(explain::no_choice(catalogs, &selected, &contenders, &context)),
    };
    dependencies::check(&chosen)?;
    Ok(Resolution {
        bundle: chosen.candidate,
        catalog: chosen.catalog.name,
        channels: channels::holding(chosen.catalog.package, request, &chosen.candidate.name),
        edge: chosen.edge,
        deprecations: chosen.catalog.package.deprecations(),
    })
}

/// The bundles of a package that may follow what is installed, and how, in the order of the catalog; those that
/// are in a requested channel, whatever their version.
///
/// # Errors
/// When the recorded version of what is installed cannot be read.
pub fn successors<'a>(
    package: &'a Package,
    request: &Request<'_>,
    installed: &Installed<'_>,
) -> Result<Vec<(&'a Candidate, Edge)>, Refusal> {
    let current = successors::Current::read(installed)?;
    Ok(successors::within(package, request, &current))
}
