//! Leader election.

pub mod leadership;
pub mod lease;
