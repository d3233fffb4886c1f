//! The conditions `Ready`, `Reconciling` and `Stalled`, from which tools read the state of an object.
//!
//! The meaning is that of kstatus: an object is current when `Ready` is true, in progress when `Reconciling` is, failed
//! when `Stalled` is. At most one of the three is true, and all three are always present.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::conditions::{
    READY, RECONCILING, Report, STALLED, Status, bounded_message, find, is_true, prefix, set_condition,
};

/// The longest message of `Reconciling` and `Stalled`, in bytes; `Ready` has all of it.
const SUMMARY_BYTES: usize = 300;

/// The state of an object for tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The object matches its spec and works.
    Ready,
    /// The object is not ready, and no user needs to act.
    Reconciling,
    /// The object is not ready, and a user must change something.
    Stalled,
}

/// The content of the three conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness<'a> {
    /// The state.
    pub verdict: Verdict,
    /// The reason of all three, one of [`crate::conditions::reason`]'s constants.
    pub reason: &'a str,
    /// The message of `Ready`; its first line is that of the condition that explains why `Ready` is false.
    pub message: &'a str,
    /// The generation of the observed object.
    pub observed_generation: i64,
}

/// Sets the three conditions.
pub fn set_readiness(conditions: &mut Vec<Condition>, readiness: Readiness<'_>, now: Timestamp) {
    let summary = summary(readiness.message);
    for (condition_type, verdict) in [
        (READY, Verdict::Ready),
        (RECONCILING, Verdict::Reconciling),
        (STALLED, Verdict::Stalled),
    ] {
        let holds = readiness.verdict == verdict;
        let message = match condition_type {
            READY => readiness.message,
            _ if holds => &summary,
            _ => "",
        };
        let report = Report {
            condition_type,
            status: if holds { Status::True } else { Status::False },
            reason: readiness.reason,
            message,
            observed_generation: readiness.observed_generation,
        };
        set_condition(conditions, report, now);
    }
}

/// The state that the three conditions report; `None` when the object has no condition `Ready`.
pub fn verdict(conditions: &[Condition]) -> Option<Verdict> {
    find(conditions, READY)?;
    Some(if is_true(conditions, READY) {
        Verdict::Ready
    } else if is_true(conditions, STALLED) {
        Verdict::Stalled
    } else {
        Verdict::Reconciling
    })
}

/// Adds a line to the message of `Ready`, unless it is there.
pub fn add_line(conditions: &mut [Condition], line: &str) {
    let ready = conditions.iter_mut().find(|c| c.type_ == READY);
    if let Some(ready) = ready.filter(|ready| !ready.message.contains(line)) {
        let separator = if ready.message.is_empty() { "" } else { "\n" };
        ready.message = bounded_message(&format!("{}{separator}{line}", ready.message));
    }
}

fn summary(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    if line.len() <= SUMMARY_BYTES {
        return line.to_owned();
    }
    format!("{}…", prefix(line, SUMMARY_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::reason;

    fn set(list: &mut Vec<Condition>, verdict: Verdict, message: &str, second: i64) {
        let readiness = Readiness {
            verdict,
            reason: reason::BLOCKED,
            message,
            observed_generation: 3,
        };
        set_readiness(list, readiness, Timestamp::from_second(second).unwrap());
    }

    #[test]
    fn at_most_one_of_the_three_is_true_and_all_are_there() {
        let mut list = Vec::new();
        assert_eq!(verdict(&list), None);
        for state in [Verdict::Ready, Verdict::Reconciling, Verdict::Stalled] {
            set(&mut list, state, "one\ntwo", 1);
            assert_eq!(verdict(&list), Some(state));
            assert_eq!(list.len(), 3);
            assert_eq!(list.iter().filter(|c| c.status == "True").count(), 1);
            let before = list.clone();
            set(&mut list, state, "one\ntwo", 2);
            assert_eq!(list, before, "the same again changes nothing");
        }
        let messages: Vec<&str> = list.iter().map(|c| c.message.as_str()).collect();
        assert_eq!(messages, ["one\ntwo", "", "one"]);
    }

    #[test]
    fn long_messages_are_whole_in_ready_alone() {
        let mut list = Vec::new();
        let long = "ä".repeat(400);
        set(&mut list, Verdict::Stalled, &long, 1);
        assert_eq!(find(&list, READY).unwrap().message, long);
        let stalled = &find(&list, STALLED).unwrap().message;
        assert!(stalled.len() <= SUMMARY_BYTES + '…'.len_utf8() && stalled.ends_with('…'));
    }

    #[test]
    fn a_line_is_added_once() {
        let mut list = Vec::new();
        set(&mut list, Verdict::Ready, "fine", 1);
        add_line(&mut list, "more");
        add_line(&mut list, "more");
        assert_eq!(find(&list, READY).unwrap().message, "fine\nmore");
    }
}
