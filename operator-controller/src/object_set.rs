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
pub mod controller;
#[cfg(test)]
mod default_probes;
mod definition;
pub mod executor;
pub mod gather;
pub mod memory;
pub mod reconcile;
pub mod records;
pub mod removal;
pub mod rights;
pub mod store;
pub mod teardown_records;

pub use olm_rollout::{canonical, content, policy, status};

/// What became of objects.
pub mod fate {
    pub use super::teardown_records::TeardownRecords as Fates;
    pub use olm_rollout::teardown_record::TeardownRecord as Fate;
}

/// The engine's words.
pub mod engine {
    pub use olm_rollout::engine::rollout;
    pub use olm_rollout::failure::{Failure, FailureKind};
    pub use olm_rollout::object::ObjectId;
    pub use olm_rollout::{ownership, report};
}
