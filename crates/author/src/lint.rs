//! Lint: the faults of a bundle or a catalog before it is published.
//!
//! [`bundle`] checks the files of a bundle: their layout, the named sets of rules of operator tooling ([`RuleSet`]),
//! obstacles to installation, and obstacles to publication in a catalog. [`CatalogLint`] checks the blobs of a catalog
//! one by one, [`catalog`] a catalog in memory.

mod bundle;
mod catalog;
mod finding;
mod installation;
mod layout;
mod manifests;
mod publication;
mod rule_finding;
mod rules;

pub use bundle::bundle;
pub use catalog::{CatalogLint, catalog};
pub use finding::Finding;
pub use layout::layout;
pub use manifests::{LoadFault, Manifests, Object, load, load_object};
pub use olm_fbc::check::Severity;
pub use rule_finding::{Options, RuleFinding};
pub use rules::{RuleSet, images};
