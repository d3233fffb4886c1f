//! ClusterObjectSets: a set of objects is applied phase by phase under an account, watched, repaired, handed over to its
//! successor and taken down in reverse order.
//!
//! ```text
//! ClusterObjectSet ─► policy ─► content ─► validate ─► engine ─► status
//!                                (Secrets)             rollout
//!                                                      teardown
//! ```
//!
//! Everything named above is without input and output; [`controller`] asks and does what they say.

mod accounts;
mod acting;
pub mod controller;
mod definition;
pub mod engine;
pub mod executor;
pub mod fate;
pub mod gather;
pub mod memory;
pub mod policy;
pub mod reconcile;
pub mod records;
pub mod removal;
pub mod rights;
pub mod status;
pub mod validate;

pub use olm_revision::{canonical, content};
