//! Certificates that OLM makes itself: which revisions need them, which objects trust them, and their records.
//!
//! Neither the Secrets nor the authorities are content of a ClusterObjectSet: the Secrets come as a phase of their own in
//! front of the others, so that the engine owns, watches, hands over and removes them like any object; the authorities are
//! written into the objects that name them, right after these are applied.

pub mod authority;
pub mod layout;
pub mod memory;
