//! Tools for publishers of bundles and catalogs. Clusters do not need them.
//!
//! - [`lint`]: the faults of a bundle or a catalog before it is published.
//! - [`draft`]: the first files of a bundle.
//! - [`catalog_entry`]: the entry of a bundle in a catalog, and catalogs of such entries; [`package_manifest`] converts
//!   whole directories of the legacy format.
//! - [`template`]: short texts from which catalogs are rendered; [`migrate`](mod@migrate) brings catalogs to the newer
//!   form, [`write`](mod@write) writes them.
//! - [`diff`](mod@diff): the changes of a new catalog for users.
//!
//! The checks of a cluster are in `olm-bundle` and `olm-fbc`. The crate does no input or output.

pub mod catalog_entry;
pub mod diff;
pub mod draft;
pub mod lint;
pub mod migrate;
pub mod package_manifest;
pub mod template;
pub mod write;
