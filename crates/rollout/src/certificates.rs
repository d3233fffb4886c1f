//! Certificates that OLM creates itself: which revisions need them, which objects trust them, and their state.
//!
//! Neither the Secrets nor the certificate authorities are content of a ClusterObjectSet. The Secrets form a phase
//! before the others, so that the engine owns, watches, hands over and removes them like other objects. The authorities
//! are written into the objects that need them right after these are applied.

pub mod authority;
pub mod layout;
pub mod state;
