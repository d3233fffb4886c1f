//! ClusterExtensions: from the user's request to a ClusterObjectSet, and back to a status.
//!
//! ```text
//! ClusterExtension ─► observe ─► resolve ─► bundle ─► plan ─► approval ─► preflight ─► act ─► report
//!                     what       which      which     what    may it      is it        our    status
//!                     there is   bundle     objects   to do   begin       safe         records and events
//! ```
//!
//! `reconcile` calls the stages in this order. Every stage is a folder, and the file of the same name is its entry. A
//! stage takes the type of the one before (`Observed → Resolved → Rendered → Plan → Checked → Applied → Report`), imports
//! only earlier stages, and has an error enum with severities. `approval` gives a `Proposal`. Apart from status and
//! events, only `act` writes to the cluster, and it takes only checked plans. [`delete`] does the same for a deletion.
//! [`crate::object_set`] applies the objects.

pub(crate) mod act;
pub(crate) mod approval;
pub(crate) mod bundle;
pub(crate) mod context;
pub mod delete;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod observe;
pub mod plan;
pub(crate) mod preflight;
pub(crate) mod reconcile;
pub(crate) mod report;
pub(crate) mod resolve;
pub mod revisions;
pub(crate) mod watch;
