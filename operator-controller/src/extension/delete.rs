//! Deletion: observe, plan, act, report, like every run.

pub(crate) mod data_loss;
pub mod plan;

use std::time::Duration;

use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use olm_api::cluster_extension::controlling_extension;
use olm_api::conditions::{bounded_message, reason};
use olm_api::names::label;
use olm_api::readiness::Verdict;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_platform::log::chain;
use olm_platform::queue::Outcome;

use self::plan::{
    DeletionReport, DeletionState, Remaining, STALE, availability, has_begun, has_never_run,
    other_finalizers, plan,
};
use super::act::{self, ActError, act};
use super::context::Context;
use super::context::account;
use super::events::{self, EventKind};
use super::failure::StageError as _;
use super::observe::{newest_release, releases};
use super::preflight::Checked;
use super::report::{self, readiness::ExtensionReadiness};
use super::resolve::inventory;
use super::revisions::Revisions;
use crate::object_set::records::ORPHAN;
use olm_rollout::policy::{Policy, Uninstall};
use olm_rollout::teardown_record::TeardownRecord;

/// The pause until the controller checks whether the revisions are gone. Their deletion is also watched.
const AGAIN: Duration = Duration::from_secs(10);

/// State of this stage between runs.
#[derive(Debug, Clone, Default)]
pub struct DeleteCache {
    /// The uninstall policy, once announced.
    announced: Option<Uninstall>,
    /// The custom resources that will be deleted, once announced.
    data_loss: Option<String>,
    /// The finalizers that block objects of its kinds.
    finalizers: data_loss::FinalizerCache,
    /// The teardown records of its revisions.
    records: Vec<TeardownRecord>,
}

/// Deletes an extension, one step in each run.
pub(crate) async fn delete(
    context: &Context,
    extension: &ClusterExtension,
    cache: &mut DeleteCache,
) -> Outcome {
    let error = match step(context, extension, cache).await {
        Ok(outcome) => return outcome,
        Err(error) => error,
    };
    // The extension may have changed, perhaps by our own last write.
    let overtaken = match &error {
        ActError::Api(error) => Outcome::overtaken(error),
        _ => None,
    };
    overtaken.unwrap_or_else(|| {
        tracing::warn!(
            extension = extension.name(),
            error = &error as &dyn std::error::Error,
            "cannot uninstall yet"
        );
        Outcome::Failed
    })
}

async fn step(
    context: &Context,
    extension: &ClusterExtension,
    cache: &mut DeleteCache,
) -> Result<Outcome, ActError> {
    // Finalizers of others may still hold an extension that the controller has released.
    let Some(rest) = other_finalizers(extension) else {
        return Ok(Outcome::Done);
    };
    let observed = observe(context, extension, cache).await?;
    let plan = plan(&observed, rest);
    let checked = Checked::preparation(plan.actions);
    let report = match act(context, extension, checked, &mut act::ActCache::default()).await {
        Err(ActError::Release(error)) => DeletionReport::Progressing {
            reason: reason::RETRYING,
            message: bounded_message(&chain(&error)),
            kind: EventKind::Warning,
        },
        done => done.map(|_| plan.report)?,
    };
    conclude(context, &observed, report, cache).await
}

/// Reads the state of an extension that is being deleted, as far as the next step depends on it.
async fn observe<'a>(
    context: &Context,
    extension: &'a ClusterExtension,
    cache: &mut DeleteCache,
) -> Result<DeletionState<'a>, ActError> {
    let policy = Policy::read(|key| extension.annotation(key));
    let uninstall = policy.as_ref().ok().map(|policy| policy.uninstall);
    let mut finalizers = extension.metadata.finalizers.iter().flatten();
    let revisions = context.revisions(extension.name());
    let left = if finalizers.any(|name| name == ORPHAN) {
        Remaining::Orphans
    } else if revisions.all().is_empty() {
        nothing(context, extension, uninstall, cache).await?
    } else {
        observe_revisions(context, extension, revisions, uninstall, cache).await
    };
    Ok(DeletionState {
        extension,
        policy,
        announced: cache.announced,
        left,
    })
}

async fn nothing(
    context: &Context,
    extension: &ClusterExtension,
    uninstall: Option<Uninstall>,
    cache: &mut DeleteCache,
) -> Result<Remaining, ActError> {
    let uid = extension.metadata.uid.as_deref();
    cache
        .records
        .extend(uid.into_iter().flat_map(|uid| context.teardown_records.take(uid)));
    // The watch may lag behind, so the last step reads the list from the API server.
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    // No object has a label with an invalid value.
    let listed = match label::selector(label::OWNER_NAME, extension.name()) {
        Some(labelled) => {
            sets.list_metadata(&ListParams::default().labels(&labelled))
                .await?
                .items
        }
        None => Vec::new(),
    };
    let ours = |set: &PartialObjectMeta<ClusterObjectSet>| {
        uid.is_some() && controlling_extension(&set.metadata) == uid
    };
    let is_listed = listed.iter().any(ours);
    let release = if is_listed || uninstall == Some(Uninstall::Delete) {
        Ok(false)
    } else {
        let newest = newest_release(context, extension).await;
        newest
            .map(|newest| newest.is_some())
            .map_err(|error| bounded_message(&chain(&error)))
    };
    Ok(Remaining::Nothing {
        is_listed,
        release,
        records: cache.records.clone(),
    })
}

async fn observe_revisions(
    context: &Context,
    extension: &ClusterExtension,
    revisions: Revisions,
    uninstall: Option<Uninstall>,
    cache: &mut DeleteCache,
) -> Remaining {
    let mut dependents = None;
    if let Some(uninstall) = uninstall
        && !has_begun(extension, &revisions)
    {
        let needed = inventory::needed_by_others(context, extension, &revisions, uninstall).await;
        dependents = match needed {
            Ok(needed) => needed.map(|needed| (reason::BLOCKED, needed)),
            Err(error) => Some((error.reason(), chain(&error))),
        };
        if dependents.is_some() {
            context.joint_updates.awaits_others(extension.name(), true);
        } else if uninstall == Uninstall::Delete && cache.announced != Some(uninstall) {
            cache.data_loss = data_loss::count(context, extension, &revisions).await;
        }
    }
    let has_started = has_begun(extension, &revisions) || cache.announced == uninstall;
    let keeps_objects = has_started && uninstall.is_some_and(|uninstall| uninstall != Uninstall::Delete);
    let releases = if keeps_objects && !revisions.all().iter().any(|set| has_never_run(set)) {
        let found = releases(context, extension).await;
        found
            .map(|found| found.into_iter().map(|entry| entry.secret).collect())
            .map_err(|error| bounded_message(&chain(&error)))
    } else {
        Ok(Vec::new())
    };
    let finalizers = if plan::revision_messages(&revisions).is_empty() {
        None
    } else {
        cache.finalizers.held(context, extension, &revisions).await
    };
    Remaining::Revisions {
        dependents,
        account: account::choose(extension, context.default_account.as_ref()).ok(),
        releases,
        data_loss: cache.data_loss.clone(),
        finalizers,
        revisions,
    }
}

/// Reports the result.
async fn conclude(
    context: &Context,
    observed: &DeletionState<'_>,
    report: DeletionReport,
    cache: &mut DeleteCache,
) -> Result<Outcome, ActError> {
    let extension = observed.extension;
    match report {
        DeletionReport::Later(pause) => Ok(Outcome::After(pause)),
        DeletionReport::Progressing {
            reason,
            message,
            kind,
        } => {
            progressing(context, observed, reason, &message, kind).await?;
            Ok(Outcome::After(AGAIN))
        }
        DeletionReport::Announce(uninstall) => {
            if uninstall != Uninstall::Delete {
                cache.data_loss = None;
            }
            if let Some(loss) = &cache.data_loss {
                progressing(context, observed, reason::RETRYING, loss, EventKind::None).await?;
            }
            let note = cache.data_loss.as_deref().unwrap_or(match uninstall {
                Uninstall::Delete => "Removing all objects",
                Uninstall::KeepCrds => {
                    "Removing all objects but custom resource definitions and custom resources"
                }
                Uninstall::Orphan => "Leaving all objects on the cluster",
            });
            publish(context, extension, events::UNINSTALLING, note);
            cache.announced = Some(uninstall);
            Ok(Outcome::After(STALE))
        }
        DeletionReport::Gone(note) => {
            publish(context, extension, events::UNINSTALLED, &note);
            context.forget(extension.name());
            Ok(Outcome::Done)
        }
    }
}

fn publish(context: &Context, extension: &ClusterExtension, reason: &str, note: &str) {
    let events = vec![events::normal(reason, note)];
    context.events.publish(extension.object_ref(&()), events);
}

/// Writes the conditions of an extension that is being deleted.
async fn progressing(
    context: &Context,
    observed: &DeletionState<'_>,
    reason: &str,
    message: &str,
    kind: EventKind,
) -> Result<(), kube::Error> {
    let extension = observed.extension;
    let mut status = extension.status.clone().unwrap_or_default();
    if let Remaining::Revisions { revisions, .. } = &observed.left {
        availability(
            &mut status.conditions,
            revisions,
            extension.generation(),
            Timestamp::now(),
        );
    }
    let readiness = if reason == reason::BLOCKED {
        ExtensionReadiness::new(Verdict::Stalled, reason, message)
    } else {
        ExtensionReadiness::new(Verdict::Reconciling, reason::REMOVING, message)
    };
    report::progressing(&mut status, extension, reason, message, &readiness);
    report::write_status(context, extension, status, kind).await
}
