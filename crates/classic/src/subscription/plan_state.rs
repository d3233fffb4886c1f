//! What a Subscription says of its InstallPlan.

use serde_json::Value;

use super::{INSTALL_PLAN_KIND, condition, set, unset};
use crate::cluster::{Cluster, items, text};

const MISSING: &str = "InstallPlanMissing";
const PENDING: &str = "InstallPlanPending";
const FAILED: &str = "InstallPlanFailed";

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
    let mut is_changed = unset(subscription, &[MISSING]);
    let message = message(plan);
    match text(plan, "/status/phase") {
        "" => {
            is_changed |= unset(subscription, &[FAILED]);
            is_changed |= set(
                subscription,
                condition(PENDING, "InstallPlanNotYetReconciled", &message),
                now,
            );
        }
        phase @ ("Planning" | "Installing" | "RequiresApproval") => {
            is_changed |= unset(subscription, &[FAILED]);
            is_changed |= set(subscription, condition(PENDING, phase, &message), now);
        }
        "Failed" => {
            let reason = installed(plan)
                .map(|found| text(found, "/reason"))
                .unwrap_or_default();
            let reason = if reason.is_empty() { FAILED } else { reason };
            is_changed |= unset(subscription, &[PENDING]);
            is_changed |= set(subscription, condition(FAILED, reason, &message), now);
        }
        "Complete" => is_changed |= unset(subscription, &[PENDING, FAILED]),
        _ => {}
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

fn installed(plan: &Value) -> Option<&Value> {
    items(plan, "/status/conditions").find(|found| text(found, "/type") == "Installed")
}

/// What the plan says, else what the bundles say that are waited for.
fn message(plan: &Value) -> String {
    let own = installed(plan)
        .map(|found| text(found, "/message"))
        .unwrap_or_default();
    if !own.is_empty() {
        return own.to_owned();
    }
    let pending = items(plan, "/status/bundleLookups").filter_map(|lookup| {
        items(lookup, "/conditions").find(|found| text(found, "/type") == "BundleLookupPending")
    });
    let messages: Vec<String> = pending
        .map(|found| text(found, "/message"))
        .filter(|message| !message.is_empty())
        .map(|message| format!("{message}."))
        .collect();
    messages.join(" ")
}
