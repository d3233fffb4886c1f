//! State of the InstallPlan in the status of its Subscription.

use serde_json::Value;

use super::{INSTALL_PLAN_KIND, condition, is_same, set, unset};
use crate::cluster::{Cluster, items, put, text};

const MISSING: &str = "InstallPlanMissing";
const PENDING: &str = "InstallPlanPending";
const FAILED: &str = "InstallPlanFailed";
/// The conditions about InstallPlans.
pub(super) const ABOUT_PLANS: &[&str] = &[MISSING, PENDING, FAILED];

/// Sets the conditions about the referenced InstallPlan; whether one changed. Without a reference they stay.
pub(super) fn settle(subscription: &mut Value, cluster: &Cluster, now: &str) -> bool {
    let name = text(subscription, "/status/installPlanRef/name").to_owned();
    if name.is_empty() {
        return false;
    }
    let place = text(subscription, "/metadata/namespace").to_owned();
    let Some(plan) = cluster.get(INSTALL_PLAN_KIND, &place, &name) else {
        return missing(subscription, now);
    };
    let message = message(plan);
    let wanted = match text(plan, "/status/phase") {
        "" => Some(condition(PENDING, "InstallPlanNotYetReconciled", &message)),
        phase @ ("Planning" | "Installing" | "RequiresApproval") => Some(condition(PENDING, phase, &message)),
        "Failed" => {
            let reason = installed(plan)
                .filter(|found| text(found, "/status") == "False")
                .map_or(FAILED, |found| text(found, "/reason"));
            Some(condition(FAILED, reason, &message))
        }
        _ => None,
    };
    replace(subscription, wanted, now)
}

/// Puts a condition in place of those about the plan, at the end; whether the conditions are others, or in another
/// order, now.
fn replace(subscription: &mut Value, wanted: Option<Value>, now: &str) -> bool {
    let before: Vec<Value> = items(subscription, "/status/conditions").cloned().collect();
    let is_about = |found: &Value| ABOUT_PLANS.contains(&text(found, "/type"));
    let mut after: Vec<Value> = before.iter().filter(|found| !is_about(found)).cloned().collect();
    after.extend(wanted.map(|mut wanted| {
        put(&mut wanted, &[], "lastTransitionTime", now);
        wanted
    }));
    let is_changed =
        before.len() != after.len() || !before.iter().zip(&after).all(|(one, other)| is_same(one, other));
    if is_changed {
        put(subscription, &["status"], "conditions", after);
    }
    is_changed
}

/// A plan that is gone. One that was waited for is forgotten where this is written anyway.
fn missing(subscription: &mut Value, now: &str) -> bool {
    let mut is_changed = unset(subscription, &[PENDING, FAILED]);
    if text(subscription, "/status/state") != "UpgradePending" {
        let wanted = condition(MISSING, "ReferencedInstallPlanNotFound", "");
        is_changed |= set(subscription, wanted, now);
    } else if is_changed
        && let Some(status) = subscription.pointer_mut("/status").and_then(Value::as_object_mut)
    {
        for key in ["installPlanRef", "installplan", "currentCSV", "state"] {
            status.remove(key);
        }
    }
    is_changed
}

/// Whether a condition says anything.
fn is_known(condition: &Value) -> bool {
    text(condition, "/status") != "Unknown"
}

fn installed(plan: &Value) -> Option<&Value> {
    items(plan, "/status/conditions").find(|found| text(found, "/type") == "Installed")
}

/// Message of the plan, or else the messages of the bundles that are waited for.
fn message(plan: &Value) -> String {
    let own = installed(plan)
        .filter(|found| is_known(found))
        .map(|found| text(found, "/message"))
        .unwrap_or_default();
    if !own.is_empty() {
        return own.to_owned();
    }
    let pending = items(plan, "/status/bundleLookups").filter_map(|lookup| {
        items(lookup, "/conditions").find(|found| text(found, "/type") == "BundleLookupPending")
    });
    let messages: Vec<String> = pending
        .filter(|found| is_known(found))
        .map(|found| text(found, "/message"))
        .filter(|message| !message.is_empty())
        .map(|message| format!("{message}."))
        .collect();
    messages.join(" ")
}
