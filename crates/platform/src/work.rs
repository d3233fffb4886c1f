//! The work of a controller, object by object.

mod outcome;
pub mod queue;

pub(crate) use outcome::Outcome;
