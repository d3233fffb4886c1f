//! What a ClusterObjectSet's conditions say about a run.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::{
    Condition,
    conditions::{self, Report, Status, bounded_message, reason},
};

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every object is as wanted and ready.
    Complete {
        /// What is to be said of objects that are left out.
        skipped: Option<String>,
    },
    /// The same, but a newer revision owns some of them.
    HandingOver,
    /// Not complete yet; a line for each object that is not ready.
    RollingOut(Vec<String>),
    /// It will be tried again.
    Retrying(String),
    /// Deleted, and objects are left that go as they should.
    Removing(String),
    /// Somebody must change something first.
    Blocked(String),
    /// Paused by its user, and objects are not as they should be.
    Paused(String),
    /// Archived, and objects are left.
    Archiving,
    /// Archived, and nothing is left.
    Archived,
}

/// What the conditions' texts and deadlines depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The generation that was looked at.
    pub generation: i64,
    /// The bundle's version; empty for revisions made by hand.
    pub version: String,
    /// When a rollout that has never succeeded counts as failed. `None` when there is no deadline, or none any more because
    /// the revision is archived or deleted.
    pub deadline: Option<Deadline>,
}

/// When a rollout counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// Minutes from the creation.
    pub minutes: i32,
    /// The moment.
    pub at: Timestamp,
}

impl Deadline {
    /// The deadline of a revision created then.
    pub fn after(created: Timestamp, minutes: i32) -> Option<Self> {
        let at = created
            .checked_add(jiff::SignedDuration::from_mins(i64::from(minutes)))
            .ok()?;
        Some(Self { minutes, at })
    }

    /// How long it is until then; zero once it has passed.
    pub fn remaining(self, now: Timestamp) -> Duration {
        Duration::try_from(self.at.duration_since(now)).unwrap_or_default()
    }
}

/// What one condition is to say.
type Said = (&'static str, Status, &'static str, String);

/// The conditions after a run, from those before it.
pub fn after(before: &[Condition], verdict: &Verdict, facts: &Facts, now: Timestamp) -> Vec<Condition> {
    let succeeded = conditions::is_true(before, conditions::SUCCEEDED);
    let late = facts.deadline.filter(|deadline| !succeeded && now >= deadline.at);
    let mut list = before.to_vec();
    for said in said(before, verdict, &facts.version) {
        let (condition_type, status, reason, message) = match late {
            Some(deadline) => overdue(said, deadline),
            None => said,
        };
        let report = Report {
            condition_type,
            status,
            reason,
            message: &bounded_message(&conditions::steady(&message)),
            observed_generation: facts.generation,
        };
        conditions::set_condition(&mut list, report, now);
    }
    list
}

fn said(before: &[Condition], verdict: &Verdict, version: &str) -> Vec<Said> {
    let progressing =
        |status, reason, message: &str| (conditions::PROGRESSING, status, reason, message.to_owned());
    let available =
        |status, reason, message: &str| (conditions::AVAILABLE, status, reason, message.to_owned());
    let doubtful = |status, reason, message: &str| {
        let unknown = available(Status::Unknown, reason::RECONCILING, message);
        let known_before = conditions::find(before, conditions::AVAILABLE).is_some();
        let first = progressing(status, reason, message);
        [first]
            .into_iter()
            .chain(known_before.then_some(unknown))
            .collect()
    };
    let unfinished = |reason, message: &str| doubtful(Status::True, reason, message);
    let rolling_out = format!("Revision {version} is rolling out.");
    match verdict {
        Verdict::Complete { skipped } => {
            let mut rolled_out = format!("Revision {version} has rolled out.");
            if let Some(skipped) = skipped {
                rolled_out.push(' ');
                rolled_out.push_str(skipped);
            }
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
        Verdict::HandingOver => vec![
            progressing(Status::True, reason::ROLLING_OUT, &rolling_out),
            available(Status::True, reason::PROBES_SUCCEEDED, AVAILABLE),
        ],
        Verdict::RollingOut(not_ready) => vec![
            progressing(Status::True, reason::ROLLING_OUT, &rolling_out),
            if not_ready.is_empty() {
                available(Status::False, reason::ROLLING_OUT, &rolling_out)
            } else {
                available(Status::False, reason::PROBE_FAILURE, &not_ready.join("\n"))
            },
        ],
        Verdict::Retrying(message) => unfinished(reason::RETRYING, message),
        Verdict::Removing(message) => unfinished(reason::REMOVING, message),
        Verdict::Archiving => unfinished(
            reason::RETRYING,
            "removing revision resources that are not owned by another revision",
        ),
        Verdict::Blocked(message) => vec![progressing(Status::False, reason::BLOCKED, message)],
        Verdict::Paused(message) => doubtful(Status::False, reason::BLOCKED, message),
        Verdict::Archived => vec![
            progressing(Status::False, reason::ARCHIVED, ARCHIVED),
            available(Status::Unknown, reason::ARCHIVED, ARCHIVED),
        ],
    }
}

/// Past the deadline, all that is not success is failure.
fn overdue(said: Said, deadline: Deadline) -> Said {
    let (condition_type, _, reason, message) = &said;
    if *condition_type != conditions::PROGRESSING || *reason == reason::SUCCEEDED {
        return said;
    }
    let message = format!(
        "Revision has not rolled out for {} minute(s). Last status: {message}",
        deadline.minutes
    );
    (
        conditions::PROGRESSING,
        Status::False,
        reason::PROGRESS_DEADLINE_EXCEEDED,
        message,
    )
}

const AVAILABLE: &str = "Objects are available and pass all probes.";
const ARCHIVED: &str = "revision is archived";

/// Whether the conditions say that nothing of an archived revision is left.
pub fn is_archived(list: &[Condition]) -> bool {
    conditions::find(list, conditions::PROGRESSING).is_some_and(|c| c.reason == reason::ARCHIVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn facts() -> Facts {
        Facts {
            generation: 1,
            version: "1.2.3".into(),
            deadline: Deadline::after(at(0), 10),
        }
    }

    fn told(list: &[Condition]) -> Vec<String> {
        list.iter()
            .map(|c| format!("{}={}/{}: {}", c.type_, c.status, c.reason, c.message))
            .collect()
    }

    const COMPLETE: Verdict = Verdict::Complete { skipped: None };
    /// What is said of it.
    const ROLLED_OUT: [&str; 3] = [
        "Progressing=True/Succeeded: Revision 1.2.3 has rolled out.",
        "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
        "Succeeded=True/Succeeded: Revision succeeded rolling out.",
    ];

    #[track_caller]
    fn check(before: &[Condition], verdict: &Verdict, now: i64, expected: &[&str]) -> Vec<Condition> {
        let list = after(before, verdict, &facts(), at(now));
        assert_eq!(told(&list), expected);
        assert_eq!(
            after(&list, verdict, &facts(), at(now + 5)),
            list,
            "the same verdict again changes nothing"
        );
        list
    }

    #[test]
    fn a_rollout_is_told_from_its_start_to_its_success_and_later_trouble() {
        let list = check(
            &[],
            &Verdict::RollingOut(vec!["Object A: no".into(), "Object B: no".into()]),
            1,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=False/ProbeFailure: Object A: no\nObject B: no",
            ],
        );
        let list = check(&list, &COMPLETE, 9, &ROLLED_OUT);
        assert_eq!(
            list[0].last_transition_time.0,
            at(1),
            "Progressing was True all the time"
        );
        check(
            &list,
            &Verdict::RollingOut(Vec::new()),
            100_000,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=False/RollingOut: Revision 1.2.3 is rolling out.",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
        check(
            &list,
            &Verdict::Retrying("why".into()),
            100_000,
            &[
                "Progressing=True/Retrying: why",
                "Available=Unknown/Reconciling: why",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
    }

    #[test]
    fn a_rollout_past_its_deadline_is_told_as_failed_until_it_completes() {
        let list = check(
            &[],
            &Verdict::Retrying("why".into()),
            600,
            &[
                "Progressing=False/ProgressDeadlineExceeded: Revision has not rolled out for 10 minute(s). Last status: why",
            ],
        );
        let list = after(&list, &COMPLETE, &facts(), at(700));
        assert!(told(&list)[0].starts_with("Progressing=True/Succeeded"));
        assert_eq!(
            facts().deadline.unwrap().remaining(at(590)),
            Duration::from_secs(10)
        );
        assert_eq!(facts().deadline.unwrap().remaining(at(601)), Duration::ZERO);
    }

    #[test]
    fn what_is_left_out_is_told_of_a_complete_revision() {
        let skipped = Some("Left out: ServiceMonitor.".to_owned());
        check(
            &[],
            &Verdict::Complete { skipped },
            1,
            &[
                "Progressing=True/Succeeded: Revision 1.2.3 has rolled out. Left out: ServiceMonitor.",
                "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
    }

    #[test]
    fn blocking_says_nothing_about_availability() {
        check(
            &[],
            &Verdict::Blocked("x".into()),
            0,
            &["Progressing=False/Blocked: x"],
        );
    }

    #[test]
    fn a_revision_that_hands_over_has_not_succeeded() {
        check(
            &[],
            &Verdict::HandingOver,
            0,
            &[
                "Progressing=True/RollingOut: Revision 1.2.3 is rolling out.",
                "Available=True/ProbesSucceeded: Objects are available and pass all probes.",
            ],
        );
    }

    #[test]
    fn archiving_is_told() {
        let list = check(
            &[],
            &Verdict::Archiving,
            0,
            &[
                "Progressing=True/Retrying: removing revision resources that are not owned by another revision",
            ],
        );
        assert!(!is_archived(&list));
        let list = check(
            &list,
            &Verdict::Archived,
            0,
            &[
                "Progressing=False/Archived: revision is archived",
                "Available=Unknown/Archived: revision is archived",
            ],
        );
        assert!(is_archived(&list));
    }

    #[test]
    fn what_is_paused_while_objects_are_missing_is_not_available() {
        let complete = check(&[], &COMPLETE, 1, &ROLLED_OUT);
        check(
            &complete,
            &Verdict::Paused("paused".into()),
            2,
            &[
                "Progressing=False/Blocked: paused",
                "Available=Unknown/Reconciling: paused",
                "Succeeded=True/Succeeded: Revision succeeded rolling out.",
            ],
        );
        check(
            &[],
            &Verdict::Paused("paused".into()),
            1,
            &["Progressing=False/Blocked: paused"],
        );
    }

    #[test]
    fn removing_what_goes_as_it_should_is_no_retry() {
        let list = check(&[], &COMPLETE, 1, &ROLLED_OUT);
        check(
            &list,
            &Verdict::Removing("waiting".into()),
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
        let list = after(&[], &Verdict::Blocked("x".repeat(40_000)), &facts(), at(0));
        assert_eq!(list[0].message.len(), conditions::MAX_MESSAGE_BYTES);
    }
}
