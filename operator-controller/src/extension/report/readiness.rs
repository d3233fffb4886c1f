//! The conditions of a ClusterExtension that tools read: whether the content of its spec is there and works, and if
//! not, whether a user must act. Pure.

use jiff::Timestamp;
use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_api::conditions::{self, DEPRECATED, PROGRESSING, READY, is_true, reason};
use olm_api::readiness::{Readiness, Verdict, set_readiness, verdict};
use olm_api::{ClusterObjectSet, Condition};
use olm_rollout::status::rolling_out;

use super::inputs::{Progress, StatusInputs};
use crate::extension::failure::{Severity, StageFailure};
use crate::extension::revisions::{Revisions, deletion_report};

/// The state of an extension, with its reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtensionReadiness {
    /// The state.
    pub verdict: Verdict,
    pub reason: String,
    pub message: String,
}

impl ExtensionReadiness {
    /// The readiness with these values.
    pub(crate) fn new(verdict: Verdict, reason: &str, message: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// The readiness after a failure.
    pub(crate) fn of_failure(failure: &StageFailure, is_paused: bool) -> Self {
        let (verdict, reason) = match failure.severity {
            Severity::Terminal if is_paused => (Verdict::Stalled, reason::PAUSED),
            // A failure that waits for a user is Stalled, even if `Progressing` says `Retrying`, as in the reference
            // implementation.
            Severity::Terminal | Severity::Waiting if failure.reason == reason::RETRYING => {
                (Verdict::Stalled, reason::BLOCKED)
            }
            // A window opens without a user.
            Severity::Terminal if failure.reason == reason::AWAITING_WINDOW => {
                (Verdict::Reconciling, failure.reason)
            }
            Severity::Terminal | Severity::Waiting => (Verdict::Stalled, failure.reason),
            Severity::Transient | Severity::Unfinished | Severity::Pulling => {
                (Verdict::Reconciling, reason::RETRYING)
            }
        };
        Self::new(verdict, reason, conditions::steady(&failure.explained()))
    }

    /// Writes the readiness into a status with this generation.
    pub(crate) fn report(&self, status: &mut ClusterExtensionStatus, generation: i64, now: Timestamp) {
        status.observed_generation = Some(generation);
        let readiness = Readiness {
            verdict: self.verdict,
            reason: &self.reason,
            message: &self.message,
            observed_generation: generation,
        };
        set_readiness(&mut status.conditions, readiness, now);
    }
}

/// The readiness after a run, given its conditions.
pub(crate) fn after_run(inputs: StatusInputs<'_>, list: &[Condition]) -> ExtensionReadiness {
    match inputs.progress {
        Progress::Failed(failure) => ExtensionReadiness::of_failure(failure, inputs.is_paused),
        Progress::Applied {
            started: Some(started),
        } => {
            let changes = started
                .difference
                .iter()
                .map(|text| format!("\nChanges: {text}."));
            let warnings = started.warnings.iter().map(|text| format!("\nWarnings: {text}"));
            let message = [rolling_out(&started.version)]
                .into_iter()
                .chain(changes)
                .chain(warnings);
            ExtensionReadiness::new(
                Verdict::Reconciling,
                reason::ROLLING_OUT,
                message.collect::<String>(),
            )
        }
        Progress::Applied { started: None } => of_revisions(inputs.revisions, list),
        Progress::Silent(failure) => {
            let mut readiness = of_revisions(inputs.revisions, list);
            let separator = if readiness.message.is_empty() { "" } else { "\n" };
            readiness.message.push_str(separator);
            readiness
                .message
                .push_str(&conditions::steady(&failure.explained()));
            readiness
        }
    }
}

/// The readiness by the newest revision.
fn of_revisions(revisions: &Revisions, list: &[Condition]) -> ExtensionReadiness {
    let rolling = revisions.rolling().last();
    match rolling.or_else(|| revisions.installed()) {
        Some(set) => of_revision(set, is_true(list, DEPRECATED)),
        None if deletion_report(revisions).is_some() => {
            ExtensionReadiness::new(Verdict::Reconciling, reason::REMOVING, "")
        }
        None => {
            let progressing = conditions::find(list, PROGRESSING);
            let message = progressing.map_or_else(String::new, |found| found.message.clone());
            ExtensionReadiness::new(Verdict::Reconciling, reason::ROLLING_OUT, message)
        }
    }
}

/// The readiness by the revision that the extension is at or moving to.
fn of_revision(set: &ClusterObjectSet, is_deprecated: bool) -> ExtensionReadiness {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    let ready = conditions::find(set.conditions(), READY).filter(|_| observed == Some(set.generation()));
    let (Some(ready), Some(state)) = (ready, verdict(set.conditions())) else {
        let message = rolling_out(set.name());
        return ExtensionReadiness::new(Verdict::Reconciling, reason::ROLLING_OUT, message);
    };
    let reason = if state == Verdict::Ready && is_deprecated {
        reason::DEPRECATED
    } else {
        &ready.reason
    };
    ExtensionReadiness::new(state, reason, &*ready.message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::conditions::{SUCCEEDED, Status};

    use olm_api::updates::held_back;

    use super::*;
    use crate::extension::revisions::tests::revision;

    const APPLIED: Progress = Progress::Applied { started: None };

    fn with(number: i64, succeeded: bool, verdict: Verdict, reason: &str) -> Arc<ClusterObjectSet> {
        let reports: &[_] = if succeeded {
            &[(SUCCEEDED, Status::True, "")]
        } else {
            &[]
        };
        let mut set = (*revision(number, reports)).clone();
        set.metadata.generation = Some(1);
        let status = set.status.get_or_insert_default();
        status.observed_generation = Some(1);
        let readiness = Readiness {
            verdict,
            reason,
            message: "of the revision",
            observed_generation: 1,
        };
        set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        Arc::new(set)
    }

    fn line(revisions: Vec<Arc<ClusterObjectSet>>, progress: &Progress, is_paused: bool) -> String {
        let inputs = StatusInputs {
            generation: 1,
            revisions: &Revisions::new(revisions),
            deprecations: None,
            progress,
            is_paused,
        };
        let found = after_run(inputs, &[]);
        format!("{:?} {}", found.verdict, found.reason)
    }

    #[test]
    fn the_newest_revision_decides_as_soon_as_it_reports() {
        use Verdict::{Ready, Reconciling, Stalled};
        let installed = || with(1, true, Ready, reason::HEALTHY);
        let silent = revision(2, &[]);
        for (revisions, expected) in [
            (vec![installed()], "Ready Healthy"),
            (vec![installed(), silent], "Reconciling RollingOut"),
            (
                vec![installed(), with(2, false, Stalled, reason::BLOCKED)],
                "Stalled Blocked",
            ),
            (
                vec![with(1, true, Reconciling, reason::PROBE_FAILURE)],
                "Reconciling ProbeFailure",
            ),
            (vec![], "Reconciling RollingOut"),
        ] {
            assert_eq!(line(revisions, &APPLIED, false), expected);
        }
        let silent = StageFailure {
            severity: Severity::Transient,
            reason: reason::RETRYING,
            message: "catalog \"c\" is not being served".to_owned(),
            help: None,
            held_back_by: held_back::CATALOG,
        };
        assert_eq!(
            line(vec![installed()], &Progress::Silent(silent), false),
            "Ready Healthy",
            "the installed version does not depend on a catalog"
        );
        let mut stale = (*installed()).clone();
        stale.metadata.generation = Some(2);
        assert_eq!(
            line(vec![Arc::new(stale)], &APPLIED, false),
            "Reconciling RollingOut"
        );
    }

    #[test]
    fn a_failure_that_needs_a_user_stalls_whatever_the_reason_of_progressing() {
        let check = |severity, reason, is_paused, expected: &str| {
            let failure = StageFailure {
                severity,
                reason,
                message: "no".to_owned(),
                help: None,
                held_back_by: held_back::OTHER,
            };
            let installed = vec![with(1, true, Verdict::Ready, reason::HEALTHY)];
            assert_eq!(line(installed, &Progress::Failed(failure), is_paused), expected);
        };
        check(Severity::Waiting, reason::RETRYING, false, "Stalled Blocked");
        check(Severity::Terminal, reason::BLOCKED, false, "Stalled Blocked");
        check(Severity::Terminal, reason::BLOCKED, true, "Stalled Paused");
        check(
            Severity::Terminal,
            reason::INVALID_CONFIGURATION,
            false,
            "Stalled InvalidConfiguration",
        );
        check(
            Severity::Transient,
            reason::RETRYING,
            false,
            "Reconciling Retrying",
        );
        check(
            Severity::Unfinished,
            reason::RETRYING,
            false,
            "Reconciling Retrying",
        );
    }

    #[test]
    fn a_deprecated_bundle_is_ready_and_says_so() {
        let set = with(1, true, Verdict::Ready, reason::HEALTHY);
        assert_eq!(of_revision(&set, true).reason, reason::DEPRECATED);
        let set = with(1, true, Verdict::Stalled, reason::BLOCKED);
        assert_eq!(of_revision(&set, true).reason, reason::BLOCKED);
    }
}
