//! The status of an extension, its events, and when it is reconciled again.

pub(crate) mod inputs;
pub(crate) mod policy;
pub(crate) mod readiness;
pub(crate) mod retry;
pub(crate) mod status;
pub(crate) mod updates;

use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_api::conditions::{self, AVAILABLE, PROGRESSING, Status, reason, set_condition};
use olm_api::names::annotation;
use olm_api::readiness::add_line;
use olm_api::updates::UpdatesStatus;
use olm_api::verified::set_verified;
use olm_api::{ClusterExtension, Condition};
use olm_image::Verification;
use olm_resolve::deprecation::Messages;

use self::inputs::{Progress, StatusInputs};
use self::readiness::ExtensionReadiness;
use self::status::status;
use super::approval;
use super::context::Context;
use super::events::{self, EventKind};
use super::failure::StageFailure;
use super::observe::Observed;
use super::resolve::updates::{HeldBack, Updates};
use super::revisions::{Revisions, deletion_report};

/// The time that a rollout may take before the extension reports its unready parts.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// The results of a run: the input of its last stage.
pub(crate) struct Report {
    /// The result of the last stage.
    pub progress: Progress,
    /// The deprecations in the catalogs; `None` if no catalog answered.
    pub deprecations: Option<Messages>,
    /// The newer bundle that is held back, and the reason.
    pub held: Option<String>,
    /// Newer bundles, or the reason why they are unknown.
    pub updates: Result<Updates, HeldBack>,
    /// The chosen update that has to wait.
    pub waits: Option<approval::HeldChange>,
    /// The time when a window opens for it.
    pub opens: Option<Timestamp>,
    /// Warnings about the installed bundle on this cluster.
    pub warnings: Option<String>,
    /// The verdict of the signature policy about the installed image.
    pub verification: Verification,
    /// The kind of event for a blocker.
    pub kind: EventKind,
    /// Whether the user has paused the extension.
    pub is_paused: bool,
}

/// Writes the status after a run, and publishes events.
///
/// # Errors
/// The status could not be written.
pub(crate) async fn report(
    context: &Context,
    observed: &Observed,
    results: &Report,
) -> Result<(), kube::Error> {
    let (extension, revisions) = (&*observed.extension, &observed.revisions);
    let inputs = StatusInputs {
        generation: extension.generation(),
        revisions,
        deprecations: results.deprecations.as_ref(),
        progress: &results.progress,
        is_paused: results.is_paused,
    };
    let mut next = status(
        &extension.status.clone().unwrap_or_default(),
        inputs,
        Timestamp::now(),
    );
    updates::report(
        &mut next,
        &results.updates,
        &results.progress,
        results.waits.as_ref(),
    );
    let list = &mut next.conditions;
    let is_one_of = |list: &[Condition], reasons: &[&str]| {
        conditions::find(list, PROGRESSING).is_some_and(|found| reasons.contains(&found.reason.as_str()))
    };
    let mut announced = None;
    // After a first installation it is known only while an edge leads from the installed bundle to the other one.
    let continuing = [reason::SUCCEEDED, reason::ROLLING_OUT];
    if let Some(held) = results.held.as_ref().filter(|_| is_one_of(list, &continuing)) {
        let before = extension.status.as_ref();
        let is_known = before.is_some_and(|before| {
            is_one_of(&before.conditions, &continuing)
                && is_same_obstacle(before.updates.as_ref(), next.updates.as_ref())
        });
        add_line(list, held);
        announced = (!is_known).then(|| events::normal(events::HELD_BACK, held));
    }
    if let Some(waits) = &results.waits {
        add_line(list, &waits.message);
    }
    if let Some(deletion_report) = deletion_report(revisions) {
        add_line(list, &deletion_report);
    }
    if let Some(unready) = unready_parts(revisions, Timestamp::now()) {
        let rolls_out = [reason::ROLLING_OUT, reason::PROGRESS_DEADLINE_EXCEEDED];
        if is_one_of(list, &rolls_out) {
            add_line(list, unready);
        }
    }
    if let Some(warnings) = rollout_warnings(revisions) {
        add_line(list, &format!("Warnings: {warnings}"));
    }
    if let Some(warnings) = &results.warnings {
        add_line(list, warnings);
    }
    if let Some(verdict) = results.verification.verdict() {
        set_verified(list, verdict, extension.generation(), Timestamp::now());
    }
    write_status(context, extension, next, results.kind).await?;
    context
        .events
        .publish(extension.object_ref(&()), announced.into_iter().collect());
    Ok(())
}

/// Whether the same bundle is held back for the same reason.
fn is_same_obstacle(before: Option<&UpdatesStatus>, after: Option<&UpdatesStatus>) -> bool {
    let obstacle = |updates: &UpdatesStatus| {
        (
            updates.newest.clone(),
            updates.held_back_by.clone(),
            updates.message.clone(),
        )
    };
    before.map(obstacle) == after.map(obstacle)
}

/// The unready parts of the newest revision, with reasons, when it has rolled out for some time.
fn unready_parts(revisions: &Revisions, now: Timestamp) -> Option<&str> {
    let available = conditions::find(revisions.rolling().last()?.conditions(), AVAILABLE)?;
    let waited = now.duration_since(available.last_transition_time.0);
    (available.reason == reason::PROBE_FAILURE && waited >= PATIENCE).then_some(available.message.as_str())
}

/// The warnings from the creation of the newest revision, while it rolls out.
fn rollout_warnings(revisions: &Revisions) -> Option<&str> {
    revisions.rolling().last()?.annotation(annotation::WARNINGS)
}

/// Reports a failure before the revisions were known. The rest of the status stays.
///
/// # Errors
/// The status could not be written.
pub(crate) async fn failed(
    context: &Context,
    extension: &ClusterExtension,
    failure: &StageFailure,
) -> Result<(), kube::Error> {
    let mut status = extension.status.clone().unwrap_or_default();
    let readiness = ExtensionReadiness::of_failure(failure, false);
    progressing(
        &mut status,
        extension,
        failure.reason,
        &failure.message,
        &readiness,
    );
    write_status(context, extension, status, EventKind::Warning).await
}

/// Sets the condition `Progressing` and those for tools.
pub(crate) fn progressing(
    status: &mut ClusterExtensionStatus,
    extension: &ClusterExtension,
    reason: &str,
    message: &str,
    readiness: &ExtensionReadiness,
) {
    let now = Timestamp::now();
    let report = conditions::Report {
        condition_type: PROGRESSING,
        status: if reason == reason::BLOCKED {
            Status::False
        } else {
            Status::True
        },
        reason,
        message,
        observed_generation: extension.generation(),
    };
    set_condition(&mut status.conditions, report, now);
    readiness.report(status, extension.generation(), now);
}

/// Writes the status if it differs, unless the extension changed since it was read, and publishes the changes.
///
/// # Errors
/// The status could not be written.
pub(crate) async fn write_status(
    context: &Context,
    extension: &ClusterExtension,
    status: ClusterExtensionStatus,
    kind: EventKind,
) -> Result<(), kube::Error> {
    if extension.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let extensions: Api<ClusterExtension> = Api::all(context.client.clone());
    let before = extension.status.as_ref();
    let events = events::changes(before, &status, kind);
    let next = ClusterExtension {
        status: Some(status),
        ..extension.clone()
    };
    extensions
        .replace_status(extension.name(), &PostParams::default(), &next)
        .await?;
    if let Some(now) = &next.status {
        context.counters.changed(extension.name(), before, now);
    }
    context.events.publish(extension.object_ref(&()), events);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::conditions::SUCCEEDED;

    use super::*;
    use crate::extension::revisions::tests::revision;

    #[test]
    fn waiting_is_reported_once_it_takes_long() {
        let mut set = (*revision(1, &[])).clone();
        let report = conditions::Report {
            condition_type: AVAILABLE,
            status: Status::False,
            reason: reason::PROBE_FAILURE,
            message: "not yet",
            observed_generation: 1,
        };
        let status = set.status.get_or_insert_default();
        set_condition(&mut status.conditions, report, Timestamp::UNIX_EPOCH);
        let revisions = Revisions::new(vec![Arc::new(set)]);
        for (second, expected) in [(4, None), (5, Some("not yet"))] {
            assert_eq!(
                unready_parts(&revisions, Timestamp::from_second(second).unwrap()),
                expected
            );
        }
        assert_eq!(
            unready_parts(&Revisions::new(vec![revision(1, &[])]), Timestamp::now()),
            None
        );
    }

    #[test]
    fn warnings_are_reported_as_long_as_their_revision_rolls_out() {
        // The next leader reads it from the revision.
        let warning = |number, reports: &[_]| {
            let mut set = (*revision(number, reports)).clone();
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::WARNINGS.to_owned(), "beware".to_owned());
            Arc::new(set)
        };
        let done = [(SUCCEEDED, Status::True, "")];
        for (revisions, expected) in [
            (vec![revision(1, &done), warning(2, &[])], Some("beware")),
            (vec![revision(1, &done), warning(2, &done)], None),
            (vec![revision(1, &done), warning(2, &[]), revision(3, &[])], None),
            (vec![revision(2, &[])], None),
        ] {
            assert_eq!(rollout_warnings(&Revisions::new(revisions)), expected);
        }
    }
}
