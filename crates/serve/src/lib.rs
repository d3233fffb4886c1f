//! Catalogs on disk and the answers out of them.
//!
//! ```text
//! files ──► Writer ──► directory ──► Snapshot ──► App
//! ingest    blob by    renamed       open files   request
//!           blob       into place    and index    to body
//! ```
//!
//! [`store`] writes a catalog as a stream and keeps it as immutable files; an answer is a list of stretches of those
//! files, plain or coded, which are read while the client takes them. Nothing here knows a cluster or an image: catalogd
//! and the command line share it as it is. Start reading at [`App`].

mod answer;
mod coded;
mod deflate;
mod facts;
#[doc(hidden)]
pub mod fuzz;
mod graphql;
mod ingest;
mod site;
pub mod store;

pub use answer::{Access, App, Body, Endpoints, Filter, Observer, ResponseBody};
pub use facts::{Api, PackageFacts};
pub use ingest::{IngestError, ingest};
pub use store::{Commit, Findings, Lookup, Origin, Record, Snapshot, Store, StoreError, StoreLimits, Writer};
