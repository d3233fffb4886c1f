//! Which replica leads.

pub mod leadership;
pub mod lease;
