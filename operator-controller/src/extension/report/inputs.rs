//! What the status of a ClusterExtension follows from.

use olm_resolve::deprecation::Messages;

use crate::extension::failure::{Failure, Severity};
use crate::extension::preflight::Started;
use crate::extension::revisions::Revisions;

/// What the last steps came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// What is wanted is written as a revision; `started` is one that was just made and has no status yet.
    Applied {
        /// The new revision.
        started: Option<Started>,
    },
    /// The same, but a catalog that may offer an update does not answer.
    Silent(Failure),
    /// A step failed.
    Failed(Failure),
}

impl Progress {
    /// The severity of the failure; `None` when nothing failed.
    pub fn severity(&self) -> Option<Severity> {
        match self {
            Self::Applied { .. } => None,
            Self::Silent(failure) | Self::Failed(failure) => Some(failure.severity),
        }
    }
}

/// Everything that the status follows from.
#[derive(Debug, Clone, Copy)]
pub struct StatusInputs<'a> {
    /// The generation that was worked on.
    pub generation: i64,
    /// The extension's revisions.
    pub revisions: &'a Revisions,
    /// What the catalogs say against what is used; nothing when none could be asked.
    pub deprecations: Option<&'a Messages>,
    /// What the last steps came to.
    pub progress: &'a Progress,
    /// Whether the user has everything stand still.
    pub is_paused: bool,
}
