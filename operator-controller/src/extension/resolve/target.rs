//! The result of a resolution: the bundle of an extension, or the reason why there is none.

use std::sync::Arc;

use olm_api::PendingChange;
use olm_resolve::Candidate;
use olm_resolve::deprecation::Messages;
use serde_json::Value;

use super::updates::{HeldBack, Updates};
use crate::extension::context::Gates;
use crate::extension::context::joint_updates::JointChange;
use crate::extension::failure::StageFailure;
use crate::extension::observe::{ExtensionSettings, Observed};
use crate::extension::revisions::BundleIdentity;

/// The bundle of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub bundle: BundleIdentity,
    pub origin: Origin,
    /// The catalog of the bundle; empty if no catalog was asked.
    pub catalog: String,
    /// The declared properties of the bundle in the catalog.
    pub declared: Vec<(String, Value)>,
    /// Extensions that must be installed or updated in the same step.
    pub companions: Vec<JointChange>,
}

/// The origin of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The bundle is in a catalog.
    Catalog,
    /// The bundle is already installed, and no catalog answers or the catalogs have the same version.
    Installed,
}

/// The result of a resolution.
#[derive(Debug, Clone)]
pub(crate) struct Resolution {
    /// The bundle of the extension.
    pub target: Result<Target, StageFailure>,
    /// The deprecations in the catalogs; `None` if no catalog answered.
    pub deprecations: Option<Messages>,
    /// The failure that prevents a requested upgrade.
    pub problem: Option<StageFailure>,
    /// The catalog that does not answer, if the installed bundle matches the spec.
    pub silent: Option<StageFailure>,
    /// The newer bundle that is held back, and the reason.
    pub held: Option<String>,
    /// Newer bundles, or the reason why they are unknown.
    pub updates: Result<Updates, HeldBack>,
    /// The PendingChanges whose bundle no selected catalog has any more.
    pub vanished: Vec<Arc<PendingChange>>,
}

/// An extension with a chosen bundle and an account.
pub struct Resolved<'a> {
    /// The extension.
    pub observed: &'a Observed,
    /// The account and options.
    pub settings: &'a ExtensionSettings,
    /// The bundle.
    pub target: Target,
}

/// The bundle in the form of revisions.
pub(crate) fn identity(package: &str, bundle: &Candidate, gates: Gates) -> BundleIdentity {
    BundleIdentity {
        package: package.to_owned(),
        metadata: bundle.recorded(gates.release_field()),
        image: bundle.image.clone(),
    }
}
