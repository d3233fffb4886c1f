//! The ClusterObjectSet controller: gathers what a set holds, asks [`olm_rollout`] what follows, makes its requests under the
//! account, and writes the status.
//!
//! ```text
//! ClusterObjectSet ─► gather ─► olm_rollout ─► executor ─► status
//!                     Secrets   rollout        requests
//!                               teardown       under the account
//! ```

mod accounts;
mod acting;
mod conclusion;
mod context;
pub mod controller;
#[cfg(test)]
mod default_probes;
pub mod executor;
pub mod gather;
mod load;
pub mod memory;
pub mod reconcile;
pub mod records;
pub mod removal;
pub mod rights;
pub mod store;
pub mod teardown_records;

pub use olm_rollout::{canonical, content, policy, status};

/// The engine's words.
pub mod engine {
    pub use olm_rollout::engine::rollout;
    pub use olm_rollout::failure::{Failure, FailureKind};
    pub use olm_rollout::object::ObjectId;
    pub use olm_rollout::{ownership, report};
}
