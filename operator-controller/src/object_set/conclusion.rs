//! The conclusion of a run over a ClusterObjectSet, and when the next run is due.

use std::time::Duration;

use olm_cluster::identity::AccountName;
use olm_platform::queue::Outcome;
use olm_rollout::{
    failure::{FailureKind, RequestFailure},
    object::ObjectId,
    report,
    status::RevisionState,
};

use super::context::Context;

/// The pause after an error that a user must fix.
pub(super) const LATER: Duration = Duration::from_secs(10);
/// The pause while rights or accounts are missing.
pub(super) const RIGHTS: Duration = Duration::from_secs(15);
/// The pause of an unchanged set: rights may be gone, and some objects cannot be watched.
pub(super) const RESYNC: Duration = Duration::from_mins(10);

/// The conclusion of a run over a ClusterObjectSet.
#[derive(Debug)]
pub(super) struct RunConclusion {
    /// The state for the conditions; `None` leaves the status unchanged.
    pub(super) state: Option<RevisionState>,
    pub(super) outcome: Outcome,
    /// A Secret with content does not exist.
    pub(super) lost: bool,
}

impl RunConclusion {
    pub(super) fn new(state: RevisionState, outcome: Outcome) -> Self {
        Self {
            state: Some(state),
            outcome,
            lost: false,
        }
    }

    pub(super) fn blocked(message: String, outcome: Outcome) -> Self {
        Self::new(RevisionState::Blocked(message), outcome)
    }

    pub(super) fn retrying(message: impl Into<String>, outcome: Outcome) -> Self {
        Self::new(RevisionState::Retrying(message.into()), outcome)
    }

    /// A retry, although a user must act first.
    pub(super) fn waiting(message: impl Into<String>, outcome: Outcome) -> Self {
        Self::new(RevisionState::Waiting(message.into()), outcome)
    }

    /// The conclusion of failed requests for objects: when to retry, and whether a user must act.
    pub(super) fn failed(
        context: &Context,
        account: &AccountName,
        failures: &[(ObjectId, RequestFailure)],
        message: String,
    ) -> Self {
        let needs_user = report::most_severe(failures).is_some_and(FailureKind::needs_user);
        let state = if needs_user {
            RevisionState::Waiting(message)
        } else {
            RevisionState::Retrying(message)
        };
        Self::new(state, retry(context, account, failures))
    }

    /// The conclusion with another message, if the state has one.
    pub(super) fn reworded(mut self, reword: impl Fn(&str) -> String) -> Self {
        if let Some(
            RevisionState::Blocked(message)
            | RevisionState::Paused(message)
            | RevisionState::Retrying(message)
            | RevisionState::Removing(message)
            | RevisionState::Waiting(message),
        ) = &mut self.state
        {
            *message = reword(message);
        }
        self
    }

    pub(super) fn silent(outcome: Outcome) -> Self {
        Self {
            state: None,
            outcome,
            lost: false,
        }
    }
}

/// The reason why a run ends before its last step.
#[derive(Debug)]
pub(super) enum Stop {
    /// The step has a conclusion for the status.
    Concluded(RunConclusion),
    /// Our own record could not be written.
    Unwritten(kube::Error),
}

impl Stop {
    /// The conclusion, if there is one.
    pub(super) fn conclusion(self) -> Result<RunConclusion, kube::Error> {
        match self {
            Self::Concluded(conclusion) => Ok(conclusion),
            Self::Unwritten(error) => Err(error),
        }
    }
}

impl From<RunConclusion> for Stop {
    fn from(conclusion: RunConclusion) -> Self {
        Self::Concluded(conclusion)
    }
}

/// The time of the retry after failed requests.
pub(super) fn retry(
    context: &Context,
    account: &AccountName,
    failures: &[(ObjectId, RequestFailure)],
) -> Outcome {
    match report::most_severe(failures) {
        Some(FailureKind::Forbidden) => {
            context.reviews.forget(account);
            Outcome::After(RIGHTS)
        }
        Some(FailureKind::UnknownKind | FailureKind::MissingNamespace | FailureKind::Invalid) => {
            Outcome::After(LATER)
        }
        Some(FailureKind::Conflict) => Outcome::After(Duration::from_secs(1)),
        Some(FailureKind::Transient) | None => Outcome::Failed,
    }
}
