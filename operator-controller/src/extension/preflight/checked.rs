//! Actions that may be executed.

use kube::Resource as _;
use olm_api::ClusterExtension;
use olm_platform::events::Notice;

use crate::extension::approval::Proposal;
use crate::extension::bundle::settled::Inputs;
use crate::extension::context::Context;
use crate::extension::plan::action::Action;
use crate::extension::plan::revision::Creation;

/// Actions that passed the preflight or need none. Only these are executed.
pub(crate) struct Checked {
    actions: Vec<Action>,
    /// The revision that is created after them. It is no [`Action`]: only the preflight lets a new bundle be
    /// installed. A revision that adopts a Helm release has objects that exist.
    creation: Option<Creation>,
    announcement: Option<Announcement>,
}

/// The report after all actions are executed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announcement {
    /// The revision that is created.
    pub started: Option<Started>,
    pub events: Vec<Notice>,
    /// The inputs of the newest revision, if it is already the wanted one.
    pub settled: Option<Inputs>,
}

/// A new revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Started {
    /// The name.
    pub revision: String,
    /// The bundle's version.
    pub version: String,
    pub warnings: Option<String>,
    /// The differences from the installed revision.
    pub difference: Option<String>,
}

impl Announcement {
    /// Logs and publishes the report.
    pub(crate) fn announce(&self, context: &Context, extension: &ClusterExtension) {
        if let Some(started) = &self.started {
            tracing::info!(
                extension = extension.name(),
                revision = started.revision,
                version = started.version,
                warnings = started.warnings,
                difference = started.difference,
                "created a revision"
            );
        }
        context
            .events
            .publish(extension.object_ref(&()), self.events.clone());
    }
}

impl Checked {
    /// Actions that need no preflight, because they write OLM's own records alone, or that prepare a revision, which the
    /// next run checks again.
    pub(crate) fn preparation(actions: Vec<Action>) -> Self {
        Self {
            actions,
            creation: None,
            announcement: None,
        }
    }

    /// Actions that complete the plan.
    pub(super) fn complete(
        actions: Vec<Action>,
        creation: Option<Creation>,
        announcement: Announcement,
    ) -> Self {
        Self {
            actions,
            creation,
            announcement: Some(announcement),
        }
    }

    /// Whether a revision is created.
    pub(crate) fn creates(&self) -> bool {
        self.creation.is_some()
    }

    /// Records the digest and the approval on the revision that is created.
    pub(crate) fn approve(&mut self, proposal: &Proposal) {
        if let Some(creation) = &mut self.creation {
            proposal.record(creation);
        }
    }

    /// The actions, the revision to create after them, and the report at the end; without a report the next run
    /// continues.
    pub(crate) fn into_parts(self) -> (Vec<Action>, Option<Creation>, Option<Announcement>) {
        (self.actions, self.creation, self.announcement)
    }
}
