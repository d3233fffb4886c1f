//! One pass over a namespace: its Subscriptions one by one, then all of them together.
//!
//! ```text
//! each Subscription ─► prepare ─► resolve ─► unpack ─► conclude ─► InstallPlan, statuses
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use olm_api::conditions::reason::POLICY_REFUSES;
use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::names;
use olm_classic::resolve::CatalogContent;
use olm_classic::subscription::{
    NamespaceDecision, ResolveError, Unpacked, conclude, is_held, is_namespace_paused, pass,
    point_to_created, prepare, reconsidered, restarted, retried, settle_plan, superseded, with_installed,
    with_verified,
};
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use super::bundles::unpack_available;
use super::context::{Context, holding, operator_group};
use super::health::{entries, health};
use super::migration::has_extensions;
use super::resolution::ResolutionInput;
use super::verification::verification;
use super::write::write_status;
use crate::objects::write::Actor;
use crate::registry::sources::VisibleCatalogs;

/// Delay before a pass whose objects changed meanwhile is repeated.
const SOON: Duration = Duration::from_millis(200);
/// Delay before a pass that lacked the list of ClusterExtensions is repeated.
const LISTED: Duration = Duration::from_secs(1);
/// Delay before catalogs that cannot be read are read again for a failed plan or a refused Subscription.
const AGAIN: Duration = Duration::from_mins(1);

/// The cluster without the Subscriptions of the namespace for which nothing is resolved.
fn snapshot(context: &Context, namespace: &str) -> Cluster {
    let is_listed = has_extensions(&context.base.store);
    let mut cluster = context.base.store.snapshot();
    let held = cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
    let held: Vec<String> = held
        .filter(|subscription| is_held(subscription, &cluster, is_listed))
        .map(|subscription| text(subscription, "/metadata/name").to_owned())
        .collect();
    for name in held {
        cluster.remove(names::SUBSCRIPTION_KIND, namespace, &name);
    }
    cluster
}

/// Whether a Subscription of the namespace waits for the list of ClusterExtensions.
fn awaits_extensions(context: &Context, namespace: &str) -> bool {
    let is_listed = has_extensions(&context.base.store);
    let cluster = context.base.store.snapshot();
    let mut subscriptions = cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
    !is_listed && subscriptions.any(|subscription| is_held(subscription, &cluster, is_listed))
}

/// Works on a namespace.
pub async fn work(context: Arc<Context>, namespace: String) -> Outcome {
    // What waits for the list is seen before the pass: the list may come during it.
    let is_waiting = awaits_extensions(&context, &namespace);
    let outcome = match pass_over(&context, &namespace).await {
        Ok(delay) if is_waiting => Outcome::After(delay.map_or(LISTED, |delay| delay.min(LISTED))),
        Ok(None) => Outcome::Done,
        Ok(Some(delay)) => Outcome::After(delay),
        // The watch shows what has changed.
        Err(PassError::Write(failure)) if failure.kind == FailureKind::Conflict => Outcome::After(SOON),
        Err(error) => {
            tracing::warn!(namespace, %error, "cannot reconcile the Subscriptions of a namespace; retrying");
            Outcome::Failed
        }
    };
    tracing::debug!(namespace, ?outcome, "reconciled the Subscriptions of a namespace");
    outcome
}

/// Error that makes a pass be retried.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot write a Subscription or an InstallPlan: {}", .0.message)]
    Write(RequestFailure),
    #[error("{0}")]
    Other(String),
}

impl From<RequestFailure> for PassError {
    fn from(failure: RequestFailure) -> Self {
        Self::Write(failure)
    }
}

/// A pass over a namespace; with the time after which another one is due.
async fn pass_over(context: &Context, namespace: &str) -> Result<Option<Duration>, PassError> {
    let now = Timestamp::now();
    let cluster = snapshot(context, namespace);
    if is_namespace_paused(&cluster, namespace) {
        // Its change wakes the namespace.
        tracing::debug!(namespace, "a Subscription of the namespace is paused");
        return Ok(None);
    }
    let mut catalogs = VisibleCatalogs::default();
    if cluster
        .in_namespace(names::SUBSCRIPTION_KIND, namespace)
        .next()
        .is_some()
    {
        catalogs = context.sources.catalogs(namespace, &context.global).await;
    } else {
        context.resolutions.forget(namespace);
    }
    let verified = one_by_one(context, namespace, &cluster, &catalogs.contents, now).await?;
    let due = resolve(context, namespace, catalogs, now).await?;
    Ok(due.into_iter().chain(verified).min())
}

/// Resolves the Subscriptions together; with the time after which that is due again.
async fn resolve(
    context: &Context,
    namespace: &str,
    catalogs: VisibleCatalogs,
    now: Timestamp,
) -> Result<Option<Duration>, PassError> {
    let cluster = snapshot(context, namespace);
    for subscription in restarted(namespace, &cluster, now) {
        let name = text(&subscription, "/metadata/name");
        tracing::info!(
            namespace,
            name,
            "the version of a Subscription is gone; it is resolved anew"
        );
        write_status(&context.base, &subscription).await?;
    }
    let due = failed_plans(context, namespace, &catalogs, now).await?;
    let cluster = snapshot(context, namespace);
    let prepared = prepare(namespace, &cluster, now);
    for name in &prepared.deleted {
        if let Some(plan) = cluster.get(names::INSTALL_PLAN_KIND, namespace, name) {
            context.base.writer.delete(&Actor::Own, plan).await?;
        }
    }
    for subscription in &prepared.written {
        write_status(&context.base, subscription).await?;
    }
    if let Some(error) = prepared.error {
        // A change of the OperatorGroups wakes the namespace.
        refuse(context, namespace, &cluster, error, now).await?;
        return Ok(None);
    }
    let Some(subscriptions) = prepared.subscriptions else {
        return Ok(due);
    };
    together(context, namespace, &cluster, &subscriptions, catalogs, now).await
}

/// Has failed plans tried again whose cause may be gone, and has Subscriptions forget those that their resolution no
/// longer leads to; with the time after which that is looked at again.
async fn failed_plans(
    context: &Context,
    namespace: &str,
    catalogs: &VisibleCatalogs,
    now: Timestamp,
) -> Result<Option<Duration>, PassError> {
    let cluster = snapshot(context, namespace);
    let retried = retried(namespace, &cluster, now);
    for plan in &retried.plans {
        tracing::info!(
            namespace,
            name = text(plan, "/metadata/name"),
            "retrying a failed InstallPlan"
        );
        write_status(&context.base, plan).await?;
        let annotations =
            json!({names::PLANNED_FOR_ANNOTATION: annotation(plan, names::PLANNED_FOR_ANNOTATION)});
        let patch = json!({"metadata": {"annotations": annotations}});
        context.base.writer.merge(&Actor::Own, plan, &patch).await?;
    }
    forget_plan(context, namespace, &retried.subscriptions).await?;
    let cluster = snapshot(context, namespace);
    let Some(subscriptions) = reconsidered(namespace, &cluster, now) else {
        return Ok(None);
    };
    let input = input(context, namespace, &cluster, &subscriptions, catalogs);
    let whole = context.resolutions.resolve(&input, &context.metrics).await;
    let Ok(resolved) = whole.as_ref() else {
        return Ok(catalogs.has_fault().then_some(AGAIN));
    };
    if !resolved.resolution.refused.is_empty() && (catalogs.are_coming() || catalogs.has_fault()) {
        // A catalog that cannot be read may satisfy the refused Subscriptions: the failed plan may still hold.
        return Ok(catalogs.has_fault().then_some(AGAIN));
    }
    let found = unpack_available(context, &input, &whole, resolved).await;
    let is_here = |bundle: &Unpacked| matches!(bundle, Unpacked::Conditions(found) if found.is_empty());
    if found.unpacked.iter().all(is_here) {
        let resolution = &found.resolution;
        let mut forgetting = superseded(namespace, &cluster, resolution, &subscriptions, now);
        // One whose bundle cannot be unpacked would get no other plan.
        forgetting.retain(|found| !resolution.left_out.contains_key(text(found, "/metadata/name")));
        forget_plan(context, namespace, &forgetting).await?;
    }
    Ok(found.due)
}

/// Writes Subscriptions that forget their failed plan.
async fn forget_plan(context: &Context, namespace: &str, subscriptions: &[Value]) -> Result<(), PassError> {
    for subscription in subscriptions {
        let name = text(subscription, "/metadata/name");
        tracing::info!(namespace, name, "replaced a failed InstallPlan");
        write_status(&context.base, subscription).await?;
    }
    Ok(())
}

/// Settles the status of each Subscription about its InstallPlan, its catalogs, deprecations and its installed version;
/// with the time after which the image of one must be verified again.
async fn one_by_one(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    catalogs: &[CatalogContent],
    now: Timestamp,
) -> Result<Option<Duration>, PassError> {
    let mut due: Option<Duration> = None;
    for subscription in cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace) {
        context.metrics.synced(subscription);
        let known = entries(subscription, catalogs);
        let decision = pass(subscription, cluster, &context.global, &health, &known, now);
        let verification = verification(context, subscription, cluster, catalogs).await;
        due = due.into_iter().chain(verification.again()).min();
        let (mut settled, mut is_changed) = (decision.subscription, decision.is_changed);
        let (mut refusal, verdict) = (None, verification.verdict());
        if let Some(with_installed) = with_installed(&settled, cluster, now) {
            (settled, is_changed) = (with_installed, true);
        }
        if let Some(verdict) = verdict
            && let Some(with_verified) = with_verified(&settled, verdict, now)
        {
            (settled, is_changed) = (with_verified, true);
            refusal = verdict.filter(|(accepted, _)| *accepted == Some(false));
        }
        if is_changed {
            write_status(&context.base, &settled).await?;
        }
        if let Some((_, why)) = refusal {
            context.warn(&settled, [(POLICY_REFUSES.to_owned(), why.to_owned())]);
        }
        if let Some(error) = decision.error {
            return Err(PassError::Other(error));
        }
    }
    Ok(due)
}

/// Says in all Subscriptions why the namespace is not resolved.
async fn refuse(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    error: String,
    now: Timestamp,
) -> Result<(), PassError> {
    let error = match operator_group(cluster, namespace) {
        Err(names) if !names.is_empty() => format!("{error}: {}", names.join(", ")),
        _ => error,
    };
    let subscriptions: Vec<Value> = cluster
        .in_namespace(names::SUBSCRIPTION_KIND, namespace)
        .cloned()
        .collect();
    let refused = ResolveError::Other(error);
    let decision = conclude(namespace, &subscriptions, cluster, Err(&refused), &[], now);
    write(context, namespace, cluster, decision).await
}

/// Resolves the Subscriptions, unpacks the bundles that they move to, and makes the plan.
async fn together(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    subscriptions: &[Value],
    catalogs: VisibleCatalogs,
    now: Timestamp,
) -> Result<Option<Duration>, PassError> {
    let input = input(context, namespace, cluster, subscriptions, &catalogs);
    let whole = context.resolutions.resolve(&input, &context.metrics).await;
    let is_prevented = match whole.as_ref() {
        Err(error) => is_other(error),
        Ok(resolved) => resolved.resolution.refused.values().any(is_other),
    };
    if is_prevented && catalogs.are_coming() {
        // Nothing is wrong yet, and the namespace is woken when they are here or fail.
        return Ok(None);
    }
    let (resolution, unpacked, due) = match whole.as_ref() {
        Ok(resolved) => {
            let found = unpack_available(context, &input, &whole, resolved).await;
            (Ok(found.resolution), found.unpacked, found.due)
        }
        Err(error) => (Err(error.clone()), Vec::new(), None),
    };
    let decision = conclude(
        namespace,
        subscriptions,
        cluster,
        resolution.as_ref(),
        &unpacked,
        now,
    );
    let error = decision.error.clone();
    write(context, namespace, cluster, decision).await?;
    match error {
        Some(error) if is_prevented && catalogs.has_fault() => Err(PassError::Other(error)),
        // A change of a catalog, an OperatorGroup or a ClusterServiceVersion wakes the namespace.
        Some(_) if resolution.is_err() => Ok(None),
        Some(error) => Err(PassError::Other(error)),
        None if is_prevented && catalogs.has_fault() => Ok(Some(due.map_or(AGAIN, |due| due.min(AGAIN)))),
        None => Ok(due),
    }
}

/// Whether a resolution could not be tried.
fn is_other(error: &ResolveError) -> bool {
    matches!(error, ResolveError::Other(_))
}

/// The input of the resolution of a namespace.
fn input<'a>(
    context: &'a Context,
    namespace: &'a str,
    cluster: &'a Cluster,
    subscriptions: &'a [Value],
    catalogs: &VisibleCatalogs,
) -> ResolutionInput<'a> {
    ResolutionInput {
        namespace,
        global: &context.global,
        cluster,
        subscriptions,
        catalogs: Arc::clone(&catalogs.contents),
    }
}

/// Creates the plan, then writes the Subscriptions, which point to it.
async fn write(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    mut decision: NamespaceDecision,
) -> Result<(), PassError> {
    settle_plan(&mut decision.written, cluster);
    let is_changed = !decision.written.is_empty();
    let (plans, subscriptions): (Vec<Value>, Vec<Value>) = decision
        .written
        .into_iter()
        .partition(|object| text(object, "/kind") == names::INSTALL_PLAN_KIND);
    let mut created = None;
    for plan in plans {
        let known = cluster.get(names::INSTALL_PLAN_KIND, namespace, text(&plan, "/metadata/name"));
        let known = known.filter(|known| !text(known, "/status/phase").is_empty());
        if let Some(known) = known {
            created = Some(known.clone());
            continue;
        }
        let name = text(&plan, "/metadata/name");
        tracing::info!(namespace, name, "creates an InstallPlan");
        created = Some(context.base.writer.write(&Actor::Own, &plan).await?);
    }
    for mut subscription in subscriptions.iter().cloned() {
        if let Some(plan) = &created {
            point_to_created(&mut subscription, plan);
        }
        tracing::debug!(
            namespace,
            name = text(&subscription, "/metadata/name"),
            conditions = ?holding(&subscription),
            "writes a Subscription"
        );
        write_status(&context.base, &subscription).await?;
    }
    if !decision.events.is_empty() && context.repeats.admits(namespace, is_changed, Instant::now()) {
        for warning in decision.events {
            let object = match &warning.subscription {
                Some(name) => cluster.get(names::SUBSCRIPTION_KIND, namespace, name).cloned(),
                None => {
                    Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                }
            };
            if let Some(object) = object {
                context.warn(&object, [(warning.reason.to_owned(), warning.message)]);
            }
        }
    }
    Ok(())
}
