//! The InstallPlan of a resolution.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::collection::generation;
use super::{INSTALL_PLAN_KIND, Resolution, reference};
use crate::cluster::{Cluster, put, text};
use crate::names;

/// What is to be done so that a resolution has its plan.
pub(super) struct Planned {
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
) -> Option<Planned> {
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
    Some(Planned {
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
    })
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
pub(super) fn point(subscription: &mut Value, planned: &Planned) {
    for (key, value) in [
        ("installPlanRef", reference(INSTALL_PLAN_KIND, &planned.plan)),
        ("installplan", old_reference(&planned.plan)),
        ("state", json!("UpgradePending")),
        ("installPlanGeneration", json!(planned.generation)),
    ] {
        put(subscription, &["status"], key, value);
    }
}
