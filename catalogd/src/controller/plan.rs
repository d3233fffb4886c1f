//! What to do about a catalog: a pure function of what is known.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{self, reason};
use olm_api::names::{finalizer, label, user};

use super::observe::{Observed, Role};
use super::report;
use super::template::{self, Chosen, Unnamed};

/// What to do, in this order: metadata, content, status, finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Labels and finalizers to write before anything else; nothing when they are right.
    pub(super) metadata: Option<Metadata>,
    pub(super) content: Content,
    /// Whether our finalizer goes once all is done.
    pub(super) release: bool,
    /// The time until the next look at the tag, should this pass succeed.
    pub(super) poll: Option<Duration>,
    /// The time until the next look at what the image's name depends on, however this pass ends.
    pub(super) recheck: Option<Duration>,
    /// What the object asks for and is not followed.
    pub(super) note: Option<String>,
}

/// The labels and finalizers that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) set_label: bool,
    pub(super) add_finalizer: bool,
}

/// What to do about content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// What is here is right, or nothing can be done.
    Keep,
    /// Find out what the reference means and fetch it if it is not here. What status says is served, and is not here,
    /// is fetched before that.
    Follow {
        reference: String,
        before: Option<Claimed>,
    },
    /// Fetch exactly what status says is served.
    Copy(Claimed),
    /// Stop serving it.
    Remove(Why),
    /// The object asks for something that does not exist.
    Refuse(String),
    /// Something that is needed is not known yet.
    Wait(String),
}

/// Content that status says is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claimed {
    /// The reference by digest.
    pub(super) resolved: String,
    /// The reference that it was resolved from; empty when nobody knows.
    pub(super) requested: String,
    /// When this content appeared.
    pub(super) modified: Option<Timestamp>,
}

/// Why content is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The object is being deleted.
    Deleted,
    /// `availabilityMode` says so.
    Unavailable,
}

/// Plans. A plan made of its own result asks for nothing.
pub(super) fn plan(observed: &Observed) -> Plan {
    let catalog = &*observed.catalog;
    let mut plan = Plan {
        metadata: None,
        content: Content::Keep,
        release: false,
        poll: None,
        recheck: None,
        note: None,
    };
    let removal = if catalog.is_deleting() {
        Some(Why::Deleted)
    } else if catalog.spec.availability_mode == AvailabilityMode::Unavailable {
        Some(Why::Unavailable)
    } else {
        None
    };
    match observed.role {
        Role::Follower => {
            plan.content = match removal {
                None => copy(missing(observed)),
                Some(why) if observed.known => Content::Remove(why),
                Some(_) => Content::Keep,
            };
            return plan;
        }
        Role::Leader => {}
    }
    let finalized = has_finalizer(catalog);
    if removal == Some(Why::Deleted) {
        // With other finalizers left our part is done already, and nothing is left to say.
        if finalized {
            plan.content = Content::Remove(Why::Deleted);
            plan.release = true;
        }
        return plan;
    }
    match paused(catalog) {
        Ok(false) => {}
        // What is served stays so, also when the disk was lost.
        Ok(true) => {
            if removal.is_none() {
                plan.content = match lost(observed) {
                    Some(claimed) => Content::Copy(claimed),
                    None => Content::Refuse(format!(
                        "paused by the annotation {}: nothing is changed (to go on: `{}`)",
                        user::PAUSED,
                        annotate(Annotated::Catalog(catalog.name()), user::PAUSED, None),
                    )),
                };
            }
            return plan;
        }
        Err(message) => {
            plan.content = Content::Refuse(message);
            return plan;
        }
    }
    let metadata = Metadata {
        set_label: catalog.label(label::METADATA_NAME) != Some(catalog.name()),
        add_finalizer: removal.is_none() && !finalized,
    };
    plan.metadata = (metadata.set_label || metadata.add_finalizer).then_some(metadata);
    if removal.is_some() {
        let said = conditions::find(catalog.conditions(), conditions::SERVING).is_some_and(|condition| {
            condition.reason == reason::USER_SPECIFIED_UNAVAILABLE
                && condition.observed_generation == Some(catalog.generation())
        });
        if observed.known || !said {
            plan.content = Content::Remove(Why::Unavailable);
        }
        plan.release = finalized;
        return plan;
    }
    follow(observed, &mut plan);
    plan
}

/// The leader's way: from the spec to the registry.
fn follow(observed: &Observed, plan: &mut Plan) {
    let catalog = &*observed.catalog;
    if template::is_templated(catalog) {
        plan.recheck = Some(template::LOOK_AGAIN);
    }
    let Chosen { reference, ignored } = match template::choose(catalog, observed.kubernetes.as_ref()) {
        Ok(chosen) => chosen,
        Err(Unnamed::Change(message)) => {
            plan.content = Content::Refuse(message);
            return;
        }
        Err(Unnamed::Wait(message)) => {
            plan.content = Content::Wait(message);
            return;
        }
    };
    plan.note = ignored;
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
    let blocked = observed.memory.blocked.as_ref();
    if blocked
        .is_some_and(|blocked| blocked.generation == catalog.generation() && blocked.reference == reference)
    {
        plan.content = copy(lost(observed));
        return;
    }
    let here = observed.stored.as_ref().is_some_and(|stored| {
        stored.requested == reference || observed.memory.confirmed.as_ref() == Some(&reference)
    });
    let settled = conditions::find(catalog.conditions(), conditions::PROGRESSING).is_some_and(|condition| {
        condition.reason == reason::SUCCEEDED
            && condition.observed_generation == Some(catalog.generation())
            && condition.message == report::succeeded(plan.note.as_deref())
    });
    let due = interval.map(|interval| match observed.memory.polled {
        None => Duration::ZERO,
        Some(polled) => {
            let age = Duration::try_from(observed.now.duration_since(polled)).unwrap_or_default();
            interval.saturating_sub(age)
        }
    });
    let asked = catalog.annotation(user::POLL);
    let due_now = due.is_some_and(|due| due.is_zero())
        || asked.is_some_and(|asked| observed.memory.asked.as_deref() != Some(asked));
    if here && settled && lost(observed).is_none() && !due_now {
        plan.poll = due;
    } else {
        plan.content = Content::Follow {
            reference,
            before: lost(observed),
        };
    }
}

/// What status says is served, and this process has nothing of, or only something older.
fn lost(observed: &Observed) -> Option<Claimed> {
    missing(observed).filter(|claimed| {
        observed
            .stored
            .as_ref()
            .is_none_or(|stored| claimed.modified.is_some_and(|modified| stored.since < modified))
    })
}

fn copy(claimed: Option<Claimed>) -> Content {
    claimed.map_or(Content::Keep, Content::Copy)
}

/// What status says is served, when it is not here and not known to be unusable.
fn missing(observed: &Observed) -> Option<Claimed> {
    let catalog = &*observed.catalog;
    let status = catalog.status.as_ref()?;
    let resolved = status.resolved_source.as_ref()?.image.as_ref()?.reference.clone();
    let here = observed
        .stored
        .as_ref()
        .is_some_and(|stored| stored.resolved == resolved);
    let refused = observed
        .memory
        .refused
        .as_ref()
        .is_some_and(|refused| refused.resolved == resolved);
    if here || refused {
        return None;
    }
    // The spec's reference belongs to this digest only if the leader has looked at this very spec and found it good.
    let current = conditions::find(catalog.conditions(), conditions::PROGRESSING).is_some_and(|condition| {
        condition.reason == reason::SUCCEEDED && condition.observed_generation == Some(catalog.generation())
    });
    let requested = catalog.spec.source.image.as_ref().filter(|_| current);
    Some(Claimed {
        resolved,
        requested: requested.map(|image| image.reference.clone()).unwrap_or_default(),
        modified: status.last_unpacked.as_ref().map(|time| time.0),
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
            "annotation {} must be \"true\" or \"false\", not {other:?}; it is not paused, but what is served stays until that is \
             mended",
            user::PAUSED
        )),
    }
}

/// The time lengthened by up to a hundredth, so that catalogs made together are not polled together for ever.
fn spread(time: Duration, name: &str) -> Duration {
    let sum = name.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    time + time / 100 * (sum % 100) / 100
}

#[cfg(test)]
mod tests;
