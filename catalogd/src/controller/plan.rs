//! The plan for a catalog: a pure function of the observed facts.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{self, bounded_message, reason};
use olm_api::names::{CLUSTER_CATALOG, finalizer, label, user};
use olm_cluster::image_policies::own_rules;
use olm_image::Rules;

use super::message::ready;
use super::observe::{Observed, Role};
use super::template::{self, CatalogReference, NoImage};

/// The actions, in this order: metadata, content, status, finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Labels and finalizers to write first; `None` when they are right.
    pub(super) metadata: Option<Metadata>,
    pub(super) content: ContentAction,
    /// Whether to remove our finalizer at the end.
    pub(super) release: bool,
    /// The time until the next poll of the tag, if this pass succeeds.
    pub(super) poll: Option<Duration>,
    /// The time until the next read of the cluster version, however this pass ends.
    pub(super) recheck: Option<Duration>,
    /// A note about an annotation that is not used.
    pub(super) note: Option<String>,
}

/// The labels and finalizers that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) set_label: bool,
    pub(super) add_finalizer: bool,
}

/// The action on content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentAction {
    /// None: the content is correct, or no action helps.
    Keep,
    /// Resolve the reference, and fetch the content if it is not stored. Before that, restore content that status
    /// reports and the store lacks.
    Resolve {
        reference: String,
        before: Option<ReportedContent>,
    },
    /// Fetch exactly the content that status reports as served.
    Restore(ReportedContent),
    /// Stop serving it.
    Remove(RemovalReason),
    /// Set `Blocked`: the object must change.
    Block(String),
    /// Set `Retrying`: a fact is not known yet.
    Retry(String),
}

/// Content that status reports as served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedContent {
    /// The reference by digest.
    pub(super) resolved: String,
    /// The reference that it was resolved from; empty when unknown.
    pub(super) requested: String,
    /// The time when this content appeared.
    pub(super) modified: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalReason {
    /// The object is being deleted.
    Deleted,
    /// `availabilityMode` is `Unavailable`.
    Unavailable,
}

/// Plans. The plan for its own result is empty.
pub(super) fn plan(observed: &Observed) -> Plan {
    let catalog = &*observed.catalog;
    let mut plan = Plan {
        metadata: None,
        content: ContentAction::Keep,
        release: false,
        poll: None,
        recheck: None,
        note: None,
    };
    let removal = if catalog.is_deleting() {
        Some(RemovalReason::Deleted)
    } else if catalog.spec.availability_mode == AvailabilityMode::Unavailable {
        Some(RemovalReason::Unavailable)
    } else {
        None
    };
    match observed.role {
        Role::Follower => {
            plan.content = match removal {
                None => copy(missing(observed)),
                Some(why) if observed.known => ContentAction::Remove(why),
                Some(_) => ContentAction::Keep,
            };
            return plan;
        }
        Role::Leader => {}
    }
    let finalized = has_finalizer(catalog);
    if removal == Some(RemovalReason::Deleted) {
        // Without our finalizer the content is already removed.
        if finalized {
            plan.content = ContentAction::Remove(RemovalReason::Deleted);
            plan.release = true;
        }
        return plan;
    }
    match paused(catalog) {
        Ok(false) => {}
        // Served content stays served, also after the disk was lost.
        Ok(true) => {
            if removal.is_none() {
                plan.content = match lost(observed) {
                    Some(claimed) => ContentAction::Restore(claimed),
                    None => ContentAction::Block(format!(
                        "paused by annotation {}; to resume run `{}`",
                        user::PAUSED,
                        annotate(Annotated::Catalog(catalog.name()), user::PAUSED, None),
                    )),
                };
            }
            return plan;
        }
        Err(message) => {
            plan.content = ContentAction::Block(message);
            return plan;
        }
    }
    let metadata = Metadata {
        set_label: catalog.label(label::METADATA_NAME) != Some(catalog.name()),
        add_finalizer: removal.is_none() && !finalized,
    };
    plan.metadata = (metadata.set_label || metadata.add_finalizer).then_some(metadata);
    if removal.is_some() {
        let is_reported =
            conditions::find(catalog.conditions(), conditions::SERVING).is_some_and(|condition| {
                condition.reason == reason::USER_SPECIFIED_UNAVAILABLE
                    && condition.observed_generation == Some(catalog.generation())
            });
        if observed.known || !is_reported {
            plan.content = ContentAction::Remove(RemovalReason::Unavailable);
        }
        plan.release = finalized;
        return plan;
    }
    follow(observed, &mut plan);
    plan
}

/// The plan of the leader: from the spec to the registry.
fn follow(observed: &Observed, plan: &mut Plan) {
    let catalog = &*observed.catalog;
    if template::is_templated(catalog) {
        plan.recheck = Some(template::RECHECK_INTERVAL);
    }
    let CatalogReference { reference, ignored } =
        match template::choose(catalog, observed.kubernetes.as_ref()) {
            Ok(chosen) => chosen,
            Err(NoImage::Blocked(message)) => {
                plan.content = ContentAction::Block(message);
                return;
            }
            Err(NoImage::Retry(message)) => {
                plan.content = ContentAction::Retry(message);
                return;
            }
        };
    plan.note = ignored;
    if let Err(message) = rules(catalog) {
        plan.content = ContentAction::Block(message);
        return;
    }
    let interval = catalog
        .spec
        .source
        .image
        .as_ref()
        .and_then(|image| image.poll_interval_minutes);
    let interval = interval
        .and_then(|minutes| u64::try_from(minutes).ok())
        .map(|minutes| spread(Duration::from_secs(minutes.saturating_mul(60)), catalog.name()));
    plan.poll = interval;
    let blocked = observed.state.blocked.as_ref();
    if blocked
        .is_some_and(|blocked| blocked.generation == catalog.generation() && blocked.reference == reference)
    {
        plan.content = copy(lost(observed));
        return;
    }
    let here = observed.stored.as_ref().is_some_and(|stored| {
        stored.requested == reference || observed.state.confirmed.as_ref() == Some(&reference)
    });
    let settled = conditions::find(catalog.conditions(), conditions::PROGRESSING).is_some_and(|condition| {
        condition.reason == reason::SUCCEEDED && condition.observed_generation == Some(catalog.generation())
    });
    // The note may have changed.
    let ready = bounded_message(&ready(plan.note.as_deref()));
    let settled = settled
        && conditions::find(catalog.conditions(), conditions::READY)
            .is_some_and(|condition| condition.message == ready);
    let due = interval.map(|interval| match observed.state.polled {
        None => Duration::ZERO,
        Some(polled) => {
            let age = Duration::try_from(observed.now.duration_since(polled)).unwrap_or_default();
            interval.saturating_sub(age)
        }
    });
    let asked = catalog.annotation(user::POLL);
    let due_now = due.is_some_and(|due| due.is_zero())
        || asked.is_some_and(|asked| observed.state.asked.as_deref() != Some(asked));
    if here && settled && lost(observed).is_none() && !due_now {
        plan.poll = due;
    } else {
        plan.content = ContentAction::Resolve {
            reference,
            before: lost(observed),
        };
    }
}

/// Content that status reports and this process lacks, or has in an older version only.
fn lost(observed: &Observed) -> Option<ReportedContent> {
    missing(observed).filter(|claimed| {
        observed
            .stored
            .as_ref()
            .is_none_or(|stored| claimed.modified.is_some_and(|modified| stored.since < modified))
    })
}

fn copy(claimed: Option<ReportedContent>) -> ContentAction {
    claimed.map_or(ContentAction::Keep, ContentAction::Restore)
}

/// Content that status reports, unless it is stored here or known to be unusable.
fn missing(observed: &Observed) -> Option<ReportedContent> {
    let catalog = &*observed.catalog;
    let status = catalog.status.as_ref()?;
    let resolved = status.resolved_source.as_ref()?.image.as_ref()?.reference.clone();
    let here = observed
        .stored
        .as_ref()
        .is_some_and(|stored| stored.resolved == resolved);
    let refused = observed
        .state
        .refused
        .as_ref()
        .is_some_and(|refused| refused.resolved == resolved);
    if here || refused {
        return None;
    }
    // The reference of the spec belongs to this digest only if the leader succeeded with this very generation.
    let current = conditions::find(catalog.conditions(), conditions::PROGRESSING).is_some_and(|condition| {
        condition.reason == reason::SUCCEEDED && condition.observed_generation == Some(catalog.generation())
    });
    let requested = catalog.spec.source.image.as_ref().filter(|_| current);
    Some(ReportedContent {
        resolved,
        requested: requested.map(|image| image.reference.clone()).unwrap_or_default(),
        modified: status.last_unpacked.as_ref().map(|time| time.0),
    })
}

/// The rules of the catalog itself for its image.
///
/// # Errors
/// The message about an annotation that cannot be used.
pub(super) fn rules(catalog: &ClusterCatalog) -> Result<Rules, String> {
    let text = catalog.annotation(user::SIGNATURE_POLICY);
    own_rules(CLUSTER_CATALOG, catalog.name(), text).map_err(|fault| {
        format!(
            "annotation {}: {fault}; no content is fetched until you correct the value",
            user::SIGNATURE_POLICY
        )
    })
}

fn has_finalizer(catalog: &ClusterCatalog) -> bool {
    let finalizers = catalog.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|f| f == finalizer::DELETE_SERVER_CACHE)
}

fn paused(catalog: &ClusterCatalog) -> Result<bool, String> {
    match catalog.annotation(user::PAUSED) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!(
            "annotation {} must be \"true\" or \"false\", not {other:?}; the served content stays unchanged until the value is \
             corrected",
            user::PAUSED
        )),
    }
}

/// The time plus up to one percent, so that catalogs created together are not polled together for ever.
fn spread(time: Duration, name: &str) -> Duration {
    let sum = name.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    time + time / 100 * (sum % 100) / 100
}

#[cfg(test)]
mod tests;
