//! The metrics of operator-controller: the state of extensions, and the work on them.

pub mod collector;
pub mod counters;
pub mod rollouts;
pub mod sample;
