//! Process plumbing for long-running managers: signals and shutdown, leader election, TLS material, logs, metrics,
//! health, the work queue, the API client.
//!
//! Nothing here knows what the managers manage: names of leases, Secrets and metrics are arguments.

pub mod admin;
pub mod args;
pub mod client;
pub mod crypto;
pub mod events;
pub mod features;
pub mod gate;
pub mod identity;
pub mod leadership;
pub mod lease;
pub mod listener;
pub mod log;
pub mod metrics;
mod progress;
pub mod pull_secrets;
pub mod queue;
pub mod shutdown;
mod stall;
pub mod tls;
pub mod version;
