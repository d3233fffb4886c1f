//! ClusterExtensions: from what a user asks for to a ClusterObjectSet, and back to a status.
//!
//! ```text
//! ClusterExtension ─► account ─► conflicts ─► resolve ─► fetch ─► render ─► plan ─► preflight ─► write ─► status
//!                     under      is it        which      what     which     which   is it        our      what
//!                     whom       ours         bundle     files    objects   change  safe         records  happened
//! ```
//!
//! [`reconcile`](reconcile::reconcile) is that line. Every stage is a file with an error enum of its own, which knows
//! who can mend it. What is applied to the cluster is the matter of [`crate::object_set`]; here only our own records
//! are written.

pub mod act;
pub mod bundle;
pub mod context;
pub mod delete;
pub mod failure;
pub mod observe;
pub mod plan;
pub mod preflight;
pub mod reconcile;
pub mod report;
pub mod resolve;
pub mod watch;
