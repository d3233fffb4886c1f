//! Lint: everything that is wrong with a bundle or a catalog before it is published.
//!
//! [`bundle`] looks at the files of a bundle: their layout, the sets of rules that operator tooling knows by name
//! ([`RuleSet`]), what keeps clusters from installing it as its author meant it, and what keeps catalogs from taking it.
//! [`CatalogLint`] looks at the blobs of a catalog one by one, [`catalog`] at a catalog in memory.

mod bundle;
mod catalog;
mod finding;
mod installation;
mod layout;
mod manifests;
mod problem;
mod publication;
mod rules;

pub use bundle::bundle;
pub use catalog::{CatalogLint, catalog};
pub use finding::Finding;
pub use layout::layout;
pub use manifests::{LoadFault, Manifests, Object, load, load_object};
pub use olm_fbc::check::Severity;
pub use problem::{Options, Problem};
pub use rules::{RuleSet, images};
