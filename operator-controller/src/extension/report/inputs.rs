//! The inputs of the status of a ClusterExtension.

use olm_resolve::deprecation::Messages;

use crate::extension::failure::{Severity, StageFailure};
use crate::extension::preflight::Started;
use crate::extension::revisions::Revisions;

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
