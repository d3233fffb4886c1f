//! Values read as the decoders of Kubernetes read them, and the faults in them.

pub mod csv;
mod misfit;
pub(crate) mod value;

pub use misfit::{Misfit, misfits};
pub(crate) use misfit::{drop_unknown, misfits_of};
pub use value::{Path, Step};
