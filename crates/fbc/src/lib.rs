//! File-based catalogs: content, parsing, validation, indexing and writing.
//!
//! A catalog is a directory of files; a file is a stream of JSON or YAML objects, the *blobs*. Two layers read them
//! with different strictness:
//!
//! - [`meta`]: the lenient walk. A blob is any object whose `schema`, `package` and `name` are strings if present. It
//!   becomes one canonical line of JSON, which a catalog server stores and serves.
//! - [`blob`] and [`catalog`]: the typed load, which validates `olm.package`, `olm.channel`, `olm.bundle` and
//!   `olm.deprecations` and keeps all other blobs verbatim.
//! - [`check`]: the rules of a whole catalog. It reports all findings, each with its object, file and line.
//!
//! Around them: [`graph`] (heads, replaces chains, pictures of them), [`index`] (byte ranges of the stored lines by
//! schema, package and name) and [`ignore`] (`.indexignore`). The tools of catalog authors (templates, diffs, lint,
//! writing) are in `olm-author`.
//!
//! The crate does no input or output, and no code path recurses over its input.

pub mod base64_text;
pub mod blob;
pub mod canonical;
pub mod catalog;
pub mod check;
pub mod decode;
pub mod graph;
pub mod ignore;
pub mod index;
pub mod meta;
pub mod similar;

mod walk;

pub use blob::bundle::{Bundle, RelatedImage};
pub use blob::channel::{Channel, ChannelEntry};
pub use blob::deprecation::{DeprecationEntry, Deprecations, Reference};
pub use blob::package::{Icon, Package};
pub use blob::property::{self, Gvk, PackageProperty, PackageRequired, Property};
pub use blob::version::BundleVersionError;
pub use blob::{Blob, BlobError};
pub use canonical::canonical;
pub use catalog::{Catalog, LoadError};
pub use check::{CatalogFinding, CatalogReport, Checker};
pub use decode::{List, ShapeError};
pub use ignore::Ignore;
pub use index::{Filter, Index, IndexBuilder};
pub use meta::{Meta, MetaError, metas};
pub use walk::walk_order;

/// The schema of a package blob.
pub const SCHEMA_PACKAGE: &str = "olm.package";
/// The schema of a channel blob.
pub const SCHEMA_CHANNEL: &str = "olm.channel";
/// The schema of a bundle blob.
pub const SCHEMA_BUNDLE: &str = "olm.bundle";
/// The schema of a deprecations blob.
pub const SCHEMA_DEPRECATIONS: &str = "olm.deprecations";
