//! The metrics of operator-controller: the state of extensions, and the work on them.

pub(crate) mod collector;
pub mod counters;
pub(crate) mod rollouts;
pub(crate) mod sample;
