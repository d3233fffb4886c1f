//! The engine that rolls a revision out and takes it down, without any input or output of its own.
//!
//! ```text
//! Outline ──► Rollout  ──requests──►  whoever has a cluster   ──answers──►  Rollout  … ──► RolloutEnd
//!         ──► Teardown ──requests──►                          ──answers──►  Teardown … ──► TeardownEnd
//! ```
//!
//! A machine is a value: a step takes it with the answers to its last requests and gives either the machine and new
//! requests, or the end. Nothing is remembered between two runs but what the cluster itself says, so a run may stop
//! after any request and the next one starts from the beginning.

pub mod decide;
pub mod desired;
pub mod differences;
pub mod release;
pub mod request;
pub mod rollout;
pub mod teardown;

#[cfg(test)]
mod tests;
