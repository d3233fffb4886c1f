//! The meaning of constraints, and the safety of hostile ones.
#![expect(clippy::unwrap_used, reason = "a fixture that is not sound fails its test")]

mod cel;
mod hostile;
mod requirements;
