//! The engine that rolls a revision out and tears it down, without input or output.
//!
//! ```text
//! Outline ──► Rollout  ──requests──►  the controller          ──answers──►  Rollout  … ──► RolloutEnd
//!         ──► Teardown ──requests──►                          ──answers──►  Teardown … ──► TeardownEnd
//! ```
//!
//! A machine is a value. A step takes the machine with the answers to its last requests, and returns either the machine
//! with new requests or the end. Between runs all state is in the cluster, so a run may stop after any request and the
//! next one starts from the beginning.

pub mod decide;
pub mod desired;
pub mod differences;
pub mod release;
pub mod request;
pub mod rollout;
pub mod teardown;

#[cfg(test)]
mod tests;
