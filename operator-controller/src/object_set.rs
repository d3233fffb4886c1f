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

pub mod canonical;
pub mod content;
pub mod engine;
pub mod policy;
pub mod status;
pub mod validate;
