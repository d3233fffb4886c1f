//! ClusterExtensions: from what a user asks for to a ClusterObjectSet, and back to a status.
//!
//! ```text
//! ClusterExtension ─► observe ─► resolve ─► bundle ─► plan ─► approval ─► preflight ─► act ─► report
//!                     what       which      which     what    may it      is it        our    status
//!                     there is   bundle     objects   to do   begin       safe         records and events
//! ```
//!
//! [`reconcile`] is that line. Every stage is a folder whose file of the same name holds its entry; it takes the type of
//! the stage before it (`Observed → Resolved → Rendered → Plan → Checked → Applied → Run`) and has an error enum of its
//! own, which knows its severity. Imports point one way along the line. Nothing before [`act`] writes to the cluster,
//! and `act` takes only what is checked. [`delete`] is the line of a deletion. What is applied to the cluster is the
//! matter of [`crate::object_set`].

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
