//! The API server: the way to it, who asks, and what a manager keeps there.

pub mod client;
pub mod events;
pub mod identity;
pub mod pull_secrets;
