//! Process plumbing for long-running managers: signals and shutdown, leader election, TLS material, logs, metrics,
//! health, the work queue, the API client.
//!
//! Nothing here depends on the managed objects: names of leases, Secrets and metrics are arguments.

mod api;
mod election;
pub mod metrics;
mod process;
mod server;
pub mod tls;
mod work;

pub use api::{client, events, fresh, identity, pull_secrets, write};
pub use election::{leadership, lease};
pub use process::{args, crypto, features, log, memory, shutdown, version};
pub use server::{admin, delegated, gate, listener};
pub use work::queue;
