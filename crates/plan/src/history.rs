//! The history of an extension: its revisions and how each ended, as far as they are kept.

use std::cmp::Ordering;

use olm_api::ClusterObjectSet;
use olm_api::Time;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{PROGRESSING, SUCCEEDED, find, is_true, reason};
use olm_api::names::annotation;
use olm_rollout::status::is_archived;
use olm_version::blang::parse_version;
use serde::Serialize;

use crate::BundleIdentity;
use crate::change::Bundle;

/// A revision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The number.
    pub revision: i64,
    /// The name of its ClusterObjectSet.
    pub name: String,
    /// The state, or how it ended.
    pub state: State,
    /// The revision that replaced it, or is about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor: Option<Successor>,
    /// The bundle of the revision.
    pub bundle: Bundle,
    /// The catalog that offered the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// The account that applied it, `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The approver of the change that created it, if it needed an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    /// The time of its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// The time when all of it was available for the first time, if it ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Time>,
    /// The time when its last object was gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The state of a revision, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// The revision is installed.
    Installed,
    /// The revision is rolling out.
    RollingOut,
    /// The revision exceeded its deadline, or a user must act first.
    Failed,
    /// The revision is deleted.
    Deleting,
    /// A newer version replaced it.
    Upgraded,
    /// An older version replaced it.
    RolledBack,
    /// The same version replaced it, with other objects or under another account.
    Replaced,
    /// Another revision replaced it before it was available.
    NeverAvailable,
}

impl State {
    /// The state as text for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::RollingOut => "rolling out",
            Self::Failed => "failed",
            Self::Deleting => "being deleted",
            Self::Upgraded => "upgraded",
            Self::RolledBack => "rolled back",
            Self::Replaced => "replaced",
            Self::NeverAvailable => "never available",
        }
    }
}

/// A revision that replaces another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Successor {
    /// The number.
    pub revision: i64,
    /// The version of its bundle.
    pub version: String,
}

/// The revisions of an extension, newest first.
pub fn history(sets: &[ClusterObjectSet]) -> Vec<Entry> {
    let mut newest_first: Vec<&ClusterObjectSet> = sets.iter().collect();
    newest_first.sort_by_key(|set| std::cmp::Reverse((set.spec.revision, set.name())));
    let entries = newest_first.iter().enumerate().map(|(index, set)| {
        let newer = newest_first.get(..index).unwrap_or_default();
        entry(set, successor(newer))
    });
    entries.collect()
}

/// The revision that replaced an older one, given the newer ones, newest first: the first that was available, otherwise
/// the first.
fn successor<'s>(newer: &[&'s ClusterObjectSet]) -> Option<&'s ClusterObjectSet> {
    let available = newer.iter().rfind(|set| is_true(set.conditions(), SUCCEEDED));
    available.or(newer.last()).copied()
}

fn entry(set: &ClusterObjectSet, successor: Option<&ClusterObjectSet>) -> Entry {
    let conditions = set.conditions();
    let at = |condition_type: &str| {
        find(conditions, condition_type).map(|condition| condition.last_transition_time.clone())
    };
    let available = is_true(conditions, SUCCEEDED).then(|| at(SUCCEEDED)).flatten();
    let state = state(set, successor);
    Entry {
        revision: set.spec.revision,
        name: set.name().to_owned(),
        state,
        successor: successor.map(|next| Successor {
            revision: next.spec.revision,
            version: version(next).to_owned(),
        }),
        bundle: Bundle::of(&BundleIdentity::of(set)),
        catalog: set.annotation(annotation::CATALOG).map(str::to_owned),
        account: set.annotation(annotation::SERVICE_ACCOUNT).map(str::to_owned),
        approver: set.annotation(annotation::APPROVED_BY).map(str::to_owned),
        created: set.metadata.creation_timestamp.clone(),
        available,
        ended: is_archived(conditions).then(|| at(PROGRESSING)).flatten(),
    }
}

fn state(set: &ClusterObjectSet, successor: Option<&ClusterObjectSet>) -> State {
    if set.is_deleting() {
        return State::Deleting;
    }
    let was_available = is_true(set.conditions(), SUCCEEDED);
    match (set.spec.lifecycle_state, successor) {
        (LifecycleState::Active, _) if was_available => State::Installed,
        (LifecycleState::Active, _) => match find(set.conditions(), PROGRESSING) {
            Some(progressing)
                if matches!(
                    progressing.reason.as_str(),
                    reason::BLOCKED | reason::PROGRESS_DEADLINE_EXCEEDED
                ) =>
            {
                State::Failed
            }
            _ => State::RollingOut,
        },
        (LifecycleState::Archived, _) if !was_available => State::NeverAvailable,
        (LifecycleState::Archived, None) => State::Replaced,
        (LifecycleState::Archived, Some(next)) => match newer(version(set), version(next)) {
            Ordering::Less => State::Upgraded,
            Ordering::Equal => State::Replaced,
            Ordering::Greater => State::RolledBack,
        },
    }
}

fn version(set: &ClusterObjectSet) -> &str {
    set.annotation(annotation::BUNDLE_VERSION).unwrap_or_default()
}

/// The order of recorded versions. Invalid versions are equal.
fn newer(left: &str, right: &str) -> Ordering {
    match (parse_version(left), parse_version(right)) {
        (Ok(left), Ok(right)) => left.cmp(&right),
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_object_set::{ClusterObjectSetSpec, ClusterObjectSetStatus};
    use olm_api::conditions::{Report, Status, set_condition};

    use super::*;

    fn set(
        number: i64,
        version: &str,
        state: LifecycleState,
        reports: &[(&str, Status, &str, i64)],
    ) -> ClusterObjectSet {
        let spec = ClusterObjectSetSpec {
            revision: number,
            lifecycle_state: state,
            ..ClusterObjectSetSpec::default()
        };
        let mut set = ClusterObjectSet::new(&format!("ext-{number}"), spec);
        let annotations = [
            (annotation::PACKAGE_NAME, "pkg".to_owned()),
            (annotation::BUNDLE_VERSION, version.to_owned()),
            (annotation::SERVICE_ACCOUNT, "n/installer".to_owned()),
        ];
        set.metadata.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value)).into());
        set.metadata.creation_timestamp = Some(Time(Timestamp::from_second(number * 100).unwrap()));
        let mut status = ClusterObjectSetStatus::default();
        for (condition_type, state, reason, at) in reports {
            let report = Report {
                condition_type,
                status: *state,
                reason,
                message: "",
                observed_generation: 1,
            };
            set_condition(
                &mut status.conditions,
                report,
                Timestamp::from_second(*at).unwrap(),
            );
        }
        set.status = Some(status);
        set
    }

    #[test]
    fn each_revision_names_its_end_and_its_successor() {
        use LifecycleState::{Active, Archived};
        let available = |at| (SUCCEEDED, Status::True, reason::SUCCEEDED, at);
        let archived = |at| (PROGRESSING, Status::False, reason::ARCHIVED, at);
        let sets = [
            set(
                7,
                "1.0.0",
                Active,
                &[(PROGRESSING, Status::True, reason::ROLLING_OUT, 700)],
            ),
            set(1, "1.0.0", Archived, &[available(110), archived(320)]),
            set(2, "1.1.0", Archived, &[archived(310)]),
            set(3, "1.2.0", Archived, &[available(310), archived(420)]),
            set(4, "1.0.0", Archived, &[available(410), archived(520)]),
            set(5, "1.0.0", Active, &[available(510)]),
            set(
                6,
                "1.3.0",
                Active,
                &[(
                    PROGRESSING,
                    Status::False,
                    reason::PROGRESS_DEADLINE_EXCEEDED,
                    600,
                )],
            ),
        ];
        let found = history(&sets);
        let at = |time: &Option<Time>| time.as_ref().map(|time| time.0.as_second());
        let lines: Vec<_> = found
            .iter()
            .map(|entry| {
                let next = entry.successor.as_ref().map(|next| next.revision);
                (
                    entry.revision,
                    entry.state,
                    next,
                    at(&entry.available),
                    at(&entry.ended),
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                (7, State::RollingOut, None, None, None),
                (6, State::Failed, Some(7), None, None),
                (5, State::Installed, Some(6), Some(510), None),
                (4, State::Replaced, Some(5), Some(410), Some(520)),
                (3, State::RolledBack, Some(4), Some(310), Some(420)),
                (2, State::NeverAvailable, Some(3), None, Some(310)),
                (1, State::Upgraded, Some(3), Some(110), Some(320)),
            ]
        );
        let shown = serde_json::to_value(&found[6]).unwrap();
        assert_eq!(
            shown["successor"],
            serde_json::json!({"revision": 3, "version": "1.2.0"})
        );
        assert_eq!(shown["created"], "1970-01-01T00:01:40Z");
    }

    #[test]
    fn a_revision_that_is_deleted_says_so() {
        let mut gone = set(1, "1.0.0", LifecycleState::Active, &[]);
        gone.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(history(&[gone])[0].state, State::Deleting);
        let odd = set(
            1,
            "odd",
            LifecycleState::Archived,
            &[(SUCCEEDED, Status::True, reason::SUCCEEDED, 1)],
        );
        assert_eq!(history(&[odd])[0].state, State::Replaced);
    }
}
