//! Catalogs behind the registry API: the servers of CatalogSources with an image or a ConfigMap, and the client for all
//! of them.
//!
//! ```text
//! CatalogSource ─► pull ─► store ─► StoredCatalog ─► Listener   gRPC, one port for each source
//!     sources      image   disk     package by       catalogs() for resolutions, in this process
//!                                   package
//! ```
//!
//! Content is shared by all sources whose credentials the registry has accepted for its digest. A Service without
//! selector and an EndpointSlice in the namespace of the source lead clients to the port. Start reading at [`sources`].

pub mod access;
pub mod catalog;
pub mod client;
pub mod endpoint;
pub mod messages;
pub mod policies;
pub mod pull;
pub mod server;
pub mod sources;
pub mod trust;

mod controller;
mod hub;

/// A CatalogSource, by namespace and name.
pub type Key = (String, String);
