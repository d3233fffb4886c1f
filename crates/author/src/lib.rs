//! Tools for publishers of bundles and catalogs, which no cluster needs.
//!
//! - [`lint`]: everything that is wrong with a bundle or a catalog before it is published.
//! - [`draft`]: the first files of a bundle.
//! - [`catalog_entry`]: a bundle as a catalog shows it, and catalogs of such entries; [`package_manifest`] reads whole
//!   directories of the legacy format into them.
//! - [`template`]: short texts from which catalogs are rendered; [`migrate`](mod@migrate) brings catalogs to the newer form,
//!   [`write`](mod@write) writes them.
//! - [`diff`](mod@diff): what a new catalog changes for users.
//!
//! What a cluster checks of a bundle or a catalog is in `olm-bundle` and `olm-fbc`. The crate does no input or output.

pub mod catalog_entry;
pub mod diff;
pub mod draft;
pub mod lint;
pub mod migrate;
pub mod package_manifest;
pub mod template;
pub mod write;
