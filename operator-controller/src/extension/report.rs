//! The status of an extension, its events, and when it is reconciled again.

pub mod retry;
pub mod status;

use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Api, PostParams};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_api::conditions::{PROGRESSING, Report, Status, bounded_message, reason, set_condition};
use olm_api::names::annotation;
use olm_resolve::deprecation::Messages;

use self::status::{Progress, StatusInputs, status};
use super::context::Context;
use super::events::{self, EventKind};
use super::failure::Failure;
use super::observe::Observed;
use super::revisions::{Revisions, vanishing};

/// Everything that a run found out and did.
pub struct Run {
    /// What the last stage came to.
    pub progress: Progress,
    /// What the catalogs say against what is used; `None` when none answered.
    pub deprecations: Option<Messages>,
    /// Which newer bundle is held back, and why.
    pub held: Option<String>,
    /// Warnings about the installed bundle on this cluster.
    pub warnings: Option<String>,
    /// How a blocker is reported as an event.
    pub kind: EventKind,
}

/// Writes the status that follows from a run, and publishes events.
///
/// # Errors
/// The status could not be written.
pub(crate) async fn report(context: &Context, observed: &Observed, run: &Run) -> Result<(), kube::Error> {
    let (extension, revisions) = (&*observed.extension, &observed.revisions);
    let inputs = StatusInputs {
        generation: extension.generation(),
        revisions,
        deprecations: run.deprecations.as_ref(),
        progress: &run.progress,
    };
    let mut next = status(
        &extension.status.clone().unwrap_or_default(),
        inputs,
        Timestamp::now(),
    );
    if let Some(held) = &run.held {
        add(&mut next, held, |why| why == reason::SUCCEEDED);
    }
    if let Some(vanishing) = vanishing(revisions) {
        add(&mut next, &vanishing, |_| true);
    }
    if let Some(warnings) = rollout_warnings(revisions) {
        add(&mut next, &format!("Warnings: {warnings}"), |_| true);
    }
    if let Some(warnings) = &run.warnings {
        add(&mut next, warnings, |_| true);
    }
    write_status(context, extension, next, run.kind).await
}

/// Adds to the message of `Progressing`, where it has one of the given reasons.
fn add(status: &mut ClusterExtensionStatus, more: &str, has_reason: impl Fn(&str) -> bool) {
    let mut conditions = status.conditions.iter_mut();
    let progressing = conditions.find(|c| c.type_ == PROGRESSING && has_reason(&c.reason));
    if let Some(progressing) = progressing.filter(|c| !c.message.contains(more)) {
        progressing.message = bounded_message(&format!("{}\n{more}", progressing.message));
    }
}

/// The warnings about the newest revision from when it was made, as long as it rolls out.
fn rollout_warnings(revisions: &Revisions) -> Option<&str> {
    revisions.rolling().last()?.annotation(annotation::WARNINGS)
}

/// Reports what failed before the revisions were known; the rest of the status stays.
///
/// # Errors
/// The status could not be written.
pub(crate) async fn failed(
    context: &Context,
    extension: &ClusterExtension,
    failure: &Failure,
) -> Result<(), kube::Error> {
    let mut status = extension.status.clone().unwrap_or_default();
    progressing(&mut status, extension, failure.reason, &failure.message);
    write_status(context, extension, status, EventKind::Warning).await
}

/// Sets the condition `Progressing`.
pub(crate) fn progressing(
    status: &mut ClusterExtensionStatus,
    extension: &ClusterExtension,
    reason: &str,
    message: &str,
) {
    let report = Report {
        condition_type: PROGRESSING,
        status: if reason == reason::BLOCKED {
            Status::False
        } else {
            Status::True
        },
        reason,
        message: &bounded_message(message),
        observed_generation: extension.generation(),
    };
    set_condition(&mut status.conditions, report, Timestamp::now());
}

/// Writes the status when it differs, unless the extension changed since it was read, and publishes what changed.
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
    let events = events::changes(extension.status.as_ref(), &status, kind);
    let next = ClusterExtension {
        status: Some(status),
        ..extension.clone()
    };
    extensions
        .replace_status(extension.name(), &PostParams::default(), &next)
        .await?;
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
    fn warnings_are_reported_as_long_as_their_revision_rolls_out() {
        // Whoever leads reads it from the revision.
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
