//! The InstallPlan of a resolution.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::collection::generation;
use super::{INSTALL_PLAN_KIND, Resolution, reference};
use crate::cluster::{Cluster, items, put, text};
use crate::install_plan::plan_digest;
use crate::names;

/// The plan of a resolution, and its generation.
pub(super) struct ResolutionPlan {
    /// The generation.
    pub(super) generation: i64,
    /// The plan, which the server names.
    pub(super) plan: Value,
}

/// The plan for a resolution; nothing where it has no steps and no bundles.
pub(super) fn planned(
    resolution: &Resolution,
    subscriptions: &[Value],
    cluster: &Cluster,
    namespace: &str,
) -> Option<ResolutionPlan> {
    if resolution.steps.is_empty() && resolution.bundle_lookups.is_empty() {
        return None;
    }
    let noted = subscriptions
        .iter()
        .filter_map(|found| found.pointer("/status/installPlanGeneration")?.as_i64());
    let used = cluster.in_namespace(INSTALL_PLAN_KIND, namespace).map(generation);
    let generation = noted.chain(used).max().unwrap_or_default() + 1;
    let is_manual = subscriptions
        .iter()
        .any(|found| text(found, "/spec/installPlanApproval") == "Manual");
    let owners: Vec<Value> = subscriptions.iter().map(owner).collect();
    let versions: Vec<&str> = resolution
        .steps
        .iter()
        .filter(|step| text(step, "/resource/kind") == names::CSV_KIND)
        .map(|step| text(step, "/resource/name"))
        .collect();
    let sources: BTreeSet<&str> = resolution
        .steps
        .iter()
        .map(|step| text(step, "/resource/sourceName"))
        .collect();
    let (approval, phase) = if is_manual {
        ("Manual", "RequiresApproval")
    } else {
        ("Automatic", "Installing")
    };
    let mut status = json!({"phase": phase, "catalogSources": sources, "plan": resolution.steps});
    if !resolution.bundle_lookups.is_empty() {
        put(
            &mut status,
            &[],
            "bundleLookups",
            json!(resolution.bundle_lookups),
        );
    }
    let mut planned = ResolutionPlan {
        generation,
        plan: json!({
            "apiVersion": names::CSV_API_VERSION, "kind": INSTALL_PLAN_KIND,
            "metadata": {"generateName": "install-", "namespace": namespace, "ownerReferences": owners},
            "spec": {
                "clusterServiceVersionNames": versions, "approval": approval, "approved": !is_manual,
                "generation": generation,
            },
            "status": status,
        }),
    };
    if !resolution.images.is_empty() {
        let images = json!(resolution.images).to_string();
        let path = ["metadata", "annotations"];
        put(&mut planned.plan, &path, names::BUNDLE_IMAGES_ANNOTATION, images);
    }
    Some(planned)
}

/// Characters of the suffix of a plan's name.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Names the new plan among objects to write, and notes its digest and what it is made for. A plan that no Subscription
/// has noted yet, with the same Subscriptions and steps, is taken for it: the Subscriptions could not be written after
/// it was created.
pub fn settle_plan(written: &mut [Value], cluster: &Cluster) {
    let is_new = |object: &&mut Value| {
        text(object, "/kind") == INSTALL_PLAN_KIND && text(object, "/metadata/name").is_empty()
    };
    let Some(plan) = written.iter_mut().find(is_new) else {
        return;
    };
    let namespace = text(plan, "/metadata/namespace").to_owned();
    let noted = cluster
        .in_namespace(names::SUBSCRIPTION_KIND, &namespace)
        .filter_map(|found| found.pointer("/status/installPlanGeneration")?.as_i64())
        .max()
        .unwrap_or_default();
    let plans = cluster.in_namespace(INSTALL_PLAN_KIND, &namespace);
    let mut later = plans.filter(|found| generation(found) > noted);
    let earlier = later.find_map(|found| {
        let mut same = plan.clone();
        put(&mut same, &["spec"], "generation", generation(found));
        (plan_name(&same) == text(found, "/metadata/name")).then_some(same)
    });
    let before = generation(plan);
    if let Some(earlier) = earlier {
        *plan = earlier;
    }
    let (name, generation) = (plan_name(plan), generation(plan));
    put(plan, &["metadata"], "name", name);
    let path = ["metadata", "annotations"];
    let digest = plan_digest(plan);
    put(plan, &path, names::PLAN_DIGEST_ANNOTATION, digest);
    let owners: Vec<&Value> = items(plan, "/metadata/ownerReferences")
        .filter_map(|owner| cluster.get(names::SUBSCRIPTION_KIND, &namespace, text(owner, "/name")))
        .collect();
    let generations = planned_for(&owners);
    put(plan, &path, names::PLANNED_FOR_ANNOTATION, generations);
    let noting = written.iter_mut().filter(|object| {
        let noted = object.pointer("/status/installPlanGeneration");
        noted.and_then(Value::as_i64) == Some(before)
    });
    for subscription in noting {
        put(subscription, &["status"], "installPlanGeneration", generation);
    }
}

/// The name of a plan that has none. It follows from the Subscriptions, the generation and the steps, so that a plan is
/// created once.
fn plan_name(plan: &Value) -> String {
    let mut hash = Sha256::new();
    for owner in items(plan, "/metadata/ownerReferences") {
        hash.update(text(owner, "/uid"));
    }
    hash.update(generation(plan).to_le_bytes());
    for step in items(plan, "/status/plan") {
        hash.update(step.to_string());
    }
    let letters = hash.finalize().into_iter().take(5).map(usize::from);
    let letters = letters.filter_map(|byte| LETTERS.get(byte % LETTERS.len()));
    let end: String = letters.map(|letter| char::from(*letter)).collect();
    format!("{}{end}", text(plan, "/metadata/generateName"))
}

/// Fills the name and the UID of a created plan into a Subscription that points to it.
pub fn point_to_created(subscription: &mut Value, plan: &Value) {
    for (key, uid) in [("installPlanRef", "uid"), ("installplan", "uuid")] {
        let reference = subscription.pointer(&format!("/status/{key}"));
        if reference.is_some_and(|reference| text(reference, "/name").is_empty()) {
            for (field, pointer) in [("name", "/metadata/name"), (uid, "/metadata/uid")] {
                put(subscription, &["status", key], field, text(plan, pointer));
            }
        }
    }
}

fn owner(subscription: &Value) -> Value {
    json!({
        "apiVersion": names::CSV_API_VERSION, "kind": names::SUBSCRIPTION_KIND,
        "name": text(subscription, "/metadata/name"), "uid": text(subscription, "/metadata/uid"),
        "controller": false, "blockOwnerDeletion": false,
    })
}

/// The older form of a reference to a plan.
pub(super) fn old_reference(plan: &Value) -> Value {
    json!({
        "apiVersion": names::CSV_API_VERSION, "kind": INSTALL_PLAN_KIND,
        "name": text(plan, "/metadata/name"), "uuid": text(plan, "/metadata/uid"),
    })
}

/// Points a Subscription to its plan. The server names a new one when it is created; the caller fills that in.
pub(super) fn point(subscription: &mut Value, planned: &ResolutionPlan) {
    for (key, value) in [
        ("installPlanRef", reference(INSTALL_PLAN_KIND, &planned.plan)),
        ("installplan", old_reference(&planned.plan)),
        ("state", json!("UpgradePending")),
        ("installPlanGeneration", json!(planned.generation)),
    ] {
        put(subscription, &["status"], key, value);
    }
}

/// The generations of Subscriptions, as the annotation of their plan has them.
pub(super) fn planned_for(subscriptions: &[&Value]) -> String {
    let generations: BTreeMap<&str, Value> = subscriptions
        .iter()
        .map(|subscription| {
            let generation = subscription.pointer("/metadata/generation").cloned();
            (
                text(subscription, "/metadata/name"),
                generation.unwrap_or_default(),
            )
        })
        .collect();
    json!(generations).to_string()
}
