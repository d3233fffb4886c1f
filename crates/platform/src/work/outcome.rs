//! The outcome of work on an object, and the severity of a failure.

use std::time::Duration;

/// The result of work on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until the key is added again.
    Done,
    /// Look again after this time, or earlier when the key is added.
    After(Duration),
    /// Only a change of the object helps, which adds its key again. Counted on its own and not as a failure of the
    /// controller.
    Refused,
    /// A transient failure: retried after 1 s, 2 s, 4 s, … 5 min, or earlier if the key is added.
    Failed,
}

/// The pause until the newer version of an object arrives.
const STALE: Duration = Duration::from_millis(200);

impl Outcome {
    /// The outcome if the object itself could not be written because it is gone, or because it changed and its newer
    /// version will arrive. `None` for every other failure.
    #[must_use]
    pub fn overtaken(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) if status.code == 404 => Some(Self::Done),
            kube::Error::Api(status) if status.code == 409 => Some(Self::After(STALE)),
            _ => None,
        }
    }
}

/// The severity of a failure: whether a user must act, and when the work is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Only a change of the object or of its references helps; retried when one of them changes.
    Terminal,
    /// A user must change something else, such as an account's rights; retried within a minute.
    Waiting,
    /// The failure may be temporary; retried with growing pauses.
    Transient,
    /// No user needs to act: the work exceeds one run, and the next run continues at once.
    Unfinished,
    /// No user needs to act: a required answer is in progress, and its arrival starts the next run.
    Pulling,
}
