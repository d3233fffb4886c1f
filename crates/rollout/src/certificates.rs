//! Certificates of our own making: where a revision needs them, who trusts them, and what is remembered of them.
//!
//! Neither the Secrets nor the authorities are content of a ClusterObjectSet: the Secrets come as a phase of their own in
//! front of the others, so that the engine owns, watches, hands over and removes them like any object; the authorities are
//! written into the objects that name them, right after these are applied.

pub mod authority;
pub mod layout;
pub mod memory;
