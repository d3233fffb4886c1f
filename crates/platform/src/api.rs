//! The API server: the connection, the manager's identity, and the objects that a manager keeps there.

pub mod client;
pub mod events;
pub mod fresh;
pub mod identity;
pub mod pull_secrets;
pub mod write;
