//! Subscriptions that are resolved anew: what they were moved to is gone.

use jiff::Timestamp;
use serde_json::Value;

use super::plan_state::ABOUT_PLANS;
use super::{stamp, unset};
use crate::cluster::{Cluster, text};
use crate::names::{self, INSTALL_PLAN_KIND};

/// The Subscriptions of a namespace that forget their InstallPlan and version, so that the next resolution installs
/// anew: the plan is gone before the version was there, or the version was there and is deleted. The annotation
/// [`names::REINSTALL_ANNOTATION`] keeps a deleted version away.
pub fn restarted(namespace: &str, cluster: &Cluster, now: Timestamp) -> Vec<Value> {
    let subscriptions = cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
    let lost = subscriptions.filter(|subscription| is_lost(subscription, cluster));
    lost.map(|subscription| without_plan(subscription, cluster, now))
        .collect()
}

/// A Subscription without its plan and the version that the plan was to install: it is at the version that is there, if
/// any.
pub(super) fn without_plan(subscription: &Value, cluster: &Cluster, now: Timestamp) -> Value {
    let of = |pointer: &str| text(subscription, pointer).to_owned();
    let (namespace, installed) = (of("/metadata/namespace"), of("/status/installedCSV"));
    let is_there = cluster.get(names::CSV_KIND, &namespace, &installed).is_some();
    let mut subscription = subscription.clone();
    unset(&mut subscription, ABOUT_PLANS);
    if let Some(status) = subscription.pointer_mut("/status").and_then(Value::as_object_mut) {
        for key in ["installPlanRef", "installplan", "state"] {
            status.remove(key);
        }
        if is_there {
            status.insert("currentCSV".to_owned(), installed.into());
        } else {
            status.remove("currentCSV");
            status.remove("installedCSV");
        }
    }
    stamp(&mut subscription, &format!("{now:.0}"));
    subscription
}

fn is_lost(subscription: &Value, cluster: &Cluster) -> bool {
    let of = |pointer: &str| text(subscription, pointer);
    let (namespace, version, plan) = (
        of("/metadata/namespace"),
        of("/status/currentCSV"),
        of("/status/installPlanRef/name"),
    );
    if version.is_empty() || plan.is_empty() || cluster.get(names::CSV_KIND, namespace, version).is_some() {
        return false;
    }
    match cluster.get(INSTALL_PLAN_KIND, namespace, plan) {
        None => of("/status/state") == "UpgradePending",
        Some(plan) => {
            let stays_away = subscription
                .pointer("/metadata/annotations")
                .and_then(|annotations| annotations.get(names::REINSTALL_ANNOTATION))
                .is_some_and(|value| value == "false");
            !stays_away && text(plan, "/status/phase") == "Complete"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(annotations: &Value, phase: Option<&str>, has_version: bool, expected: bool) {
        let subscription = json!({
            "kind": "Subscription", "metadata": {"namespace": "n", "name": "s", "annotations": annotations},
            "status": {
                "state": "UpgradePending", "currentCSV": "c.v1", "installedCSV": "c.v1", "installPlanGeneration": 3,
                "installPlanRef": {"name": "p"}, "installplan": {"name": "p"},
            },
        });
        let plan = phase.map(|phase| {
            json!({"kind": "InstallPlan", "metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase}})
        });
        let csv = has_version.then(
            || json!({"kind": "ClusterServiceVersion", "metadata": {"namespace": "n", "name": "c.v1"}}),
        );
        let cluster: Cluster = [Some(subscription), plan, csv].into_iter().flatten().collect();
        let found = restarted("n", &cluster, Timestamp::UNIX_EPOCH);
        let status = json!({"installPlanGeneration": 3, "lastUpdated": "1970-01-01T00:00:00Z"});
        let expected: Vec<Value> = expected.then_some(status).into_iter().collect();
        let found: Vec<Value> = found.iter().map(|one| one["status"].clone()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_lost_plan_and_a_deleted_version_are_forgotten() {
        check(&json!({}), None, false, true);
        check(&json!({}), Some("Complete"), false, true);
        check(&json!({}), Some("Complete"), true, false);
        check(&json!({}), Some("Installing"), false, false);
        check(&json!({}), Some("Failed"), false, false);
        let away = json!({"olm.operatorframework.io/reinstall": "false"});
        check(&away, Some("Complete"), false, false);
        check(&away, None, false, true);
    }
}
