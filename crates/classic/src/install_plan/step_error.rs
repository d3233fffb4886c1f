//! Error of a step of a plan.

/// Error of a step.
#[derive(Debug)]
pub(super) enum StepError {
    /// Something does not exist; perhaps the kind is not served.
    NotFound(String),
    /// Anything else.
    Other(String),
}

impl From<String> for StepError {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}
