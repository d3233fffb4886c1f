//! The common trait of all stage errors: their severity, and the reason of the condition.

use std::error::Error;

use olm_api::conditions::reason;
use olm_api::updates::held_back;
use olm_platform::log::chain;
pub(crate) use olm_platform::queue::Severity;

/// The reason of `Progressing` if the reference implementation retries a failure that waits for a user.
pub(crate) const fn retrying_unless_terminal(severity: Severity) -> &'static str {
    match severity {
        Severity::Terminal => reason::BLOCKED,
        Severity::Waiting | Severity::Transient | Severity::Unfinished | Severity::Pulling => {
            reason::RETRYING
        }
    }
}

/// A request to the API server failed. The next run sends it again.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct RequestError {
    what: String,
    source: kube::Error,
}

/// The error of a request that was made for this.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(kube::Error) -> RequestError {
    let what = what.into();
    move |source| RequestError { what, source }
}

impl RequestError {
    /// Whether the API server refuses the request, or does not find the object or its namespace.
    pub(crate) fn is_refused_or_not_found(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if matches!(status.code, 403 | 404))
    }
}

/// The most characters about a blocked extension that others show.
const SHOWN: usize = 200;

pub trait StageError: Error + 'static {
    /// Whether a user must act, or a retry helps.
    fn severity(&self) -> Severity;

    /// The reason of the condition `Progressing`.
    fn reason(&self) -> &'static str {
        match self.severity() {
            Severity::Terminal | Severity::Waiting => reason::BLOCKED,
            Severity::Transient | Severity::Unfinished | Severity::Pulling => reason::RETRYING,
        }
    }

    /// The message with all causes. If the reference implementation fixes the text, exactly that.
    fn message(&self) -> String
    where
        Self: Sized,
    {
        chain(self)
    }

    /// The explanation and hints, in lines.
    fn help(&self) -> Option<String> {
        None
    }

    /// The reason that holds an update back, one of [`held_back`]'s constants.
    fn held_back_by(&self) -> &'static str {
        held_back::OTHER
    }
}

/// The failure of a stage, as the condition reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageFailure {
    /// Whether a user must act, or a retry helps.
    pub severity: Severity,
    /// The reason of the condition `Progressing`.
    pub reason: &'static str,
    /// The message with all causes, as in `Progressing`.
    pub message: String,
    /// The explanation and hints, in lines. `Ready` has both.
    pub help: Option<String>,
    /// The reason that holds an update back, one of [`held_back`]'s constants.
    pub held_back_by: &'static str,
}

impl<E: StageError> From<E> for StageFailure {
    fn from(error: E) -> Self {
        Self {
            severity: error.severity(),
            reason: error.reason(),
            message: error.message(),
            help: error.help(),
            held_back_by: error.held_back_by(),
        }
    }
}

impl StageFailure {
    /// The beginning of the message, for other extensions that wait for this one.
    pub(crate) fn first_line(&self) -> String {
        let line = self.message.lines().next().unwrap_or_default();
        line.chars().take(SHOWN).collect()
    }

    /// The message, explanation and hints.
    pub fn explained(&self) -> String {
        match &self.help {
            Some(help) => format!("{}\n{help}", self.message),
            None => self.message.clone(),
        }
    }

    /// Adds another failure, which would remain after this one is fixed.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        match other {
            Some(other) => Self {
                // A transient failure does not stay in the report.
                severity: match self.severity {
                    Severity::Terminal => other.severity,
                    severity => severity,
                },
                help: Some(match &self.help {
                    Some(help) => format!("{help}\nalso: {}", other.explained()),
                    None => format!("also: {}", other.explained()),
                }),
                ..self
            },
            None => self,
        }
    }

    /// Adds the name of the bundle to the message.
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
        let failure = StageFailure::from(Outer(Inner(std::io::Error::other("io"))));
        assert_eq!(failure.message, "outer: inner: io");
        assert_eq!(failure.reason, reason::BLOCKED);
        let other = StageFailure {
            severity: Severity::Terminal,
            reason: reason::BLOCKED,
            message: "no range".to_owned(),
            help: Some("take another".to_owned()),
            held_back_by: held_back::OTHER,
        };
        let both = failure.clone().and(Some(other));
        assert_eq!(both.message, "outer: inner: io");
        assert_eq!(both.explained(), "outer: inner: io\nalso: no range\ntake another");
        assert_eq!(both.severity, Severity::Waiting);
        let terminal = StageFailure {
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
