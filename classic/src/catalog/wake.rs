//! Namespaces and InstallPlans that a change wakes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use olm_classic::cluster::{Cluster, annotation, items, text};
use olm_classic::install_plan::resumed;
use olm_classic::names;
use olm_classic::subscription::{is_paused, plan_of_failing, plans_of_failing, repairing};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::context::Context;
use crate::objects::store::Change;

/// Wakes the namespaces and InstallPlans of objects that are known already.
pub fn everything(context: &Context) {
    let cluster = context.base.store.snapshot();
    for kind in [names::SUBSCRIPTION_KIND, names::INSTALL_PLAN_KIND] {
        for object in cluster.of_kind(kind) {
            context
                .namespaces
                .add(text(object, "/metadata/namespace").to_owned());
        }
    }
    repair(context, plans_of_failing(&cluster));
    for plan in cluster.of_kind(names::INSTALL_PLAN_KIND) {
        context.plans.add(key(plan));
    }
}

/// Wakes all that fetch images: the signature policies changed.
pub fn policies(context: &Context) {
    context.unpacker.forget();
    context.sources.wake();
    for namespace in subscribed(&context.base.store.snapshot()) {
        context.namespaces.add(namespace);
    }
    plans(context, |_| true);
}

/// Wakes the namespaces and InstallPlans that each change concerns. Never returns while changes may come.
pub async fn follow(
    context: Arc<Context>,
    mut changes: UnboundedReceiver<Change>,
    mut sources: UnboundedReceiver<(String, String)>,
) {
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Some(change) => react(&context, &change),
                None => return,
            },
            source = sources.recv() => match source {
                Some((namespace, _)) => catalog(&context, &namespace),
                None => return,
            },
        }
    }
}

fn react(context: &Context, change: &Change) {
    let object = change.object();
    let namespace = text(object, "/metadata/namespace");
    match change.kind {
        names::SUBSCRIPTION_KIND => {
            if change.now.is_none() {
                context.metrics.forgotten(object);
                context.verdicts.forget(object);
            }
            context.namespaces.add(namespace.to_owned());
            if change.before.as_deref().is_some_and(is_paused) && !is_paused(object) {
                plans(context, |plan| text(plan, "/metadata/namespace") == namespace);
            }
        }
        names::INSTALL_PLAN_KIND => {
            context.namespaces.add(namespace.to_owned());
            context.plans.add_patiently(key(object));
        }
        names::CSV_KIND if counts(change) => {
            context.namespaces.add(namespace.to_owned());
            if stops_working(change) {
                // Its rights may have been deleted while this program did not run.
                repair(context, plan_of_failing(&context.base.store.snapshot(), object));
            }
        }
        names::OPERATOR_GROUP_KIND => {
            context.namespaces.add(namespace.to_owned());
            plans(context, |plan| text(plan, "/metadata/namespace") == namespace);
        }
        names::CATALOG_SOURCE_KIND => {
            if is_edited(change) {
                context.unpacker.retry(namespace);
            }
            if is_new_catalog(change) {
                catalog(context, namespace);
            }
        }
        names::CLUSTER_EXTENSION_KIND => extension(context, change),
        "Role" | "RoleBinding" | "ServiceAccount" => {
            made_again(context, change);
            resume(context, namespace);
            plans(context, |plan| text(plan, "/metadata/namespace") == namespace);
        }
        "ClusterRole" | "ClusterRoleBinding" => {
            made_again(context, change);
            plans(context, |_| true);
        }
        names::CRD_KIND => {
            if change.before.is_none() {
                failed_plans(context);
            }
            let name = text(object, "/metadata/name");
            plans(context, |plan| {
                items(plan, "/status/plan").any(|step| {
                    text(step, "/resource/name") == name && text(step, "/resource/kind") == names::CRD_KIND
                })
            });
        }
        _ => {}
    }
}

/// Wakes the namespace of the Subscription from which a ClusterExtension was created, when that comes or goes: it holds
/// the Subscription.
fn extension(context: &Context, change: &Change) {
    let origin = |object: &Option<Arc<Value>>| {
        let origin = annotation(object.as_deref()?, names::ORIGIN_ANNOTATION);
        origin.split_once('/').map(|(namespace, _)| namespace.to_owned())
    };
    let (before, now) = (origin(&change.before), origin(&change.now));
    if before != now {
        for namespace in before.into_iter().chain(now) {
            context.namespaces.add(namespace);
        }
    }
}

/// Whether the spec of a CatalogSource changed: it may name other pull secrets.
fn is_edited(change: &Change) -> bool {
    let spec = |object: &Option<Arc<Value>>| object.as_ref().and_then(|object| object.get("spec").cloned());
    spec(&change.before) != spec(&change.now)
}

/// Whether a change of a CatalogSource counts for resolutions: not a poll of its image, for example. New content is
/// announced by its registry.
fn is_new_catalog(change: &Change) -> bool {
    const PARTS: [&str; 5] = [
        "/metadata/uid",
        "/metadata/deletionTimestamp",
        "/spec",
        "/status/reason",
        "/status/registryService",
    ];
    let parts = |object: &Option<Arc<Value>>| {
        let object = object.as_ref()?;
        Some(PARTS.map(|pointer| object.pointer(pointer).cloned()))
    };
    parts(&change.before) != parts(&change.now)
}

/// Whether a change of a ClusterServiceVersion counts for Subscriptions: not one of its conditions alone.
fn counts(change: &Change) -> bool {
    let (Some(before), Some(now)) = (&change.before, &change.now) else {
        return true;
    };
    let sight = |csv: &Value| {
        let parts = ["/metadata/uid", "/status/phase", "/metadata/deletionTimestamp"];
        let parts = parts.map(|pointer| text(csv, pointer).to_owned());
        let generation = csv.pointer("/metadata/generation").cloned();
        (parts, generation, csv.pointer("/metadata/annotations").cloned())
    };
    sight(before) != sight(now)
}

/// Whether a ClusterServiceVersion that worked does not any more.
fn stops_working(change: &Change) -> bool {
    let works = |csv: &Value| text(csv, "/status/phase") == "Succeeded";
    let (before, now) = (change.before.as_deref(), change.now.as_deref());
    before.is_some_and(works) && now.is_some_and(|now| !works(now))
}

/// Wakes the namespaces that see the catalogs of a namespace.
fn catalog(context: &Context, namespace: &str) {
    let cluster = context.base.store.snapshot();
    for place in subscribed(&cluster) {
        if namespace == context.global || place == namespace {
            context.namespaces.add(place);
        }
    }
}

/// The namespaces with Subscriptions.
fn subscribed(cluster: &Cluster) -> BTreeSet<String> {
    let subscriptions = cluster.of_kind(names::SUBSCRIPTION_KIND);
    subscriptions
        .map(|subscription| text(subscription, "/metadata/namespace").to_owned())
        .collect()
}

/// Wakes plans that are carried out, or wait for their account.
fn plans(context: &Context, concerns: impl Fn(&Value) -> bool) {
    let cluster = context.base.store.snapshot();
    let unfinished = cluster
        .of_kind(names::INSTALL_PLAN_KIND)
        .filter(|plan| matches!(text(plan, "/status/phase"), "Installing" | "RequiresApproval"));
    for plan in unfinished.filter(|plan| concerns(plan)) {
        context.plans.add(key(plan));
    }
}

/// Has the failed plans of a namespace carried out once more under the account of its OperatorGroup, whose rights may
/// suffice now.
fn resume(context: &Context, namespace: &str) {
    let cluster = context.base.store.snapshot();
    let plans = cluster.in_namespace(names::INSTALL_PLAN_KIND, namespace);
    for plan in plans.filter(|plan| resumed(plan).is_some()) {
        context.resumed.lock().insert(key(plan));
        context.plans.add(key(plan));
    }
}

/// Has an object of an operator made again that somebody has deleted.
fn made_again(context: &Context, change: &Change) {
    if change.now.is_none() {
        repair(
            context,
            repairing(&context.base.store.snapshot(), change.object()),
        );
    }
}

/// Has complete plans make again what is gone.
fn repair(context: &Context, plans: Vec<&Value>) {
    for plan in plans {
        context.repairs.lock().insert(key(plan), Instant::now());
        context.plans.add(key(plan));
    }
}

/// Wakes the namespaces with plans that have failed: a kind that they lacked may be served.
fn failed_plans(context: &Context) {
    let cluster = context.base.store.snapshot();
    let plans = cluster.of_kind(names::INSTALL_PLAN_KIND);
    for plan in plans.filter(|plan| text(plan, "/status/phase") == "Failed") {
        context
            .namespaces
            .add(text(plan, "/metadata/namespace").to_owned());
    }
}

fn key(plan: &Value) -> (String, String) {
    let part = |pointer: &str| text(plan, pointer).to_owned();
    (part("/metadata/namespace"), part("/metadata/name"))
}
