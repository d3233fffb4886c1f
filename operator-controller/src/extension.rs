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

pub mod account;
pub mod changes;
pub mod conflicts;
pub mod context;
mod draft;
pub mod events;
pub mod facts;
pub mod failure;
mod fetch;
pub mod finalizers;
pub mod leftovers;
pub mod losses;
pub mod migrate;
pub mod pack;
pub mod phases;
pub mod plan;
pub mod preflight;
pub mod proposals;
pub mod reconcile;
pub mod release;
pub mod render;
pub mod resolve;
pub mod revisions;
pub mod status;
pub mod uninstall;
pub mod watch;
pub mod wishes;
pub mod write;
