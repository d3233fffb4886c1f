//! What resolution comes to: the bundle that an extension gets, or why it gets none.

use olm_resolve::deprecation::Messages;
use olm_resolve::{Candidate, ReleaseField};
use serde_json::Value;

use super::updates::{Held, Updates};
use crate::extension::context::Gates;
use crate::extension::context::moves::Companion;
use crate::extension::failure::Failure;
use crate::extension::observe::{Observed, Settings};
use crate::extension::revisions::BundleIdentity;

/// The bundle that an extension gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The bundle.
    pub bundle: BundleIdentity,
    /// Why this one.
    pub origin: Origin,
    /// The catalog that offers it; empty when none was asked.
    pub catalog: String,
    /// What the catalog says that the bundle requires: the types and values of properties.
    pub declared: Vec<(String, Value)>,
    /// Others without whose own installation or update this one must not happen.
    pub companions: Vec<Companion>,
}

/// Why it is this bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A catalog offers it.
    Catalog,
    /// It is there already, and no catalog answers or the catalogs offer the same version.
    Installed,
}

/// What resolution came to.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The bundle that the extension gets.
    pub target: Result<Target, Failure>,
    /// What the catalogs say against what is used; nothing when none answered.
    pub deprecations: Option<Messages>,
    /// What keeps the extension from an upgrade that it asks for.
    pub problem: Option<Failure>,
    /// The catalog that does not answer, if the installed bundle matches the spec.
    pub silent: Option<Failure>,
    /// Which newer bundle is held back, and why.
    pub held: Option<String>,
    /// Newer bundles, or why they are unknown.
    pub updates: Result<Updates, Held>,
}

/// An extension whose bundle is chosen, and that may be installed under an account.
pub struct Resolved<'a> {
    /// The extension.
    pub observed: &'a Observed,
    /// Under which account and how.
    pub settings: &'a Settings,
    /// The bundle.
    pub target: Target,
}

/// The bundle as revisions record it.
pub(crate) fn identity(package: &str, bundle: &Candidate, gates: Gates) -> BundleIdentity {
    let releases = if gates.releases {
        ReleaseField::Counts
    } else {
        ReleaseField::Ignored
    };
    BundleIdentity {
        package: package.to_owned(),
        metadata: bundle.recorded(releases),
        image: bundle.image.clone(),
    }
}
