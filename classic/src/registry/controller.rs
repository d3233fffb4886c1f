//! One pass over a CatalogSource, and what passes share.
//!
//! ```text
//! pass ─► image        fetch and serve an image
//!         config_map   follow, read and serve a ConfigMap
//!         remote       keep a connection to a registry elsewhere
//!         pod          a Pod that serves, on request, and the image that it may run
//!      ─► report       Service, EndpointSlice, status
//! ```

mod config_map;
mod context;
mod image;
mod metrics;
mod pass;
mod pod;
mod pod_image;
mod remote;
mod report;
mod state;

pub(super) use context::Context;
pub(super) use pass::pass;
pub(super) use state::Content;
