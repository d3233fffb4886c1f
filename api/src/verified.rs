//! The condition [`VERIFIED`]: what the signature policy of this moment says about the image in use.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::conditions::{Report, Status, VERIFIED, reason, remove_condition, set_condition, steady};

/// Sets the condition. The verdict is whether the policy accepts the image, none when that is not known, and a message.
/// Without a verdict, because no rule asks for a signature, the condition is removed.
pub fn set_verified(
    conditions: &mut Vec<Condition>,
    verdict: Option<(Option<bool>, &str)>,
    observed_generation: i64,
    now: Timestamp,
) {
    let Some((accepted, message)) = verdict else {
        remove_condition(conditions, VERIFIED);
        return;
    };
    let (status, reason) = status_and_reason(accepted);
    let report = Report {
        condition_type: VERIFIED,
        status,
        reason,
        message: &steady(message),
        observed_generation,
    };
    set_condition(conditions, report, now);
}

/// The status and the reason of the condition, by whether the policy accepts the image, if that is known.
pub const fn status_and_reason(accepted: Option<bool>) -> (Status, &'static str) {
    match accepted {
        Some(true) => (Status::True, reason::SIGNED),
        Some(false) => (Status::False, reason::POLICY_REFUSES),
        None => (Status::Unknown, reason::UNVERIFIABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::find;

    #[test]
    fn the_condition_says_what_the_policy_says_and_goes_with_its_rule() {
        let mut list = Vec::new();
        let mut set = |accepted: Option<Option<bool>>| {
            let verdict = accepted.map(|accepted| (accepted, "said"));
            set_verified(&mut list, verdict, 1, Timestamp::UNIX_EPOCH);
            let found = find(&list, VERIFIED);
            found.map(|found| (found.status.clone(), found.reason.clone()))
        };
        let expected = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
        assert_eq!(set(Some(Some(true))), expected("True", "Signed"));
        assert_eq!(set(Some(Some(false))), expected("False", "PolicyRefuses"));
        assert_eq!(set(Some(None)), expected("Unknown", "Unverifiable"));
        assert_eq!(set(None), None);
    }
}
