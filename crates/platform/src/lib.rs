//! Process plumbing for long-running managers: signals and shutdown, leader election, TLS material, logs, metrics,
//! health, the work queue, the API client.
//!
//! Nothing here knows what the managers manage: names of leases, Secrets and metrics are arguments.

pub mod admin;
mod api;
pub mod args;
pub mod crypto;
pub mod features;
pub mod gate;
pub mod leadership;
pub mod lease;
pub mod listener;
pub mod log;
pub mod metrics;
mod outcome;
mod progress;
pub mod queue;
pub mod shutdown;
mod stall;
pub mod tls;
pub mod version;

pub use api::{client, events, identity, pull_secrets};
