//! The ClusterObjectSet controller: reads the content of a set, calls the engine of [`olm_rollout`], makes its requests
//! under the account, and writes the status.
//!
//! ```text
//! ClusterObjectSet ─► gather ─► olm_rollout ─► executor ─► status
//!                     Secrets   rollout        requests
//!                               teardown       under the account
//! ```

mod acting;
mod conclusion;
mod context;
pub mod controller;
#[cfg(test)]
mod default_probes;
pub(crate) mod executor;
mod observe;
pub(crate) mod reconcile;
pub(crate) mod records;
pub(crate) mod removal;
pub(crate) mod rights;
pub(crate) mod state;

pub(crate) use observe::{gather, store};
pub(crate) use records::teardown_records;
