//! What constraints mean, and that no text of one does harm.
#![expect(clippy::unwrap_used, reason = "a fixture that is not sound fails its test")]

mod cel;
mod hostile;
mod requirements;
