//! What is said about a catalog, and when it is looked at again: pure functions of what was done.

use std::fmt::Write as _;
use std::time::Duration;

use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::{
    CatalogUrls, ClusterCatalogStatus, ResolvedCatalogSource, ResolvedImageSource, SourceType,
};
use olm_api::conditions::{self, Report, Status, reason, set_condition};
use olm_api::serving::base_url;
use olm_platform::events::Said;
use olm_platform::queue::Outcome;

use super::observe::{Observed, Role, Stored};
use super::plan::{Content, Plan, Why};
use crate::hint::AGAIN;

const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
const SERVING: &str = "Serving desired content from resolved source";
const UNAVAILABLE: &str = "Catalog availability mode is set to Unavailable";
const MISSING: &str = "The content is not here and could not be fetched again";
const DELETED: &str = "Catalog content was removed because the catalog is being deleted";
/// The most bytes of the condition `ContentValid`.
const FINDINGS_BYTES: usize = 4096;

/// What was done about content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing had to be done.
    Nothing,
    /// What the reference means is served, be it new or not.
    Served(Stored),
    /// What status said is served is here again.
    Restored(Stored),
    /// What status says is served is not here and cannot be fetched; this is why.
    Lost(String),
    /// What is wanted could not be served; what was served still is.
    Failed(Failure),
    /// Content is not served any more.
    Removed(Why),
    /// Something else is wanted by now.
    Superseded,
}

/// Why what is wanted is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) message: String,
    /// What somebody can do about it, where that is known.
    pub(super) hint: Option<String>,
    pub(super) remedy: Remedy,
}

/// What helps against a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Trying again.
    Retry,
    /// A change of the object, and nothing else.
    Change,
}

/// The status that follows; nothing when it is not ours to write or stays as it is.
pub(super) fn status(
    observed: &Observed,
    plan: &Plan,
    done: &Done,
    origin: &str,
) -> Option<ClusterCatalogStatus> {
    if observed.role == Role::Follower {
        return None;
    }
    let before = observed.catalog.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let generation = observed.catalog.generation();
    let set = |status: &mut ClusterCatalogStatus, condition_type, value, reason, message: &str| {
        let message = &conditions::bounded_message(message);
        let report = Report {
            condition_type,
            status: value,
            reason,
            message,
            observed_generation: generation,
        };
        set_condition(&mut status.conditions, report, observed.now);
    };
    match done {
        Done::Superseded => {}
        Done::Nothing => {
            // Said again in case somebody else changed it; how far we got with the spec is known only to who tried.
            if let (Some(stored), false) = (&observed.stored, observed.catalog.is_deleting()) {
                serve(&mut status, observed, stored, origin, Generation::AsBefore);
            }
        }
        Done::Served(stored) => {
            set(
                &mut status,
                conditions::PROGRESSING,
                Status::True,
                reason::SUCCEEDED,
                &succeeded(plan.note.as_deref()),
            );
            serve(&mut status, observed, stored, origin, Generation::Current);
        }
        Done::Failed(failure) => {
            let (value, reason) = match failure.remedy {
                Remedy::Retry => (Status::True, reason::RETRYING),
                Remedy::Change => (Status::False, reason::BLOCKED),
            };
            let message = conditions::steady(&failure.message);
            let message = with_note(&message, plan.note.as_deref());
            let again = (failure.remedy == Remedy::Retry).then_some(AGAIN);
            let message = with_hints(message, failure.hint.as_deref().into_iter().chain(again));
            set(&mut status, conditions::PROGRESSING, value, reason, &message);
            stand(&mut status, observed, origin, MISSING);
        }
        Done::Restored(stored) => serve(&mut status, observed, stored, origin, Generation::AsBefore),
        Done::Lost(why) => {
            let why = conditions::steady(why);
            stand(&mut status, observed, origin, &format!("{MISSING}: {why}"));
        }
        Done::Removed(why) => {
            status.resolved_source = None;
            status.urls = None;
            status.last_unpacked = None;
            conditions::remove_condition(&mut status.conditions, conditions::CONTENT_VALID);
            let (reason, message) = match why {
                Why::Deleted => (reason::UNAVAILABLE, DELETED),
                Why::Unavailable => (reason::USER_SPECIFIED_UNAVAILABLE, UNAVAILABLE),
            };
            if *why == Why::Unavailable {
                set(
                    &mut status,
                    conditions::PROGRESSING,
                    Status::True,
                    reason::SUCCEEDED,
                    UNAVAILABLE,
                );
            }
            set(&mut status, conditions::SERVING, Status::False, reason, message);
        }
    }
    (status != before).then_some(status)
}

/// What is said of success.
pub(super) fn succeeded(note: Option<&str>) -> String {
    with_note(UNPACKED, note)
}

fn with_note(message: &str, note: Option<&str>) -> String {
    note.map_or_else(|| message.to_owned(), |note| format!("{message}; {note}"))
}

/// What can be done, and what happens by itself, each on a line of its own.
fn with_hints<'h>(message: String, hints: impl Iterator<Item = &'h str>) -> String {
    hints.fold(message, |message, hint| message + "\nhint: " + hint)
}

/// Corrects what is said of serving when it is not so. Before the first success nothing is said, as clients of the
/// reference know it: there is no condition `Serving`, and its column is empty.
fn stand(status: &mut ClusterCatalogStatus, observed: &Observed, origin: &str, missing: &str) {
    let said = conditions::find(&status.conditions, conditions::SERVING).map(|c| c.status == "True");
    match (&observed.stored, said) {
        (None, Some(true)) => {
            let report = Report {
                condition_type: conditions::SERVING,
                status: Status::False,
                reason: reason::UNAVAILABLE,
                message: &conditions::bounded_message(missing),
                observed_generation: observed.catalog.generation(),
            };
            set_condition(&mut status.conditions, report, observed.now);
        }
        (Some(stored), Some(false)) => serve(status, observed, stored, origin, Generation::AsBefore),
        _ => {}
    }
}

/// Which generation the content that is served belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    Current,
    AsBefore,
}

/// Says that content is served.
fn serve(
    status: &mut ClusterCatalogStatus,
    observed: &Observed,
    stored: &Stored,
    origin: &str,
    generation: Generation,
) {
    let same = resolved(status) == Some(stored.resolved.as_str());
    if !same || status.last_unpacked.is_none() {
        status.last_unpacked = Some(conditions::whole_seconds(stored.since));
    }
    status.resolved_source = Some(ResolvedCatalogSource {
        source_type: SourceType::Image,
        image: Some(ResolvedImageSource {
            reference: stored.resolved.clone(),
        }),
    });
    status.urls = Some(CatalogUrls {
        base: base_url(origin, observed.catalog.name()),
    });
    let before = |condition_type| {
        let condition = conditions::find(observed.catalog.conditions(), condition_type);
        condition
            .filter(|_| generation == Generation::AsBefore)
            .and_then(|condition| condition.observed_generation)
    };
    let valid = stored.findings.total == 0;
    let findings = findings(stored);
    let content = Report {
        condition_type: conditions::CONTENT_VALID,
        status: if valid { Status::True } else { Status::False },
        reason: if valid {
            reason::NO_FINDINGS
        } else {
            reason::FINDINGS
        },
        message: &findings,
        observed_generation: before(conditions::CONTENT_VALID)
            .unwrap_or_else(|| observed.catalog.generation()),
    };
    let serving = Report {
        condition_type: conditions::SERVING,
        status: Status::True,
        reason: reason::AVAILABLE,
        message: SERVING,
        observed_generation: before(conditions::SERVING).unwrap_or_else(|| observed.catalog.generation()),
    };
    for report in [serving, content] {
        set_condition(&mut status.conditions, report, observed.now);
    }
}

fn resolved(status: &ClusterCatalogStatus) -> Option<&str> {
    Some(
        status
            .resolved_source
            .as_ref()?
            .image
            .as_ref()?
            .reference
            .as_str(),
    )
}

fn findings(stored: &Stored) -> String {
    let total = stored.findings.total;
    if total == 0 {
        return "The whole-catalog check found nothing".to_owned();
    }
    let plural = if total == 1 { "finding" } else { "findings" };
    let mut text = format!("{total} {plural} of the whole-catalog check, which does not stop serving:");
    let mut shown = 0_u64;
    for finding in &stored.findings.first {
        let line = conditions::prefix(finding, 500);
        if text.len() + line.len() > FINDINGS_BYTES {
            break;
        }
        text.push_str("\n- ");
        text.push_str(line);
        shown += 1;
    }
    if shown < total {
        let _ = write!(text, "\n… and {} more", total - shown);
    }
    text
}

/// When the catalog is looked at again.
pub(super) fn next(plan: &Plan, observed: &Observed, done: &Done) -> Outcome {
    let after = |times: [Option<Duration>; 2]| {
        let soonest = times.into_iter().flatten().min();
        soonest.map_or(Outcome::Done, Outcome::After)
    };
    match done {
        Done::Failed(Failure {
            remedy: Remedy::Retry,
            ..
        })
        | Done::Lost(_) => Outcome::Failed,
        // What was served before can come back although what is wanted cannot.
        Done::Failed(_)
            if observed.stored.is_none()
                && matches!(plan.content, Content::Follow { before: Some(_), .. }) =>
        {
            Outcome::Failed
        }
        Done::Superseded => Outcome::After(Duration::ZERO),
        Done::Failed(_) => plan.recheck.map_or(Outcome::Refused, Outcome::After),
        Done::Removed(_) => Outcome::Done,
        Done::Nothing | Done::Served(_) | Done::Restored(_) => after([plan.poll, plan.recheck]),
    }
}

/// What happened between two states of the object, in words for its events.
pub(super) fn changes(before: &ClusterCatalog, after: &ClusterCatalog) -> Vec<Said> {
    let digest = |catalog: &ClusterCatalog| {
        let status = catalog.status.as_ref();
        status.and_then(resolved).map(str::to_owned)
    };
    let mut said = Vec::new();
    let (old, new) = (digest(before), digest(after));
    let recovered = |condition_type, good| {
        let was = |catalog: &ClusterCatalog, wanted: bool| {
            let condition = conditions::find(catalog.conditions(), condition_type);
            condition.is_some_and(|condition| (condition.reason == good) == wanted)
        };
        was(before, false) && was(after, true)
    };
    let is_new = old != new;
    if let Some(reference) = new {
        if is_new || recovered(conditions::SERVING, reason::AVAILABLE) {
            said.push(Said {
                is_fault: false,
                reason: reason::AVAILABLE.to_owned(),
                note: format!("Serving {reference}"),
            });
        } else if recovered(conditions::PROGRESSING, reason::SUCCEEDED) {
            said.push(Said {
                is_fault: false,
                reason: reason::SUCCEEDED.to_owned(),
                note: format!("Serving {reference}, which is what is wanted again"),
            });
        }
    }
    for condition in after.conditions() {
        let earlier = conditions::find(before.conditions(), &condition.type_);
        let same = earlier.is_some_and(|earlier| {
            (&earlier.status, &earlier.reason, &earlier.message)
                == (&condition.status, &condition.reason, &condition.message)
        });
        let fault = match condition.type_.as_str() {
            conditions::PROGRESSING => condition.reason != reason::SUCCEEDED,
            conditions::SERVING | conditions::CONTENT_VALID => condition.status == "False",
            _ => continue,
        };
        if fault && !same {
            said.push(Said {
                // What goes because somebody wants it to go is no fault.
                is_fault: condition.reason != reason::USER_SPECIFIED_UNAVAILABLE && !after.is_deleting(),
                reason: condition.reason.clone(),
                note: condition.message.clone(),
            });
        }
    }
    said
}

#[cfg(test)]
mod tests;
