//! ClusterExtensions: from the user's request to a ClusterObjectSet, and back to a status.
//!
//! ```text
//! ClusterExtension ─► observe ─► resolve ─► bundle ─► plan ─► approval ─► preflight ─► act ─► report
//!                     what       which      which     what    may it      is it        our    status
//!                     there is   bundle     objects   to do   begin       safe         records and events
//! ```
//!
//! [`reconcile`] calls the stages in this order. Every stage is a folder, and the file of the same name is its entry. A
//! stage takes the type of the one before (`Observed → Resolved → Rendered → Plan → Checked → Applied → Run`), imports
//! only earlier stages, and has an error enum with severities. Apart from status and events, only [`act`] writes to the
//! cluster, and it takes only checked plans. [`delete`] does the same for a deletion. [`crate::object_set`] applies the
//! objects.

pub mod act;
pub mod approval;
pub mod bundle;
pub mod context;
pub mod delete;
pub mod events;
pub mod failure;
pub mod observe;
pub mod plan;
pub mod preflight;
pub mod reconcile;
pub mod report;
pub mod resolve;
pub mod revisions;
pub mod watch;
