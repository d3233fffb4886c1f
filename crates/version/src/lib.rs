//! Versions and releases of bundles, and the two range grammars of catalogs.
//!
//! - [`VersionRelease`]: the version of a bundle, and the order of two versions.
//! - [`masterminds`]: the grammar of `spec.source.catalog.version`.
//! - [`blang`]: the grammar of `skipRange` and of dependency ranges.
//!
//! The two grammars look alike but differ in nearly everything: commas, carets, wildcards, and whether a range admits
//! pre-releases. Neither is the grammar of [`semver::VersionReq`].
//!
//! Versions are [`semver::Version`]. Its order counts build metadata, which neither grammar nor OLM does: compare with
//! [`semver::Version::cmp_precedence`] or [`VersionRelease::compare`].

pub mod blang;
mod component;
pub mod masterminds;
mod quote;
mod release;

pub use component::Component;
pub use quote::quoted;
pub use release::{BuildMetadata, Release, ReleaseError, VersionRelease, VersionReleaseError};
pub use semver::Version;
