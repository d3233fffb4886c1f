//! What the errors of every stage have in common: who can fix them, and the reason of the condition.

use std::error::Error;

use olm_api::conditions::reason;
use olm_platform::log::chain;

/// Who can fix a failure, and so when it is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Only a change of the ClusterExtension or of the bundle; tried again when one of them changes.
    Terminal,
    /// Somebody has to change something else, such as an account's rights; tried again within a minute.
    Waiting,
    /// It may pass by itself; retried with growing pauses.
    Transient,
    /// Nobody needs to: there is more to do than one run does, and the next goes on at once.
    Unfinished,
}

impl Severity {
    /// The reason of the condition `Progressing` where the reference goes on retrying what waits for somebody.
    pub(crate) const fn retrying_unless_terminal(self) -> &'static str {
        match self {
            Self::Terminal => reason::BLOCKED,
            Self::Waiting | Self::Transient | Self::Unfinished => reason::RETRYING,
        }
    }
}

/// An error of a stage.
pub trait StageError: Error + 'static {
    /// Who can fix it.
    fn severity(&self) -> Severity;

    /// The reason of the condition `Progressing`.
    fn reason(&self) -> &'static str {
        match self.severity() {
            Severity::Terminal | Severity::Waiting => reason::BLOCKED,
            Severity::Transient | Severity::Unfinished => reason::RETRYING,
        }
    }
}

/// A failure as the condition reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Who can fix it.
    pub severity: Severity,
    /// The reason of the condition `Progressing`.
    pub reason: &'static str,
    /// What went wrong, with all causes.
    pub message: String,
}

impl<E: StageError> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            severity: error.severity(),
            reason: error.reason(),
            message: chain(&error),
        }
    }
}

impl Failure {
    /// Adds another failure, which is found once this one is fixed.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        match other {
            Some(other) => Self {
                // What passes by itself is not reported for ever.
                severity: match self.severity {
                    Severity::Terminal => other.severity,
                    severity => severity,
                },
                message: format!("{}\nbesides: {}", self.message, other.message),
                ..self
            },
            None => self,
        }
    }

    /// Says which bundle it happened with.
    #[must_use]
    pub fn with_bundle(self, name: &str, version: &str) -> Self {
        let message = format!(
            "error for resolved bundle {name:?} with version {version:?}: {}",
            self.message
        );
        Self { message, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner: io")]
    struct Inner(#[source] std::io::Error);

    impl StageError for Outer {
        fn severity(&self) -> Severity {
            Severity::Waiting
        }
    }

    #[test]
    fn a_failure_tells_every_cause_once_and_the_bundle_it_happened_with() {
        let failure = Failure::from(Outer(Inner(std::io::Error::other("io"))));
        assert_eq!(failure.message, "outer: inner: io");
        assert_eq!(failure.reason, reason::BLOCKED);
        let other = Failure {
            severity: Severity::Terminal,
            reason: reason::BLOCKED,
            message: "no range".to_owned(),
        };
        let both = failure.clone().and(Some(other));
        assert_eq!(both.message, "outer: inner: io\nbesides: no range");
        assert_eq!(both.severity, Severity::Waiting);
        let terminal = Failure {
            severity: Severity::Terminal,
            ..failure.clone()
        };
        assert_eq!(terminal.and(Some(failure.clone())).severity, Severity::Waiting);
        assert_eq!(failure.clone().and(None), failure);
        assert_eq!(
            failure.with_bundle("a.v1", "1.0.0").message,
            r#"error for resolved bundle "a.v1" with version "1.0.0": outer: inner: io"#
        );
    }
}
