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
pub mod executor;
mod observe;
pub mod reconcile;
pub mod records;
pub mod removal;
pub mod rights;
pub mod state;

pub use observe::{gather, store};
pub use olm_rollout::{canonical, content, policy, status};
pub use records::teardown_records;

/// The types of the engine.
pub mod engine {
    pub use olm_rollout::engine::rollout;
    pub use olm_rollout::failure::{FailureKind, RequestFailure};
    pub use olm_rollout::object::ObjectId;
    pub use olm_rollout::{ownership, report};
}
