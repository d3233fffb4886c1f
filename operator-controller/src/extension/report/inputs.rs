//! The inputs of the status of a ClusterExtension.

use std::time::Duration;

use olm_resolve::deprecation::Messages;

use super::retry::AT_ONCE;
use crate::extension::act::Applied;
use crate::extension::events::{self, EventKind};
use crate::extension::failure::{Severity, StageFailure};
use crate::extension::preflight::Started;
use crate::extension::revisions::Revisions;

/// The pause before the next decision, because the extension, a policy or the decision changed and the watch may lag
/// behind.
pub(crate) const DECIDE_AGAIN: Duration = Duration::from_secs(1);

/// The result of the last stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The wanted content is in a revision. `started` is one that was just created and has no status yet.
    Applied {
        /// The new revision.
        started: Option<Started>,
    },
    /// The same, but a catalog that may have an update does not answer.
    Silent(StageFailure),
    /// A stage failed.
    Failed(StageFailure),
}

impl Progress {
    /// The progress of a run whose last stage ended with `applied`. The error is the pause before the next run, which has
    /// more to do before there is something to report.
    ///
    /// `problem` is one that the resolution found, `silent` a catalog that does not answer. With `is_update`, a version is
    /// installed and what waits for an approval is an update of it.
    pub(crate) fn of(
        applied: Result<Applied, StageFailure>,
        problem: Option<StageFailure>,
        silent: Option<StageFailure>,
        is_update: bool,
    ) -> Result<Self, Duration> {
        Ok(match (applied, problem) {
            (Ok(Applied::Prepared | Applied::ConditionRefused(_)), _) => return Err(AT_ONCE),
            (Ok(Applied::Outdated), _) => return Err(DECIDE_AGAIN),
            (Ok(Applied::Held(_)), _) if is_update => Self::Applied { started: None },
            (Ok(Applied::Held(held)), _) => Self::Failed(held.failure()),
            (Err(failure), _) | (Ok(Applied::Done(_)), Some(failure)) => Self::Failed(failure),
            (Ok(Applied::Done(done)), None) => match (done.started, silent) {
                (None, Some(silent)) => Self::Silent(silent),
                (started, _) => Self::Applied { started },
            },
        })
    }

    /// The kind of event that reports the blocker of an extension.
    pub(crate) fn event_kind(&self, is_paused: bool) -> EventKind {
        match self.severity() {
            Some(Severity::Unfinished) => EventKind::Normal(events::MIGRATING),
            Some(Severity::Terminal) if is_paused => EventKind::Normal(events::PAUSED),
            Some(Severity::Pulling) => EventKind::None,
            _ => EventKind::Warning,
        }
    }

    /// The severity of the failure; `None` without a failure.
    pub(crate) fn severity(&self) -> Option<Severity> {
        match self {
            Self::Applied { .. } => None,
            Self::Silent(failure) | Self::Failed(failure) => Some(failure.severity),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusInputs<'a> {
    /// The observed generation.
    pub generation: i64,
    /// The extension's revisions.
    pub revisions: &'a Revisions,
    /// The deprecations in the catalogs; `None` if no catalog answered.
    pub deprecations: Option<&'a Messages>,
    /// The result of the last stages.
    pub progress: &'a Progress,
    /// Whether the user has paused the extension.
    pub is_paused: bool,
}
