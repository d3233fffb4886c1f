//! The chosen bundle.

pub mod olm_constraints_cel;
pub mod successors_resolution;
