//! The metrics of operator-controller: what the extensions are like, and what the work on them took.

pub mod collector;
pub mod counters;
pub mod rollouts;
pub mod sample;
