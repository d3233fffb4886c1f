//! One pass over a namespace: its Subscriptions one by one, then all of them together.
//!
//! ```text
//! each Subscription ─► prepare ─► resolve ─► unpack ─► conclude ─► InstallPlan, statuses
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::install_plan::BundleContent;
use olm_classic::names;
use olm_classic::resolve::{Bundle, CatalogContent, Resolved, take_bundles};
use olm_classic::subscription::{
    NamespaceDecision, Resolution, ResolveError, Unpacked, conclude, is_held, is_namespace_paused, pass,
    point_to_created, prepare, reconsidered, restarted, retried, settle_plan, superseded, with_installed,
};
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use super::context::{Context, holding, operator_group};
use super::health::{entries, health};
use super::migration::has_extensions;
use super::unpack::{BundleState, UnpackTimeouts};
use super::write::write_status;
use crate::objects::write::Actor;
use crate::registry::access::Puller;
use crate::registry::sources::VisibleCatalogs;

/// Delay before a pass whose objects changed meanwhile is repeated.
const SOON: Duration = Duration::from_millis(200);
/// Delay before a pass that lacked the list of ClusterExtensions is repeated.
const LISTED: Duration = Duration::from_secs(1);
/// Delay before catalogs that cannot be read are read again for a failed plan or a refused Subscription.
const AGAIN: Duration = Duration::from_mins(1);
/// The annotation of an OperatorGroup with the time that unpacking may take.
const TIMEOUT: &str = "operatorframework.io/bundle-unpack-timeout";
/// The annotation of an OperatorGroup with the time after which a bundle that failed is unpacked again.
const RETRY: &str = "operatorframework.io/bundle-unpack-min-retry-interval";

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
            tracing::warn!(namespace, %error, "cannot work on the Subscriptions of a namespace; it is tried again");
            Outcome::Failed
        }
    };
    tracing::debug!(namespace, ?outcome, "worked on the Subscriptions of a namespace");
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
    one_by_one(context, namespace, &cluster, &catalogs.contents, now).await?;

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
            "a failed InstallPlan is carried out again"
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
    let visible = Arc::clone(&catalogs.contents);
    let resolutions = &context.resolutions;
    let (global, metrics) = (&context.global, &context.metrics);
    let resolved = resolutions.resolve(namespace, global, &cluster, &subscriptions, visible, metrics);
    let resolved = resolved.await;
    let Ok(resolved) = resolved.as_ref() else {
        return Ok(catalogs.has_fault().then_some(AGAIN));
    };
    if !resolved.resolution.refused.is_empty() && (catalogs.are_coming() || catalogs.has_fault()) {
        // A catalog that cannot be read may satisfy the refused Subscriptions: the failed plan may still hold.
        return Ok(catalogs.has_fault().then_some(AGAIN));
    }
    let (resolution, unpacked, due) = unpack(context, namespace, &cluster, resolved).await;
    let is_here = |bundle: &Unpacked| matches!(bundle, Unpacked::Conditions(found) if found.is_empty());
    if unpacked.iter().all(is_here) {
        let forgetting = superseded(namespace, &cluster, &resolution, &subscriptions, now);
        forget_plan(context, namespace, &forgetting).await?;
    }
    Ok(due)
}

/// Writes Subscriptions that forget their failed plan.
async fn forget_plan(context: &Context, namespace: &str, subscriptions: &[Value]) -> Result<(), PassError> {
    for subscription in subscriptions {
        let name = text(subscription, "/metadata/name");
        tracing::info!(
            namespace,
            name,
            "another InstallPlan takes the place of a failed one"
        );
        write_status(&context.base, subscription).await?;
    }
    Ok(())
}

/// Settles the status of each Subscription about its InstallPlan, its catalogs and deprecations.
async fn one_by_one(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    catalogs: &[CatalogContent],
    now: Timestamp,
) -> Result<(), PassError> {
    for subscription in cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace) {
        context.metrics.synced(subscription);
        let known = entries(subscription, catalogs);
        let decision = pass(subscription, cluster, &context.global, &health, &known, now);
        let with_installed = with_installed(&decision.subscription, cluster, now);
        if decision.is_changed || with_installed.is_some() {
            let written = with_installed.as_ref().unwrap_or(&decision.subscription);
            write_status(&context.base, written).await?;
        }
        if let Some(error) = decision.error {
            return Err(PassError::Other(error));
        }
    }
    Ok(())
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
    let resolved = context
        .resolutions
        .resolve(
            namespace,
            &context.global,
            cluster,
            subscriptions,
            Arc::clone(&catalogs.contents),
            &context.metrics,
        )
        .await;
    let is_prevented = match resolved.as_ref() {
        Err(error) => is_other(error),
        Ok(resolved) => resolved.resolution.refused.values().any(is_other),
    };
    if is_prevented && catalogs.are_coming() {
        // Nothing is wrong yet, and the namespace is woken when they are here or fail.
        return Ok(None);
    }
    let (resolution, unpacked, due) = match resolved.as_ref() {
        Ok(resolved) => {
            let (resolution, unpacked, due) = unpack(context, namespace, cluster, resolved).await;
            (Ok(resolution), unpacked, due)
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

/// The resolution with the steps of its bundles, the state of each bundle, and the time after which that changes.
async fn unpack(
    context: &Context,
    namespace: &str,
    cluster: &Cluster,
    resolved: &Resolved,
) -> (Resolution, Vec<Unpacked>, Option<Duration>) {
    let mut resolution = resolved.resolution.clone();
    if resolution.updated.is_empty() {
        // No plan is made: nothing has to be here.
        let unpacked = resolution
            .bundle_lookups
            .iter()
            .map(|_| Unpacked::Conditions(Vec::new()));
        let unpacked = unpacked.collect();
        return (resolution, unpacked, None);
    }
    let timeouts = timeouts(context, cluster, namespace);
    let mut images = BTreeMap::new();
    let (mut bundles, mut due): (Vec<Bundle>, Option<Duration>) = (Vec::new(), None);
    for lookup in &resolution.bundle_lookups {
        let of = |pointer: &str| text(lookup, pointer);
        let (source, place) = (of("/catalogSourceRef/name"), of("/catalogSourceRef/namespace"));
        let image = of("/path");
        let Some(found) = cluster.get(names::CATALOG_SOURCE_KIND, place, source) else {
            bundles.push(Bundle::Condition(super::unpack::catalog_missing()));
            continue;
        };
        if image.is_empty() {
            bundles.push(inline(context, resolved, lookup).await);
            continue;
        }
        let puller = Puller::of(found, context.policies.of_namespace(namespace));
        match context.unpacker.ask(namespace, image, &puller, timeouts).await {
            BundleState::Unpacked(bundle) => {
                images.insert(image.to_owned(), bundle.image.clone());
                bundles.push(Bundle::Content(bundle.content.clone()));
            }
            BundleState::NotUnpacked(condition, after) => {
                due = due.into_iter().chain(after).min();
                bundles.push(Bundle::Condition(condition));
            }
        }
    }
    let unpacked = take_bundles(&mut resolution, bundles, namespace);
    resolution.images = images;
    (resolution, unpacked, due)
}

/// The bundle of a lookup that the catalog holds itself.
async fn inline(context: &Context, resolved: &Resolved, lookup: &Value) -> Bundle {
    let of = |pointer: &str| text(lookup, pointer);
    let (source, place) = (of("/catalogSourceRef/name"), of("/catalogSourceRef/namespace"));
    let name = of("/identifier");
    let operator = resolved
        .operators
        .iter()
        .find(|entry| entry.name == name && entry.catalog == source && entry.catalog_namespace == place);
    let Some(entry) = operator else {
        return Bundle::Error(format!(
            "bundle {name} is not in catalogsource {place}/{source} any more"
        ));
    };
    let found = context
        .sources
        .bundle(place, source, &entry.package, &entry.channel, name)
        .await;
    match found {
        Ok(bundle) => Bundle::Content(BundleContent {
            csv: bundle.csv_json,
            objects: bundle.object,
            properties: entry.properties.clone(),
        }),
        Err(error) => Bundle::Error(format!(
            "cannot read bundle {name} of catalogsource {place}/{source}: {error}"
        )),
    }
}

/// The times that the OperatorGroup sets for unpacking. Zero and negative values have the meaning that the Go
/// implementation gives them: none, and not set.
fn timeouts(context: &Context, cluster: &Cluster, namespace: &str) -> UnpackTimeouts {
    let group = operator_group(cluster, namespace).ok();
    let duration = |key: &str| -> Option<SignedDuration> {
        let value = annotation(group?, key);
        let parsed = if value == "0" {
            Some(SignedDuration::ZERO)
        } else {
            value.parse().ok()
        };
        parsed.filter(|duration| !duration.is_negative())
    };
    let timeout = duration(TIMEOUT).unwrap_or(context.unpack_timeout);
    let positive =
        |duration: SignedDuration| Duration::try_from(duration).ok().filter(|found| !found.is_zero());
    UnpackTimeouts {
        timeout: positive(timeout),
        retry: duration(RETRY).and_then(positive),
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
