//! Condition types and reasons, and the one rule by which a transition time moves.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use olm_text::escape_lines;

/// The object matches its spec and works. All kinds; see [`crate::readiness`].
pub const READY: &str = "Ready";
/// The object is not ready, and the controller works on it. All kinds.
pub const RECONCILING: &str = "Reconciling";
/// The object is not ready, and a user must change something. All kinds.
pub const STALLED: &str = "Stalled";
/// The bundle is applied and complete. ClusterExtension.
pub const INSTALLED: &str = "Installed";
/// The controller works towards the spec, or reports why it does not. All kinds.
pub const PROGRESSING: &str = "Progressing";
/// The objects pass their probes. ClusterObjectSet, mirrored to ClusterExtension.
pub const AVAILABLE: &str = "Available";
/// All phases were complete once. ClusterObjectSet.
pub const SUCCEEDED: &str = "Succeeded";
/// Any of the three below. ClusterExtension.
pub const DEPRECATED: &str = "Deprecated";
/// The catalog deprecates the package. ClusterExtension.
pub const PACKAGE_DEPRECATED: &str = "PackageDeprecated";
/// The catalog deprecates a channel that is followed. ClusterExtension.
pub const CHANNEL_DEPRECATED: &str = "ChannelDeprecated";
/// The catalog deprecates the installed bundle. ClusterExtension.
pub const BUNDLE_DEPRECATED: &str = "BundleDeprecated";
/// The catalog's content is served. ClusterCatalog.
pub const SERVING: &str = "Serving";
/// The catalog's content passes the whole-catalog check; findings do not stop serving. ClusterCatalog.
pub const CONTENT_VALID: &str = "ContentValid";
/// The signature policy of this moment accepts the image in use; absent where it asks for no signature. ClusterCatalog,
/// ClusterExtension.
pub const VERIFIED: &str = "Verified";
/// A minor update of the cluster is permissible. `ClusterOperator` `olm`.
pub const UPGRADEABLE: &str = "Upgradeable";

/// The reasons that conditions carry.
pub mod reason {
    /// The object matches its spec and works.
    pub const HEALTHY: &str = "Healthy";
    /// The user has paused the object.
    pub const PAUSED: &str = "Paused";
    /// A change waits for an approval.
    pub const AWAITING_APPROVAL: &str = "AwaitingApproval";
    /// A change waits until a window opens.
    pub const AWAITING_WINDOW: &str = "AwaitingWindow";
    /// A policy allows no changes.
    pub const FROZEN: &str = "Frozen";
    /// A user rejected the change.
    pub const REJECTED: &str = "Rejected";
    /// A change that is not wanted any more.
    pub const VOID: &str = "Void";
    /// A policy that cannot be used.
    pub const INVALID: &str = "Invalid";
    /// The wanted state is reached.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The controller retries.
    pub const RETRYING: &str = "Retrying";
    /// A user must change something first.
    pub const BLOCKED: &str = "Blocked";
    /// A revision is rolling out.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// A revision took longer than allowed.
    pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    /// The objects of a deleted revision are being removed as expected, which takes some time.
    pub const REMOVING: &str = "Removing";
    /// A revision is taken down.
    pub const ARCHIVED: &str = "Archived";
    /// A revision was created from a release of the Helm runtime.
    pub const MIGRATED: &str = "Migrated";
    /// No bundle is installed or rolls out, or the installed bundle could not be determined.
    pub const FAILED: &str = "Failed";
    /// Nothing is installed yet.
    pub const ABSENT: &str = "Absent";
    /// `spec.config` does not fit the bundle.
    pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
    /// Deprecated by the catalog.
    pub const DEPRECATED: &str = "Deprecated";
    /// Not deprecated by the catalog.
    pub const NOT_DEPRECATED: &str = "NotDeprecated";
    /// No catalog answered.
    pub const DEPRECATION_STATUS_UNKNOWN: &str = "DeprecationStatusUnknown";
    /// Every object passes its probes.
    pub const PROBES_SUCCEEDED: &str = "ProbesSucceeded";
    /// An object does not.
    pub const PROBE_FAILURE: &str = "ProbeFailure";
    /// The results of the probes are unknown at the moment.
    pub const RECONCILING: &str = "Reconciling";
    /// The catalog is served.
    pub const AVAILABLE: &str = "Available";
    /// The catalog is not served.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// The catalog is not served because its spec disables it.
    pub const USER_SPECIFIED_UNAVAILABLE: &str = "UserSpecifiedUnavailable";
    /// The whole-catalog check has no findings.
    pub const NO_FINDINGS: &str = "NoFindings";
    /// The whole-catalog check has findings.
    pub const FINDINGS: &str = "Findings";
    /// The signature policy accepts the image in use.
    pub const SIGNED: &str = "Signed";
    /// The signature policy does not accept the image in use any more.
    pub const POLICY_REFUSES: &str = "PolicyRefuses";
    /// The signatures of the image in use could not be read.
    pub const UNVERIFIABLE: &str = "Unverifiable";
    /// An installed bundle does not support the cluster's next minor version.
    pub const INCOMPATIBLE_OPERATORS_INSTALLED: &str = "IncompatibleOperatorsInstalled";
    /// The versions that an installed bundle supports could not be determined.
    pub const FAILURE_GETTING_EXTENSION_METADATA: &str = "FailureGettingExtensionMetadata";
    /// Every installed bundle supports the cluster's next minor version.
    pub const AS_EXPECTED: &str = "AsExpected";

    /// All reasons.
    pub const ALL: &[&str] = &[
        HEALTHY,
        PAUSED,
        AWAITING_APPROVAL,
        AWAITING_WINDOW,
        FROZEN,
        REJECTED,
        VOID,
        INVALID,
        SUCCEEDED,
        RETRYING,
        BLOCKED,
        ROLLING_OUT,
        PROGRESS_DEADLINE_EXCEEDED,
        REMOVING,
        ARCHIVED,
        MIGRATED,
        FAILED,
        ABSENT,
        INVALID_CONFIGURATION,
        DEPRECATED,
        NOT_DEPRECATED,
        DEPRECATION_STATUS_UNKNOWN,
        PROBES_SUCCEEDED,
        PROBE_FAILURE,
        RECONCILING,
        AVAILABLE,
        UNAVAILABLE,
        USER_SPECIFIED_UNAVAILABLE,
        NO_FINDINGS,
        FINDINGS,
        SIGNED,
        POLICY_REFUSES,
        UNVERIFIABLE,
        INCOMPATIBLE_OPERATORS_INSTALLED,
        FAILURE_GETTING_EXTENSION_METADATA,
        AS_EXPECTED,
    ];
}

/// The longest message that the API server accepts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 32_768;

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The state is unknown.
    Unknown,
}

impl Status {
    /// The value in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Whether a call changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The object changed and must be written.
    Changed,
    /// The object is unchanged.
    Unchanged,
}

/// The report of a controller. [`set_condition`] adds the time and bounds the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    /// The condition's type, one of this module's constants.
    pub condition_type: &'a str,
    /// The status.
    pub status: Status,
    /// The reason, one of [`reason`]'s constants.
    pub reason: &'a str,
    /// The message for users.
    pub message: &'a str,
    /// The generation of the observed object.
    pub observed_generation: i64,
}

/// Sets a condition: appended when its type is new, else changed in place. Its transition time is `now`, in whole
/// seconds, if it is new or its status differs; otherwise it is unchanged.
pub fn set_condition(conditions: &mut Vec<Condition>, report: Report<'_>, now: Timestamp) -> Change {
    let mut wanted = Condition {
        type_: report.condition_type.to_owned(),
        status: report.status.as_str().to_owned(),
        reason: report.reason.to_owned(),
        message: bounded_message(report.message),
        observed_generation: Some(report.observed_generation),
        last_transition_time: whole_seconds(now),
    };
    let Some(present) = conditions.iter_mut().find(|c| c.type_ == report.condition_type) else {
        conditions.push(wanted);
        return Change::Changed;
    };
    if present.status == wanted.status {
        wanted.last_transition_time = present.last_transition_time.clone();
    }
    if *present == wanted {
        return Change::Unchanged;
    }
    *present = wanted;
    Change::Changed
}

/// Removes a condition.
pub fn remove_condition(conditions: &mut Vec<Condition>, condition_type: &str) -> Change {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != condition_type);
    if conditions.len() == before {
        Change::Unchanged
    } else {
        Change::Changed
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == condition_type)
}

/// Whether the condition of that type exists and is `True`.
pub fn is_true(conditions: &[Condition], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(|c| c.status == Status::True.as_str())
}

/// The time in whole seconds, as the API server stores it, so that the written and the read value are equal.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The longest prefix of `text` that ends at a character and holds at most `limit` bytes.
pub fn prefix(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit)
        .rev()
        .find(|&i| text.is_char_boundary(i))
        .unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

/// The message in the form for a condition: hidden characters are escaped, and a text that exceeds the limit of the API
/// server is truncated and marked. Line breaks stay: the caller escapes text from outside.
pub fn bounded_message(message: &str) -> String {
    const MARK: &str = "\n\n... [message truncated]";
    let message = escape_lines(message);
    if message.len() <= MAX_MESSAGE_BYTES {
        return message.into_owned();
    }
    format!("{}{MARK}", prefix(&message, MAX_MESSAGE_BYTES - MARK.len()))
}

/// An error's text without the parts that differ at each retry: [`without_ephemeral_addresses`], and the time at which
/// a certificate was checked.
pub fn steady(message: &str) -> String {
    without(&without_ephemeral_addresses(message), moment)
}

/// An error's text without `(read|write) (tcp|udp) A->B` and the colon behind it, so that the ephemeral port of a
/// failed connection does not make a message differ at each retry. A and B are IPv4 addresses or bracketed IPv6
/// addresses, with or without a port.
pub fn without_ephemeral_addresses(message: &str) -> String {
    without(message, connection)
}

/// The text without the parts that `after` recognises. `after` returns the rest of a text that begins with such a part.
fn without(message: &str, after: impl Fn(&str) -> Option<&str>) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = after(rest) {
            rest = after;
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// The rest of a text that begins with `read tcp A->B: ` or similar. An error without further text has no colon.
fn connection(text: &str) -> Option<&str> {
    let rest = text
        .strip_prefix("read ")
        .or_else(|| text.strip_prefix("write "))?;
    let rest = rest.strip_prefix("tcp ").or_else(|| rest.strip_prefix("udp "))?;
    let rest = address(rest)?.strip_prefix("->")?;
    let rest = address(rest)?;
    Some(rest.strip_prefix(": ").unwrap_or(rest))
}

/// The rest of a text that begins with the time at which a certificate was checked, in the form of rustls or Go.
fn moment(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix("verification time ") {
        return after_number(rest)?.strip_prefix(" (UNIX), but ");
    }
    if let Some(rest) = text.strip_prefix("current time ") {
        let (time, rest) = rest.split_once(" is ")?;
        return (!time.contains(' ')).then_some(rest);
    }
    let rest = after_number(text.strip_prefix(" (")?)?;
    rest.strip_prefix(" seconds ago)")
        .or_else(|| rest.strip_prefix(" seconds in future)"))
}

fn after_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// The rest of a text after an IPv4 or bracketed IPv6 address with an optional port.
fn address(text: &str) -> Option<&str> {
    let rest = if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']')?;
        (!host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.' | '%')))
        .then_some(rest)?
    } else {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let host = text.get(..text.len() - rest.len())?;
        (host.split('.').count() == 4 && host.split('.').all(|part| (1..=3).contains(&part.len())))
            .then_some(rest)?
    };
    let Some(port) = rest.strip_prefix(':') else {
        return Some(rest);
    };
    let after = port.trim_start_matches(|c: char| c.is_ascii_digit());
    // A colon without digits is not a port but the end of the address.
    if after.len() == port.len() {
        Some(rest)
    } else {
        Some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: Status, message: &str) -> Report<'_> {
        Report {
            condition_type: INSTALLED,
            status,
            reason: reason::SUCCEEDED,
            message,
            observed_generation: 1,
        }
    }

    #[test]
    fn all_reasons_are_listed() {
        let source = include_str!("conditions.rs")
            .split("pub mod reason {")
            .nth(1)
            .unwrap();
        let source = source.split("\n}\n").next().unwrap();
        let names = source.lines().filter(|line| line.contains(": &str = "));
        let values: Vec<&str> = names.map(|line| line.split('"').nth(1).unwrap()).collect();
        assert_eq!(reason::ALL, values);
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        assert_eq!(
            set_condition(&mut conditions, report(Status::False, "a"), at(10)),
            Change::Changed
        );
        assert_eq!(
            set_condition(&mut conditions, report(Status::False, "a"), at(20)),
            Change::Unchanged
        );
        assert_eq!(
            set_condition(&mut conditions, report(Status::False, "b"), at(30)),
            Change::Changed
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(10)));
        assert_eq!(
            set_condition(&mut conditions, report(Status::True, "b"), at(40)),
            Change::Changed
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(40)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_time_keeps_whole_seconds_only() {
        let mut conditions = Vec::new();
        let now = Timestamp::new(5, 999_999_999).unwrap();
        set_condition(&mut conditions, report(Status::True, ""), now);
        assert_eq!(
            conditions[0].last_transition_time.0,
            Timestamp::from_second(5).unwrap()
        );
    }

    #[test]
    fn a_message_has_no_hidden_characters_but_its_lines() {
        let mut conditions = Vec::new();
        let message = "two\nlines \u{1b}[2J\u{202e}\u{200b}";
        set_condition(
            &mut conditions,
            report(Status::True, message),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(conditions[0].message, "two\nlines \\u001b[2J\\u202e\\u200b");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        for character in ["a", "é", "漢", "🦀"] {
            for shift in 0..4 {
                let long = format!("{}{}", "x".repeat(shift), character.repeat(MAX_MESSAGE_BYTES + 1));
                let cut = bounded_message(&long);
                assert!(cut.len() <= MAX_MESSAGE_BYTES && cut.len() > MAX_MESSAGE_BYTES - 4);
                assert!(cut.ends_with("... [message truncated]"));
            }
        }
        assert_eq!(bounded_message("short"), "short");
    }

    #[test]
    fn ephemeral_addresses_are_removed() {
        for (input, expected) in [
            ("read tcp 10.1.2.3:41000->10.0.0.1:443: reset", "reset"),
            ("a: write udp [fd00::1]:53->[fd00::2]:53: b", "a: b"),
            ("read tcp 10.1.2.3->10.0.0.1: x", "x"),
            ("lost: read tcp 10.1.2.3:5->10.0.0.1:6", "lost: "),
            ("write udp 10.1.2.3:5->[::1]:6 (again)", " (again)"),
            (
                "read tcp 1.2.3.4:1->5.6.7.8:2: write tcp 1.2.3.4:1->5.6.7.8:2: y",
                "y",
            ),
            (
                "dial tcp 10.0.0.1:443: connect: refused",
                "dial tcp 10.0.0.1:443: connect: refused",
            ),
            (
                "read tcp host:1->10.0.0.1:443: x",
                "read tcp host:1->10.0.0.1:443: x",
            ),
            ("read tcp 10.0.0.1:443: x", "read tcp 10.0.0.1:443: x"),
            ("été read tcp", "été read tcp"),
        ] {
            assert_eq!(without_ephemeral_addresses(input), expected);
            assert_eq!(steady(input), expected);
        }
    }

    #[test]
    fn a_message_about_a_certificate_is_the_same_at_every_attempt() {
        for (input, expected) in [
            (
                "certificate expired: verification time 1763779000 (UNIX), but certificate is not valid after 1763000000 (779000 \
                 seconds ago)",
                "certificate expired: certificate is not valid after 1763000000",
            ),
            (
                "x509: certificate has expired or is not yet valid: current time 2026-11-22T03:00:00Z is after \
                 2026-01-01T00:00:00Z",
                "x509: certificate has expired or is not yet valid: after 2026-01-01T00:00:00Z",
            ),
            (
                "the current time of day is late (5 of 6)",
                "the current time of day is late (5 of 6)",
            ),
        ] {
            assert_eq!(steady(input), expected);
        }
    }
}
