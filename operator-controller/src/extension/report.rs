//! The status of an extension and its events, from what a run found out and did.

pub mod events;
pub mod status;
