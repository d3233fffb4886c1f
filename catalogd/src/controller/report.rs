//! What is said about a catalog, and when it is looked at again: pure functions of what was done.

use std::fmt::Write as _;
use std::time::Duration;

use olm_api::cluster_catalog::{
    CatalogUrls, ClusterCatalogStatus, ResolvedCatalogSource, ResolvedImageSource, SourceType,
};
use olm_api::conditions::{self, Report, Status, reason, set_condition};
use olm_api::serving::base_url;
use olm_platform::queue::Outcome;

use super::observe::{Observed, Role, Stored};
use super::plan::{Plan, Why};

const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
const SERVING: &str = "Serving desired content from resolved source";
const UNAVAILABLE: &str = "Catalog availability mode is set to Unavailable";
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
pub(super) fn status(observed: &Observed, done: &Done, origin: &str) -> Option<ClusterCatalogStatus> {
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
                UNPACKED,
            );
            serve(&mut status, observed, stored, origin, Generation::Current);
        }
        Done::Failed(failure) => {
            let (value, reason) = match failure.remedy {
                Remedy::Retry => (Status::True, reason::RETRYING),
                Remedy::Change => (Status::False, reason::BLOCKED),
            };
            let message = conditions::without_ephemeral_addresses(&failure.message);
            set(&mut status, conditions::PROGRESSING, value, reason, &message);
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
pub(super) fn next(plan: &Plan, done: &Done) -> Outcome {
    match done {
        Done::Failed(Failure {
            remedy: Remedy::Retry,
            ..
        }) => Outcome::Failed,
        Done::Superseded => Outcome::After(Duration::ZERO),
        Done::Failed(_) | Done::Removed(_) => Outcome::Done,
        Done::Nothing | Done::Served(_) => plan.poll.map_or(Outcome::Done, Outcome::After),
    }
}

#[cfg(test)]
mod tests;
