//! Values read as the decoders of Kubernetes read them, and the faults in them.

pub mod csv;
mod spec_fault;
pub(crate) mod value;

pub use spec_fault::{SpecFault, spec_faults};
pub(crate) use spec_fault::{drop_unknown, spec_faults_of};
pub use value::{Path, Step};
