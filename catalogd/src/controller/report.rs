//! Status, events and the next reconcile of a catalog: pure functions of the outcome.

use std::fmt::Write as _;
use std::time::Duration;

use olm_api::cluster_catalog::{
    CatalogUrls, ClusterCatalogStatus, ResolvedCatalogSource, ResolvedImageSource, SourceType,
};
use olm_api::conditions::{self, Report, Status, reason, set_condition};
use olm_api::names::user;
use olm_api::readiness::{self, Readiness, Verdict, set_readiness};
use olm_api::serving::base_url;
use olm_api::text::{counted, escape};
use olm_api::verified::set_verified;
use olm_api::{ClusterCatalog, Condition};
use olm_image::Verification;
use olm_platform::events::Notice;
use olm_platform::queue::{Outcome, Severity};

use super::message::{SERVING, UNPACKED, ready, with_note};
use super::observe::{Observed, Role, ServedContent};
use super::plan::{ContentAction, Plan, RemovalReason};
use crate::hint::RETRY;

const UNAVAILABLE: &str = "Catalog availability mode is set to Unavailable";
const MISSING: &str = "Cannot restore the content that was served";
const DELETED: &str = "Catalog content was removed because the catalog is being deleted";
/// The longest message of the condition `ContentValid`, in bytes.
const FINDINGS_BYTES: usize = 4096;

/// The outcome of the action on content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentOutcome {
    /// No action.
    Nothing,
    /// The content of the reference is served, new or not.
    Served(ServedContent),
    /// The reported content is stored here again.
    Restored(ServedContent),
    /// The reported content is not stored here, and the fetch failed with this message.
    Lost(String),
    /// The wanted content is not served; the old content still is.
    Failed(ContentFailure),
    /// The content is removed.
    Removed(RemovalReason),
    /// A newer generation of the object took over.
    Superseded,
}

/// A failure to serve the wanted content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContentFailure {
    pub(super) message: String,
    /// A hint for the user, if known.
    pub(super) hint: Option<String>,
    pub(super) severity: Severity,
}

/// The new status; `None` on followers and when nothing changes.
pub(super) fn status(
    observed: &Observed,
    plan: &Plan,
    done: &ContentOutcome,
    origin: &str,
) -> Option<ClusterCatalogStatus> {
    if observed.role == Role::Follower {
        return None;
    }
    let before = observed.catalog.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let generation = observed.catalog.generation();
    let set = |status: &mut ClusterCatalogStatus, condition_type, value, reason, message: &str| {
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
        ContentOutcome::Superseded => {}
        ContentOutcome::Nothing => {
            // Corrects changes by others. The observed generation stays: only an attempt knows how far it got with the
            // spec.
            if let (Some(stored), false) = (&observed.stored, observed.catalog.is_deleting()) {
                serve(&mut status, observed, stored, origin, Generation::AsBefore);
            }
        }
        ContentOutcome::Served(stored) => {
            set(
                &mut status,
                conditions::PROGRESSING,
                Status::True,
                reason::SUCCEEDED,
                UNPACKED,
            );
            serve(&mut status, observed, stored, origin, Generation::Current);
        }
        ContentOutcome::Failed(failure) => {
            let (value, reason) = match failure.severity {
                Severity::Terminal => (Status::False, reason::BLOCKED),
                _ => (Status::True, reason::RETRYING),
            };
            let message = conditions::steady(&failure.message);
            set(&mut status, conditions::PROGRESSING, value, reason, &message);
            correct_serving(&mut status, observed, origin, MISSING);
        }
        ContentOutcome::Restored(stored) => {
            serve(&mut status, observed, stored, origin, Generation::AsBefore);
        }
        ContentOutcome::Lost(why) => {
            let why = conditions::steady(why);
            correct_serving(&mut status, observed, origin, &format!("{MISSING}: {why}"));
        }
        ContentOutcome::Removed(why) => {
            status.resolved_source = None;
            status.urls = None;
            status.last_unpacked = None;
            conditions::remove_condition(&mut status.conditions, conditions::CONTENT_VALID);
            let (reason, message) = match why {
                RemovalReason::Deleted => (reason::UNAVAILABLE, DELETED),
                RemovalReason::Unavailable => (reason::USER_SPECIFIED_UNAVAILABLE, UNAVAILABLE),
            };
            if *why == RemovalReason::Unavailable {
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
    readiness(&mut status, observed, explanation(plan, done));
    (status != before).then_some(status)
}

/// The new status with what the signature policy says about the image that is served; `None` on followers and when
/// nothing changes.
pub(super) fn verified(
    observed: &Observed,
    status: Option<ClusterCatalogStatus>,
    verification: &Verification,
) -> Option<ClusterCatalogStatus> {
    let Some(verdict) = verification.verdict().filter(|_| observed.role == Role::Leader) else {
        return status;
    };
    let before = observed.catalog.status.clone().unwrap_or_default();
    let mut next = status.unwrap_or_else(|| before.clone());
    set_verified(
        &mut next.conditions,
        verdict,
        observed.catalog.generation(),
        observed.now,
    );
    (next != before).then_some(next)
}

/// Sets the conditions for tools from the other conditions. They are about the generation of the last attempt.
fn readiness(status: &mut ClusterCatalogStatus, observed: &Observed, explanation: Option<String>) {
    let catalog = &*observed.catalog;
    let of = |condition_type| conditions::find(&status.conditions, condition_type);
    let Some(progressing) = of(conditions::PROGRESSING) else {
        return;
    };
    let generation = progressing.observed_generation.unwrap_or_default();
    let serving = of(conditions::SERVING);
    let is_unwanted = serving.is_some_and(|c| c.reason == reason::USER_SPECIFIED_UNAVAILABLE);
    let is_served = serving.is_some_and(|c| c.status == Status::True.as_str());
    let (verdict, reason, why) = match progressing.reason.as_str() {
        _ if catalog.is_deleting() => (Verdict::Reconciling, reason::REMOVING, serving),
        reason::BLOCKED if catalog.annotation(user::PAUSED) == Some("true") => {
            (Verdict::Stalled, reason::PAUSED, Some(progressing))
        }
        reason::BLOCKED => (Verdict::Stalled, reason::BLOCKED, Some(progressing)),
        reason::SUCCEEDED if is_unwanted => (
            Verdict::Ready,
            reason::USER_SPECIFIED_UNAVAILABLE,
            Some(progressing),
        ),
        reason::SUCCEEDED if is_served => (Verdict::Ready, reason::HEALTHY, serving),
        reason::SUCCEEDED => (Verdict::Reconciling, reason::UNAVAILABLE, serving),
        _ => (Verdict::Reconciling, reason::RETRYING, Some(progressing)),
    };
    // Without an attempt, the message of the last one explains the same state.
    let last = of(conditions::READY).filter(|ready| {
        let before = why.and_then(|why| conditions::find(catalog.conditions(), &why.type_));
        readiness::verdict(&status.conditions) == Some(verdict)
            && ready.reason == reason
            && before.map(|before| &before.message) == why.map(|why| &why.message)
    });
    let message = explanation
        .or_else(|| last.or(why).map(|condition| condition.message.clone()))
        .unwrap_or_default();
    let readiness = Readiness {
        verdict,
        reason,
        message: &message,
        observed_generation: generation,
    };
    set_readiness(&mut status.conditions, readiness, observed.now);
    status.observed_generation = Some(generation);
}

/// The part of the message of `Ready` beyond the other conditions, after an attempt: the cause of a failure with a
/// hint, or unused settings.
fn explanation(plan: &Plan, done: &ContentOutcome) -> Option<String> {
    let note = plan.note.as_deref();
    match done {
        ContentOutcome::Served(_) => Some(ready(note)),
        ContentOutcome::Failed(failure) => {
            let message = with_note(&conditions::steady(&failure.message), note);
            let again = (failure.severity == Severity::Transient).then_some(RETRY);
            Some(with_hints(
                message,
                failure.hint.as_deref().into_iter().chain(again),
            ))
        }
        ContentOutcome::Nothing
        | ContentOutcome::Restored(_)
        | ContentOutcome::Lost(_)
        | ContentOutcome::Removed(_)
        | ContentOutcome::Superseded => None,
    }
}

/// The message with hints, each on a line of its own.
fn with_hints<'h>(message: String, hints: impl Iterator<Item = &'h str>) -> String {
    hints.fold(message, |message, hint| message + "\nhint: " + hint)
}

/// Corrects a wrong condition `Serving`. Before the first success there is none, as in the reference implementation.
fn correct_serving(status: &mut ClusterCatalogStatus, observed: &Observed, origin: &str, missing: &str) {
    let notices = conditions::find(&status.conditions, conditions::SERVING).map(|c| c.status == "True");
    match (&observed.stored, notices) {
        (None, Some(true)) => {
            let report = Report {
                condition_type: conditions::SERVING,
                status: Status::False,
                reason: reason::UNAVAILABLE,
                message: missing,
                observed_generation: observed.catalog.generation(),
            };
            set_condition(&mut status.conditions, report, observed.now);
        }
        (Some(stored), Some(false)) => serve(status, observed, stored, origin, Generation::AsBefore),
        _ => {}
    }
}

/// The generation that the served content belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    Current,
    AsBefore,
}

/// Sets the status of served content.
fn serve(
    status: &mut ClusterCatalogStatus,
    observed: &Observed,
    stored: &ServedContent,
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

fn findings(stored: &ServedContent) -> String {
    let total = stored.findings.total;
    if total == 0 {
        return "The catalog check has no findings".to_owned();
    }
    let count = counted(total, "finding");
    let mut text = format!("{count} of the catalog check; the catalog is served all the same:");
    let mut shown = 0_u64;
    for finding in &stored.findings.first {
        let line = escape(finding);
        let line = conditions::prefix(&line, 500);
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

/// The next reconcile of the catalog; `verify` is the time after which its image is verified again.
pub(super) fn next(
    plan: &Plan,
    observed: &Observed,
    done: &ContentOutcome,
    verify: Option<Duration>,
) -> Outcome {
    let after = |times: [Option<Duration>; 3]| {
        let soonest = times.into_iter().flatten().min();
        soonest.map_or(Outcome::Done, Outcome::After)
    };
    match done {
        ContentOutcome::Failed(ContentFailure {
            severity: Severity::Transient,
            ..
        })
        | ContentOutcome::Lost(_) => Outcome::Failed,
        // The old content may come back although the wanted content cannot.
        ContentOutcome::Failed(_)
            if observed.stored.is_none()
                && matches!(plan.content, ContentAction::Resolve { before: Some(_), .. }) =>
        {
            Outcome::Failed
        }
        ContentOutcome::Superseded => Outcome::After(Duration::ZERO),
        ContentOutcome::Failed(_) => {
            let next = plan.recheck.into_iter().chain(verify).min();
            next.map_or(Outcome::Refused, Outcome::After)
        }
        ContentOutcome::Removed(_) => Outcome::Done,
        ContentOutcome::Nothing | ContentOutcome::Served(_) | ContentOutcome::Restored(_) => {
            after([plan.poll, plan.recheck, verify])
        }
    }
}

/// The text of a condition. `Ready` explains the text of the reference implementation in `Progressing`.
fn note<'c>(catalog: &'c ClusterCatalog, condition: &'c Condition) -> &'c str {
    let ready = conditions::find(catalog.conditions(), conditions::READY);
    let ready = ready.filter(|_| condition.type_ == conditions::PROGRESSING);
    &ready.unwrap_or(condition).message
}

/// The events for a change between two states of the object.
pub(super) fn changes(before: &ClusterCatalog, after: &ClusterCatalog) -> Vec<Notice> {
    let digest = |catalog: &ClusterCatalog| {
        let status = catalog.status.as_ref();
        status.and_then(resolved).map(str::to_owned)
    };
    let mut notices = Vec::new();
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
            notices.push(Notice {
                is_fault: false,
                reason: reason::AVAILABLE.to_owned(),
                note: format!("Serving {reference}"),
            });
        } else if recovered(conditions::PROGRESSING, reason::SUCCEEDED) {
            notices.push(Notice {
                is_fault: false,
                reason: reason::SUCCEEDED.to_owned(),
                note: format!("Serving {reference} again"),
            });
        }
    }
    for condition in after.conditions() {
        let earlier = conditions::find(before.conditions(), &condition.type_);
        let note = note(after, condition);
        let same = earlier.is_some_and(|earlier| {
            (&earlier.status, &earlier.reason) == (&condition.status, &condition.reason)
                && self::note(before, earlier) == note
        });
        let fault = match condition.type_.as_str() {
            conditions::PROGRESSING => condition.reason != reason::SUCCEEDED,
            conditions::SERVING | conditions::CONTENT_VALID | conditions::VERIFIED => {
                condition.status == "False"
            }
            _ => continue,
        };
        if fault && !same {
            notices.push(Notice {
                // A removal on request is not a fault.
                is_fault: condition.reason != reason::USER_SPECIFIED_UNAVAILABLE && !after.is_deleting(),
                reason: condition.reason.clone(),
                note: note.to_owned(),
            });
        }
    }
    notices
}

#[cfg(test)]
mod tests;
