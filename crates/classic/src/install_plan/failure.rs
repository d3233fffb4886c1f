//! Failures of steps of a plan.

/// Failure of a step.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something does not exist; perhaps the kind is not served.
    NotFound(String),
    /// Anything else.
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}
