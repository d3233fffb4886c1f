//! Catalogs on disk, and the answers from them.
//!
//! ```text
//! files ──► Writer ──► directory ──► Snapshot ──► App
//! ingest    blob by    renamed       open files   request
//!           blob       into place    and index    to body
//! ```
//!
//! [`store`] writes a catalog as a stream and keeps it as immutable files. A response is a list of byte ranges of those
//! files, plain or compressed, read while the client takes them. This crate does not depend on a cluster: catalogd, the
//! registries of OLM classic and the command line share it. Start reading at [`App`].

mod answer;
mod body;
mod compression;
pub mod design;
#[doc(hidden)]
pub mod fuzz;
mod graphql;
mod graphql_schema;
mod icon;
mod package_summary;
mod search_page;
mod site;
pub mod store;
mod unpack;

pub use answer::{Access, App, Endpoints, Observer, ResponseBody};
pub use body::Body;
pub use package_summary::{Api, PackageSummary, SearchPlace};
pub use store::{
    Commit, Filter, Findings, Lookup, Origin, Record, Snapshot, Store, StoreError, StoreLimits, Writer,
};
pub use unpack::{
    CONFIGS_LABEL, CatalogImages, Destination, ImageKind, IngestError, Pull, UnpackError, ingest,
};
