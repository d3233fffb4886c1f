//! The conditions of a ClusterObjectSet after a run.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::{
    Condition,
    conditions::{self, Report, Status, reason},
    readiness::{Readiness, Verdict, set_readiness},
};

/// The state of a revision after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevisionState {
    /// Every object is as wanted and ready.
    Complete {
        /// The part of the condition about objects that are left out.
        skipped: Option<String>,
    },
    /// Every object is as wanted and ready, but a newer revision owns some.
    HandingOver,
    /// The rollout is not complete yet.
    RollingOut {
        /// The phase that it is at, as text; `None` if that is unknown.
        phase: Option<String>,
        /// A line for each object that is not ready, in the words of the reference implementation.
        not_ready: Vec<String>,
        /// The same in plain words.
        waits_for: Vec<String>,
    },
    /// OLM will retry.
    Retrying(String),
    /// OLM will retry, but a user must act first. The reason of `Progressing` is `Retrying`, as in the reference
    /// implementation.
    Waiting(String),
    /// The set is being deleted, and objects still exist.
    Removing(String),
    /// A user must act first.
    Blocked(String),
    /// The user has paused it, and objects are not as wanted.
    Paused(String),
    /// The set is archived, and objects still exist.
    Archiving,
    /// The set is archived, and no object is left.
    Archived,
}

/// The inputs of the conditions' texts and deadlines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusInputs {
    /// The observed generation.
    pub generation: i64,
    /// The bundle's version; empty for revisions without an extension.
    pub version: String,
    /// The time at which a rollout that was never complete counts as failed. `None` without a deadline, and for a
    /// revision that is archived or deleted.
    pub deadline: Option<Deadline>,
}

/// The time at which a rollout counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// Minutes from the creation.
    pub minutes: i32,
    /// The moment.
    pub at: Timestamp,
}

impl Deadline {
    /// The deadline of a revision created at a time.
    pub fn after(created: Timestamp, minutes: i32) -> Option<Self> {
        let at = created
            .checked_add(jiff::SignedDuration::from_mins(i64::from(minutes)))
            .ok()?;
        Some(Self { minutes, at })
    }

    /// The time until the deadline; zero after it.
    pub fn remaining(self, now: Timestamp) -> Duration {
        Duration::try_from(self.at.duration_since(now)).unwrap_or_default()
    }
}

/// Type, status, reason and message of a condition.
type ConditionText = (&'static str, Status, &'static str, String);

/// The conditions after a run, given those before.
pub fn after(
    before: &[Condition],
    state: &RevisionState,
    inputs: &StatusInputs,
    now: Timestamp,
) -> Vec<Condition> {
    let succeeded = conditions::is_true(before, conditions::SUCCEEDED);
    let late = inputs
        .deadline
        .filter(|deadline| !succeeded && now >= deadline.at);
    let mut list = before.to_vec();
    for condition in condition_texts(before, state, &inputs.version) {
        let (condition_type, status, reason, message) = match late {
            Some(deadline) => overdue(condition, deadline),
            None => condition,
        };
        let report = Report {
            condition_type,
            status,
            reason,
            message: &conditions::steady(&message),
            observed_generation: inputs.generation,
        };
        conditions::set_condition(&mut list, report, now);
    }
    let (verdict, reason, message) = readiness(state, &inputs.version, succeeded, late);
    let readiness = Readiness {
        verdict,
        reason,
        message: &conditions::steady(&message),
        observed_generation: inputs.generation,
    };
    set_readiness(&mut list, readiness, now);
    list
}

/// The conditions for tools: whether the content of the set exists and works, and if not, whether a user must act.
fn readiness(
    state: &RevisionState,
    version: &str,
    succeeded: bool,
    late: Option<Deadline>,
) -> (Verdict, &'static str, String) {
    use Verdict::{Ready, Reconciling, Stalled};
    let (verdict, reason, message) = match state {
        RevisionState::Complete { skipped } => {
            return (Ready, reason::HEALTHY, rolled_out(version, skipped.as_deref()));
        }
        // An archived revision has no wanted objects.
        RevisionState::Archived => return (Ready, reason::ARCHIVED, ARCHIVED.to_owned()),
        RevisionState::HandingOver => (Reconciling, reason::ROLLING_OUT, HANDING_OVER.to_owned()),
        RevisionState::RollingOut { not_ready, .. } if not_ready.is_empty() => {
            (Reconciling, reason::ROLLING_OUT, rolling_out(version))
        }
        RevisionState::RollingOut { phase, waits_for, .. } => {
            let lines = waits_for.join("\n");
            let message = match phase {
                _ if succeeded => lines,
                Some(phase) => format!("{} is rolling out: {phase}.\n{lines}", revision(version)),
                None => format!("{}\n{lines}", rolling_out(version)),
            };
            (Reconciling, reason::PROBE_FAILURE, message)
        }
        RevisionState::Retrying(message) => (Reconciling, reason::RETRYING, message.clone()),
        RevisionState::Removing(message) => (Reconciling, reason::REMOVING, message.clone()),
        RevisionState::Archiving => (Reconciling, reason::REMOVING, ARCHIVING.to_owned()),
        RevisionState::Waiting(message) | RevisionState::Blocked(message) => {
            (Stalled, reason::BLOCKED, message.clone())
        }
        RevisionState::Paused(message) => (Stalled, reason::PAUSED, message.clone()),
    };
    match late {
        // A fault that a user must fix is more informative than the exceeded deadline.
        Some(deadline) if verdict == Reconciling => {
            let message = format!("{}{message}", exceeded(deadline));
            (Stalled, reason::PROGRESS_DEADLINE_EXCEEDED, message)
        }
        _ => (verdict, reason, message),
    }
}

/// The text of a revision of this version while it rolls out.
pub fn rolling_out(version: &str) -> String {
    format!("{} is rolling out.", revision(version))
}

/// A revision in messages. One without an extension has no version.
fn revision(version: &str) -> String {
    if version.is_empty() {
        "Revision".to_owned()
    } else {
        format!("Revision {version}")
    }
}

fn rolled_out(version: &str, skipped: Option<&str>) -> String {
    let mut rolled_out = format!("{} has rolled out.", revision(version));
    if let Some(skipped) = skipped {
        rolled_out.push(' ');
        rolled_out.push_str(skipped);
    }
    rolled_out
}

fn condition_texts(before: &[Condition], state: &RevisionState, version: &str) -> Vec<ConditionText> {
    let progressing =
        |status, reason, message: &str| (conditions::PROGRESSING, status, reason, message.to_owned());
    let available =
        |status, reason, message: &str| (conditions::AVAILABLE, status, reason, message.to_owned());
    let not_ready = |status, reason, message: &str| {
        let unknown = available(Status::Unknown, reason::RECONCILING, message);
        let known_before = conditions::find(before, conditions::AVAILABLE).is_some();
        let first = progressing(status, reason, message);
        [first]
            .into_iter()
            .chain(known_before.then_some(unknown))
            .collect()
    };
    let unfinished = |reason, message: &str| not_ready(Status::True, reason, message);
    // A set without an extension has no version: these two texts have the gap that clients of the reference match.
    let rolling_out = format!("Revision {version} is rolling out.");
    match state {
        RevisionState::Complete { .. } => {
            let rolled_out = format!("Revision {version} has rolled out.");
            let success = "Revision succeeded rolling out.".to_owned();
            let first = (!conditions::is_true(before, conditions::SUCCEEDED)).then_some((
                conditions::SUCCEEDED,
                Status::True,
                reason::SUCCEEDED,
                success,
            ));
            let every = [
                progressing(Status::True, reason::SUCCEEDED, &rolled_out),
                available(Status::True, reason::PROBES_SUCCEEDED, AVAILABLE),
            ];
            every.into_iter().chain(first).collect()
        }
        RevisionState::HandingOver => vec![
            progressing(Status::True, reason::ROLLING_OUT, &rolling_out),
            available(Status::True, reason::PROBES_SUCCEEDED, AVAILABLE),
        ],
        RevisionState::RollingOut { not_ready, .. } => vec![
            progressing(Status::True, reason::ROLLING_OUT, &rolling_out),
            if not_ready.is_empty() {
                available(Status::False, reason::ROLLING_OUT, &rolling_out)
            } else {
                available(Status::False, reason::PROBE_FAILURE, &not_ready.join("\n"))
            },
        ],
        RevisionState::Retrying(message) | RevisionState::Waiting(message) => {
            unfinished(reason::RETRYING, message)
        }
        RevisionState::Removing(message) => unfinished(reason::REMOVING, message),
        RevisionState::Archiving => unfinished(reason::RETRYING, ARCHIVING),
        RevisionState::Blocked(message) => vec![progressing(Status::False, reason::BLOCKED, message)],
        RevisionState::Paused(message) => not_ready(Status::False, reason::BLOCKED, message),
        RevisionState::Archived => vec![
            progressing(Status::False, reason::ARCHIVED, ARCHIVED),
            available(Status::Unknown, reason::ARCHIVED, ARCHIVED),
        ],
    }
}

/// After the deadline, everything but success is a failure.
fn overdue(condition: ConditionText, deadline: Deadline) -> ConditionText {
    let (condition_type, _, reason, message) = &condition;
    if *condition_type != conditions::PROGRESSING || *reason == reason::SUCCEEDED {
        return condition;
    }
    let message = format!("{}{message}", exceeded(deadline));
    (
        conditions::PROGRESSING,
        Status::False,
        reason::PROGRESS_DEADLINE_EXCEEDED,
        message,
    )
}

fn exceeded(deadline: Deadline) -> String {
    format!(
        "Revision has not rolled out for {} minute(s). Last status: ",
        deadline.minutes
    )
}

const ARCHIVING: &str = "removing revision resources that are not owned by another revision";
const HANDING_OVER: &str = "A newer revision has taken over objects of this one.";
const AVAILABLE: &str = "Objects are available and pass all probes.";
const ARCHIVED: &str = "revision is archived";

/// Whether the conditions report that an archived revision has no objects left.
pub fn is_archived(list: &[Condition]) -> bool {
    conditions::find(list, conditions::PROGRESSING).is_some_and(|c| c.reason == reason::ARCHIVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn inputs() -> StatusInputs {
        StatusInputs {
            generation: 1,
            version: "1.2.3".into(),
            deadline: Deadline::after(at(0), 10),
        }
    }

    fn lines(list: &[Condition]) -> Vec<String> {
        list.iter()
            .filter(|c| {
                ![conditions::READY, conditions::RECONCILING, conditions::STALLED].contains(&c.type_.as_str())
            })
            .map(|c| format!("{}={}/{}: {}", c.type_, c.status, c.reason, c.message))
            .collect()
    }

    fn rolling(not_ready: &[&str]) -> RevisionState {
        RevisionState::RollingOut {
            phase: Some("phase 1 of 2 (deploy)".to_owned()),
            not_ready: not_ready.iter().map(|line| (*line).to_owned()).collect(),
            waits_for: not_ready.iter().map(|line| format!("{line} yet")).collect(),
        }
    }

    const COMPLETE: RevisionState = RevisionState::Complete { skipped: None };
    /// The condition of a revision that is rolled out.
    const ROLLED_OUT: [&str; 3] = [
        "Progressing=True/Succeeded: Revision 1.2.3 has rolled out.",
        "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
        "Succeeded=True/Succeeded: Revision succeeded rolling out.",
    ];

    #[track_caller]
    fn check(before: &[Condition], state: &RevisionState, now: i64, expected: &[&str]) -> Vec<Condition> {
        let list = after(before, state, &inputs(), at(now));
        assert_eq!(lines(&list), expected);
        assert_eq!(
            after(&list, state, &inputs(), at(now + 5)),
            list,
            "the same state again changes nothing"
        );
        list
    }

    #[test]
    fn tools_read_whether_a_set_works_and_whether_it_needs_a_user() {
        use RevisionState::{Archiving, Blocked, HandingOver, Paused, Removing, Retrying, Waiting};
        use Verdict::{Ready, Reconciling, Stalled};
        let text = || "why".to_owned();
        for (state, in_time, late) in [
            (COMPLETE, (Ready, "Healthy"), (Ready, "Healthy")),
            (RevisionState::Archived, (Ready, "Archived"), (Ready, "Archived")),
            (
                HandingOver,
                (Reconciling, "RollingOut"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (
                rolling(&[]),
                (Reconciling, "RollingOut"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (
                rolling(&["why"]),
                (Reconciling, "ProbeFailure"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (
                Retrying(text()),
                (Reconciling, "Retrying"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (
                Removing(text()),
                (Reconciling, "Removing"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (
                Archiving,
                (Reconciling, "Removing"),
                (Stalled, "ProgressDeadlineExceeded"),
            ),
            (Waiting(text()), (Stalled, "Blocked"), (Stalled, "Blocked")),
            (Blocked(text()), (Stalled, "Blocked"), (Stalled, "Blocked")),
            (Paused(text()), (Stalled, "Paused"), (Stalled, "Paused")),
        ] {
            for (second, expected) in [(1, in_time), (700, late)] {
                let list = after(&[], &state, &inputs(), at(second));
                let ready = conditions::find(&list, conditions::READY).unwrap();
                let found = olm_api::readiness::verdict(&list).unwrap();
                assert_eq!((found, ready.reason.as_str()), expected, "{state:?} {second}");
            }
        }
    }

    #[test]
    fn ready_of_a_revision_without_a_version_has_no_gap() {
        let mut inputs = inputs();
        inputs.version = String::new();
        for (state, progressing, ready) in [
            (COMPLETE, "Revision  has rolled out.", "Revision has rolled out."),
            (
                rolling(&[]),
                "Revision  is rolling out.",
                "Revision is rolling out.",
            ),
        ] {
            let list = after(&[], &state, &inputs, at(1));
            let message = |of: &str| conditions::find(&list, of).map(|condition| condition.message.as_str());
            assert_eq!(message(conditions::PROGRESSING), Some(progressing));
            assert_eq!(message(conditions::READY), Some(ready));
        }
    }

    #[test]
    fn conditions_report_a_rollout_from_start_to_success_and_later_trouble() {
        let list = check(
            &[],
            &rolling(&["Object A: no", "Object B: no"]),
            1,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=False/ProbeFailure: Object A: no\nObject B: no",
            ],
        );
        let ready = conditions::find(&list, conditions::READY).unwrap();
        assert_eq!(
            ready.message,
            "Revision 1.2.3 is rolling out: phase 1 of 2 (deploy).\nObject A: no yet\nObject B: no yet"
        );
        let list = check(&list, &COMPLETE, 9, &ROLLED_OUT);
        assert_eq!(
            list[0].last_transition_time.0,
            at(1),
            "Progressing was True all the time"
        );
        check(
            &list,
            &rolling(&[]),
            100_000,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=False/RollingOut: Revision 1.2.3 is rolling out.",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
        check(
            &list,
            &RevisionState::Retrying("why".into()),
            100_000,
            &[
                "Progressing=True/Retrying: why",
                "Available=Unknown/Reconciling: why",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
    }

    #[test]
    fn conditions_report_failure_past_the_deadline_until_the_rollout_completes() {
        let list = check(
            &[],
            &RevisionState::Retrying("why".into()),
            600,
            &[
                "Progressing=False/ProgressDeadlineExceeded: Revision has not rolled out for 10 minute(s). Last status: why",
            ],
        );
        let list = after(&list, &COMPLETE, &inputs(), at(700));
        assert!(lines(&list)[0].starts_with("Progressing=True/Succeeded"));
        assert_eq!(
            inputs().deadline.unwrap().remaining(at(590)),
            Duration::from_secs(10)
        );
        assert_eq!(inputs().deadline.unwrap().remaining(at(601)), Duration::ZERO);
    }

    #[test]
    fn conditions_of_a_complete_revision_name_the_objects_left_out() {
        let skipped = Some("Left out: ServiceMonitor.".to_owned());
        let list = check(&[], &RevisionState::Complete { skipped }, 1, &ROLLED_OUT);
        let ready = conditions::find(&list, conditions::READY).unwrap();
        assert_eq!(
            ready.message,
            "Revision 1.2.3 has rolled out. Left out: ServiceMonitor."
        );
    }

    #[test]
    fn blocking_says_nothing_about_availability() {
        check(
            &[],
            &RevisionState::Blocked("x".into()),
            0,
            &["Progressing=False/Blocked: x"],
        );
    }

    #[test]
    fn a_revision_that_hands_over_has_not_succeeded() {
        check(
            &[],
            &RevisionState::HandingOver,
            0,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
            ],
        );
    }

    #[test]
    fn conditions_report_archiving() {
        let list = check(
            &[],
            &RevisionState::Archiving,
            0,
            &[
                "Progressing=True/Retrying: removing revision resources that are not owned by another revision",
            ],
        );
        assert!(!is_archived(&list));
        let list = check(
            &list,
            &RevisionState::Archived,
            0,
            &[
                "Progressing=False/Archived: revision is archived",
                "Available=Unknown/Archived: revision is archived",
            ],
        );
        assert!(is_archived(&list));
    }

    #[test]
    fn a_paused_revision_with_missing_objects_is_not_available() {
        let complete = check(&[], &COMPLETE, 1, &ROLLED_OUT);
        check(
            &complete,
            &RevisionState::Paused("paused".into()),
            2,
            &[
                "Progressing=False/Blocked: paused",
                "Available=Unknown/Reconciling: paused",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
        check(
            &[],
            &RevisionState::Paused("paused".into()),
            1,
            &["Progressing=False/Blocked: paused"],
        );
    }

    #[test]
    fn an_orderly_removal_is_no_retry() {
        let list = check(&[], &COMPLETE, 1, &ROLLED_OUT);
        check(
            &list,
            &RevisionState::Removing("waiting".into()),
            2,
            &[
                "Progressing=True/Removing: waiting",
                "Available=Unknown/Reconciling: waiting",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
    }

    #[test]
    fn a_message_that_is_too_long_is_cut() {
        let list = after(&[], &RevisionState::Blocked("x".repeat(40_000)), &inputs(), at(0));
        assert_eq!(list[0].message.len(), conditions::MAX_MESSAGE_BYTES);
    }
}
