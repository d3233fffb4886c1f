//! Writing the outcome of a run to the status and to events.

use olm_classic::cluster::{items, text};
use olm_platform::events::Notice;
use olm_rollout::failure::RequestFailure;
use serde_json::Value;

use super::super::context::Context;
use crate::objects::write::Actor;

/// Phase, reason and message of a status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PhaseStatus {
    pub(super) phase: String,
    pub(super) reason: String,
    message: String,
}

/// Phase, reason and message of a ClusterServiceVersion.
pub(super) fn phase_status(csv: &Value) -> PhaseStatus {
    let field = |key: &str| text(csv, key).to_owned();
    PhaseStatus {
        phase: field("/status/phase"),
        reason: field("/status/reason"),
        message: field("/status/message"),
    }
}

/// Fields of the status beside phase, reason and message. Times and the history change only with these.
const FIELDS: [&str; 3] = [
    "/status/requirementStatus",
    "/status/certsLastUpdated",
    "/status/certsRotateAt",
];

/// Writes the status where it differs from the stored one, with events. Returns the object as it is then.
///
/// # Errors
/// The status was not written.
pub(super) async fn settle(
    context: &Context,
    stored: &Value,
    current: &Value,
) -> Result<Value, RequestFailure> {
    let is_same_phase = phase_status(stored) == phase_status(current);
    let is_same = FIELDS
        .iter()
        .all(|field| stored.pointer(field) == current.pointer(field));
    if is_same_phase && is_same {
        return Ok(stored.clone());
    }
    let written = context.writer().write(&Actor::Own, current).await?;
    if !is_same_phase {
        publish_phases(context, stored, current);
    }
    context.metrics.wrote(stored, &written);
    Ok(written)
}

/// Publishes events about every phase since the stored status.
pub(super) fn publish_phases(context: &Context, stored: &Value, current: &Value) {
    if phase_status(stored) != phase_status(current) {
        context.publish(stored, notices(stored, current));
    }
}

/// One line for each phase and reason since the stored status.
fn notices(stored: &Value, current: &Value) -> Vec<Notice> {
    let known: Vec<&Value> = items(stored, "/status/conditions").collect();
    let entries: Vec<&Value> = items(current, "/status/conditions").collect();
    let first = entries
        .iter()
        .rposition(|entry| known.last() == Some(entry))
        .map_or(0, |last| last + 1);
    let last = phase_status(current);
    let mut notices: Vec<Notice> = entries
        .iter()
        .skip(first)
        .map(|entry| {
            notice(
                text(entry, "/phase"),
                text(entry, "/reason"),
                text(entry, "/message"),
            )
        })
        .collect();
    // Another message alone makes no history.
    let newest = notice(&last.phase, &last.reason, &last.message);
    if notices.last() != Some(&newest) {
        notices.push(newest);
    }
    notices
}

fn notice(phase: &str, reason: &str, message: &str) -> Notice {
    Notice {
        is_fault: phase == "Failed",
        reason: reason.to_owned(),
        note: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use olm_classic::csv::set_phase;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_phase_of_a_run_is_told_once() {
        let mut stored = json!({});
        set_phase(&mut stored, "Pending", "RequirementsUnknown", "a", "t1");
        let mut current = stored.clone();
        set_phase(&mut current, "InstallReady", "AllRequirementsMet", "b", "t2");
        set_phase(&mut current, "Failed", "InstallComponentFailed", "c", "t2");
        let reasons = |stored: &Value, current: &Value| -> Vec<(String, bool)> {
            let notices = notices(stored, current).into_iter();
            notices.map(|notice| (notice.reason, notice.is_fault)).collect()
        };
        let of_run = [("AllRequirementsMet", false), ("InstallComponentFailed", true)];
        let of_run = of_run.map(|(reason, is_fault)| (reason.to_owned(), is_fault));
        assert_eq!(reasons(&stored, &current), of_run);
        let before = current.clone();
        set_phase(&mut current, "Failed", "InstallComponentFailed", "d", "t3");
        assert_eq!(reasons(&before, &current), of_run[1..]);
    }
}
