//! The status of a ClusterExtension. Pure: equal inputs give an equal status, and only a different status is written.

use jiff::Timestamp;
use olm_api::cluster_extension::{ClusterExtensionStatus, InstallStatus, RevisionStatus};
use olm_api::conditions::{
    self, AVAILABLE, BUNDLE_DEPRECATED, CHANNEL_DEPRECATED, DEPRECATED, INSTALLED, PACKAGE_DEPRECATED,
    PROGRESSING, Report, Status, bounded_message, reason, set_condition, steady,
};
use olm_api::names::annotation;
use olm_api::readiness::add_line;
use olm_api::{ClusterObjectSet, Condition};
use olm_rollout::status::rolling_out;

use super::inputs::{Progress, StatusInputs};
use super::readiness::after_run;
use crate::extension::revisions::{BundleIdentity, Revisions};

/// The new status, given the old one.
pub(crate) fn status(
    present: &ClusterExtensionStatus,
    inputs: StatusInputs<'_>,
    now: Timestamp,
) -> ClusterExtensionStatus {
    let mut next = present.clone();
    let installed = inputs.revisions.installed();
    let bundle = installed.map(BundleIdentity::of);
    let mut list = Conditions {
        list: &mut next.conditions,
        generation: inputs.generation,
        now,
    };
    deprecations(&mut list, inputs, bundle.as_ref());
    let rolling = inputs.revisions.rolling().last();
    match installed {
        Some(set) => list.mirror(set, AVAILABLE),
        None if conditions::find(list.list, AVAILABLE).is_some() => {
            list.set(AVAILABLE, Status::Unknown, reason::RECONCILING, NOTHING);
        }
        None => {}
    }
    match inputs.progress {
        Progress::Silent(failure) | Progress::Failed(failure) => {
            let status = if failure.reason == reason::RETRYING {
                Status::True
            } else {
                Status::False
            };
            list.set(PROGRESSING, status, failure.reason, &steady(&failure.message));
        }
        Progress::Applied {
            started: Some(started),
        } => {
            list.set(
                PROGRESSING,
                Status::True,
                reason::ROLLING_OUT,
                &rolling_out(&started.version),
            );
        }
        Progress::Applied { started: None } => {
            let is_silent =
                |set: &ClusterObjectSet| conditions::find(set.conditions(), PROGRESSING).is_none();
            match (rolling, installed) {
                // An earlier message has another cause.
                (Some(set), _) if is_silent(set) => {
                    let version = BundleIdentity::of(set).metadata.version;
                    list.set(
                        PROGRESSING,
                        Status::True,
                        reason::ROLLING_OUT,
                        &rolling_out(&version),
                    );
                }
                (Some(set), _) | (None, Some(set)) => list.mirror(set, PROGRESSING),
                (None, None) => {}
            }
        }
    }
    if let Some(bundle) = &bundle {
        let message = format!("Installed bundle {} successfully", bundle.image);
        list.set(INSTALLED, Status::True, reason::SUCCEEDED, &message);
    } else {
        let reason = not_installed(inputs, rolling);
        list.set(INSTALLED, Status::False, reason, NOTHING);
    }
    let unnamed = inputs.revisions.of_no_bundle().filter(|_| bundle.is_none());
    next.install = bundle.map(|bundle| InstallStatus {
        bundle: bundle.metadata,
    });
    if !matches!(inputs.progress, Progress::Failed(_)) {
        next.active_revisions = active_revisions(inputs.revisions);
    }
    let readiness = after_run(inputs, &next.conditions);
    readiness.report(&mut next, inputs.generation, now);
    if let Some(set) = unnamed {
        add_line(&mut next.conditions, &no_bundle(set));
    }
    next
}

/// The message about a complete revision that does not count.
fn no_bundle(set: &ClusterObjectSet) -> String {
    format!(
        "{} is complete, but its annotations {} and {} name no valid bundle. Nothing counts as installed until the next \
         revision replaces it.",
        set.name(),
        annotation::BUNDLE_NAME,
        annotation::BUNDLE_VERSION
    )
}

/// Failed if nothing is installed and nothing is rolling out, or the rollout is stuck. Otherwise absent.
fn not_installed(inputs: StatusInputs<'_>, rolling: Option<&ClusterObjectSet>) -> &'static str {
    if matches!(inputs.progress, Progress::Applied { started: Some(_) }) {
        return reason::ABSENT;
    }
    match rolling {
        None => reason::FAILED,
        Some(set) => match conditions::find(set.conditions(), PROGRESSING) {
            Some(condition) if condition.reason == reason::RETRYING => reason::FAILED,
            _ => reason::ABSENT,
        },
    }
}

fn active_revisions(revisions: &Revisions) -> Vec<RevisionStatus> {
    let of = |set: &ClusterObjectSet, conditions: Vec<Condition>| RevisionStatus {
        name: set.name().to_owned(),
        conditions,
    };
    let installed = revisions.installed().map(|set| of(set, Vec::new()));
    let rolling = revisions.rolling().map(|set| {
        let shown = |c: &&Condition| c.type_ == AVAILABLE || c.type_ == PROGRESSING;
        of(set, set.conditions().iter().filter(shown).map(bounded).collect())
    });
    installed.into_iter().chain(rolling).collect()
}

fn bounded(condition: &Condition) -> Condition {
    Condition {
        message: bounded_message(&condition.message),
        ..condition.clone()
    }
}

fn deprecations(list: &mut Conditions<'_>, inputs: StatusInputs<'_>, installed: Option<&BundleIdentity>) {
    const UNKNOWN: &str = "deprecation status unknown: catalog data unavailable";
    let Some(messages) = inputs.deprecations else {
        for condition_type in [DEPRECATED, PACKAGE_DEPRECATED, CHANNEL_DEPRECATED] {
            list.set(
                condition_type,
                Status::Unknown,
                reason::DEPRECATION_STATUS_UNKNOWN,
                UNKNOWN,
            );
        }
        match installed {
            Some(_) => list.set(
                BUNDLE_DEPRECATED,
                Status::Unknown,
                reason::DEPRECATION_STATUS_UNKNOWN,
                UNKNOWN,
            ),
            None => list.set(
                BUNDLE_DEPRECATED,
                Status::Unknown,
                reason::ABSENT,
                "no bundle installed yet",
            ),
        }
        return;
    };
    let all: Vec<String> = messages.all().map(str::to_owned).collect();
    list.deprecated(DEPRECATED, &all, "not deprecated");
    list.deprecated(PACKAGE_DEPRECATED, &messages.package, "package not deprecated");
    list.deprecated(CHANNEL_DEPRECATED, &messages.channels, "channel not deprecated");
    match installed {
        Some(_) => list.deprecated(BUNDLE_DEPRECATED, &messages.bundle, "bundle not deprecated"),
        None => list.set(
            BUNDLE_DEPRECATED,
            Status::Unknown,
            reason::ABSENT,
            "no bundle installed yet",
        ),
    }
}

struct Conditions<'a> {
    list: &'a mut Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl Conditions<'_> {
    fn set(&mut self, condition_type: &str, status: Status, reason: &str, message: &str) {
        let report = Report {
            condition_type,
            status,
            reason,
            message,
            observed_generation: self.generation,
        };
        set_condition(self.list, report, self.now);
    }

    fn deprecated(&mut self, condition_type: &str, messages: &[String], otherwise: &str) {
        if messages.is_empty() {
            self.set(condition_type, Status::False, reason::NOT_DEPRECATED, otherwise);
        } else {
            self.set(
                condition_type,
                Status::True,
                reason::DEPRECATED,
                &messages.join("\n"),
            );
        }
    }

    fn mirror(&mut self, set: &ClusterObjectSet, condition_type: &str) {
        mirror(self.list, set, condition_type, self.generation);
    }
}

const NOTHING: &str = "No bundle installed";

/// Copies a condition of a revision, with its transition time.
pub(crate) fn mirror(
    list: &mut Vec<Condition>,
    set: &ClusterObjectSet,
    condition_type: &str,
    generation: i64,
) {
    let Some(theirs) = conditions::find(set.conditions(), condition_type) else {
        return;
    };
    let mirrored = Condition {
        observed_generation: Some(generation),
        ..bounded(theirs)
    };
    match list.iter_mut().find(|c| c.type_ == condition_type) {
        Some(ours) => *ours = mirrored,
        None => list.push(mirrored),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::conditions::SUCCEEDED;

    use olm_resolve::deprecation::Messages;

    use olm_api::updates::held_back;

    use super::*;
    use crate::extension::failure::{Severity, StageFailure};
    use crate::extension::preflight::Started;
    use crate::extension::revisions::tests::revision;

    const APPLIED: Progress = Progress::Applied { started: None };

    fn make(
        revisions: &Revisions,
        progress: &Progress,
        deprecations: Option<&Messages>,
    ) -> ClusterExtensionStatus {
        let inputs = StatusInputs {
            generation: 7,
            revisions,
            deprecations,
            progress,
            is_paused: false,
        };
        let first = status(
            &ClusterExtensionStatus::default(),
            inputs,
            Timestamp::from_second(1).unwrap(),
        );
        let again = status(&first, inputs, Timestamp::from_second(2).unwrap());
        assert_eq!(first, again, "the same inputs change nothing");
        first
    }

    fn line(status: &ClusterExtensionStatus, condition_type: &str) -> String {
        let c = conditions::find(&status.conditions, condition_type).unwrap();
        assert_eq!(c.observed_generation, Some(7));
        format!("{} {} {}", c.status, c.reason, c.message)
    }

    fn failed(severity: Severity, reason: &'static str) -> Progress {
        Progress::Failed(StageFailure {
            severity,
            reason,
            message: "read tcp 10.0.0.1:5->10.0.0.2:443: gone".to_owned(),
            help: None,
            held_back_by: held_back::OTHER,
        })
    }

    #[test]
    fn a_first_installation_is_absent_until_it_is_complete() {
        let nothing = Revisions::default();
        let started = make(
            &nothing,
            &Progress::Applied {
                started: Some(Started {
                    revision: "ext-1".to_owned(),
                    version: "1.0.0".to_owned(),
                    warnings: None,
                    difference: None,
                }),
            },
            None,
        );
        assert_eq!(
            line(&started, PROGRESSING),
            "True RollingOut Revision 1.0.0 is rolling out."
        );
        assert_eq!(line(&started, INSTALLED), "False Absent No bundle installed");
        let stuck = Revisions::new(vec![revision(1, &[(PROGRESSING, Status::True, "boom")])]);
        assert_eq!(
            line(&make(&stuck, &APPLIED, None), INSTALLED),
            "False Failed No bundle installed"
        );
        assert_eq!(
            line(&make(&stuck, &APPLIED, None), PROGRESSING),
            "True Retrying boom"
        );
        let moving = Revisions::new(vec![revision(1, &[(PROGRESSING, Status::True, "")])]);
        assert_eq!(
            line(&make(&moving, &APPLIED, None), INSTALLED),
            "False Absent No bundle installed"
        );
    }

    #[test]
    fn a_removed_version_is_not_reported_as_available() {
        let there = Revisions::new(vec![revision(
            1,
            &[(SUCCEEDED, Status::True, ""), (AVAILABLE, Status::True, "")],
        )]);
        let progress = failed(Severity::Waiting, reason::BLOCKED);
        let present = make(&there, &progress, None);
        let inputs = StatusInputs {
            generation: 7,
            revisions: &Revisions::default(),
            deprecations: None,
            progress: &progress,
            is_paused: false,
        };
        let now = status(&present, inputs, Timestamp::from_second(3).unwrap());
        assert_eq!(line(&now, AVAILABLE), "Unknown Reconciling No bundle installed");
        let never = status(&ClusterExtensionStatus::default(), inputs, Timestamp::UNIX_EPOCH);
        assert_eq!(conditions::find(&never.conditions, AVAILABLE), None);
    }

    #[test]
    fn the_installed_version_stays_installed_while_a_step_fails() {
        let revisions = Revisions::new(vec![revision(
            1,
            &[(SUCCEEDED, Status::True, ""), (AVAILABLE, Status::True, "")],
        )]);
        for (progress, expected) in [
            (
                failed(Severity::Transient, reason::RETRYING),
                "True Retrying gone",
            ),
            (
                failed(Severity::Terminal, reason::INVALID_CONFIGURATION),
                "False InvalidConfiguration gone",
            ),
            (failed(Severity::Waiting, reason::BLOCKED), "False Blocked gone"),
        ] {
            let status = make(&revisions, &progress, None);
            assert_eq!(line(&status, PROGRESSING), expected);
            assert_eq!(
                line(&status, INSTALLED),
                "True Succeeded Installed bundle reg/pkg:v1 successfully"
            );
            assert_eq!(line(&status, AVAILABLE), "True Succeeded ");
            assert_eq!(status.install.unwrap().bundle.name, "pkg.v1");
        }
        let status = make(
            &Revisions::default(),
            &failed(Severity::Transient, reason::RETRYING),
            None,
        );
        assert_eq!(line(&status, INSTALLED), "False Failed No bundle installed");
        assert_eq!(status.install, None);
    }

    #[test]
    fn an_upgrade_shows_the_new_revision_and_keeps_the_old_as_installed() {
        let revisions = Revisions::new(vec![
            revision(
                1,
                &[(SUCCEEDED, Status::True, ""), (PROGRESSING, Status::True, "")],
            ),
            revision(
                2,
                &[
                    (PROGRESSING, Status::True, "two"),
                    (AVAILABLE, Status::False, "no"),
                ],
            ),
        ]);
        let status = make(&revisions, &APPLIED, None);
        assert_eq!(line(&status, PROGRESSING), "True Retrying two");
        assert_eq!(status.install.unwrap().bundle.version, "1.0.0");
        let names: Vec<_> = status
            .active_revisions
            .iter()
            .map(|r| (r.name.as_str(), r.conditions.len()))
            .collect();
        assert_eq!(names, [("ext-1", 0), ("ext-2", 2)]);
    }

    #[test]
    fn a_complete_revision_without_a_bundle_is_reported_and_never_installed() {
        let mut set = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone();
        set.metadata.annotations = None;
        let status = make(&Revisions::new(vec![Arc::new(set)]), &APPLIED, None);
        assert_eq!(status.install, None);
        assert_eq!(line(&status, INSTALLED), "False Failed No bundle installed");
        let ready = line(&status, conditions::READY);
        assert!(
            ready.contains("ext-1 is complete, but its annotations "),
            "{ready}"
        );
    }

    #[test]
    fn conditions_appear_in_a_fixed_order() {
        let revisions = Revisions::new(vec![revision(
            1,
            &[
                (SUCCEEDED, Status::True, ""),
                (PROGRESSING, Status::True, ""),
                (AVAILABLE, Status::True, ""),
            ],
        )]);
        let status = make(&revisions, &APPLIED, Some(&Messages::default()));
        let types: Vec<&str> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            [
                DEPRECATED,
                PACKAGE_DEPRECATED,
                CHANNEL_DEPRECATED,
                BUNDLE_DEPRECATED,
                AVAILABLE,
                PROGRESSING,
                INSTALLED,
                conditions::READY,
                conditions::RECONCILING,
                conditions::STALLED
            ]
        );
    }

    #[test]
    fn deprecations_are_reported_by_kind_and_together() {
        let known = Messages {
            package: vec!["p".to_owned()],
            channels: vec!["s".to_owned()],
            bundle: vec!["one".to_owned()],
        };
        let revisions = Revisions::new(vec![revision(1, &[(SUCCEEDED, Status::True, "")])]);
        let status = make(&revisions, &APPLIED, Some(&known));
        assert_eq!(line(&status, DEPRECATED), "True Deprecated p\ns\none");
        assert_eq!(line(&status, PACKAGE_DEPRECATED), "True Deprecated p");
        assert_eq!(line(&status, CHANNEL_DEPRECATED), "True Deprecated s");
        assert_eq!(line(&status, BUNDLE_DEPRECATED), "True Deprecated one");
        let none = make(&revisions, &APPLIED, Some(&Messages::default()));
        assert_eq!(line(&none, DEPRECATED), "False NotDeprecated not deprecated");
        assert_eq!(
            line(&none, BUNDLE_DEPRECATED),
            "False NotDeprecated bundle not deprecated"
        );
        let unknown = make(&Revisions::default(), &APPLIED, None);
        assert_eq!(
            line(&unknown, DEPRECATED),
            "Unknown DeprecationStatusUnknown deprecation status unknown: catalog data unavailable"
        );
        assert_eq!(
            line(&unknown, BUNDLE_DEPRECATED),
            "Unknown Absent no bundle installed yet"
        );
    }
}
