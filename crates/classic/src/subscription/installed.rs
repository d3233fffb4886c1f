//! Whether the installed version works: the state of a Subscription says only that it is there.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{condition, set, stamp, unset};
use crate::cluster::{Cluster, put, text};
use crate::names;

/// The condition about the installed version. The Go implementation does not have it.
const SUCCEEDED: &str = "InstalledCSVSucceeded";

/// The Subscription with the condition about its installed version; nothing where it has that already.
pub fn with_installed(subscription: &Value, cluster: &Cluster, now: Timestamp) -> Option<Value> {
    let mut subscription = subscription.clone();
    let time = format!("{now:.0}");
    let is_changed = match installed_condition(&subscription, cluster) {
        Some(wanted) => set(&mut subscription, wanted, &time),
        None => unset(&mut subscription, &[SUCCEEDED]),
    };
    is_changed.then(|| {
        stamp(&mut subscription, &time);
        subscription
    })
}

fn installed_condition(subscription: &Value, cluster: &Cluster) -> Option<Value> {
    let (namespace, name) = (
        text(subscription, "/metadata/namespace"),
        text(subscription, "/status/installedCSV"),
    );
    if name.is_empty() {
        return None;
    }
    let version = cluster.get(names::CSV_KIND, namespace, name);
    let phase = version.map_or("Missing", |version| text(version, "/status/phase"));
    if phase == "Succeeded" {
        return Some(condition(SUCCEEDED, phase, ""));
    }
    let reason = if phase.is_empty() { "NotReconciled" } else { phase };
    let why = version.map_or("", |version| text(version, "/status/message"));
    let message = match why {
        "" => format!("clusterserviceversion {name} has not succeeded"),
        why => format!("clusterserviceversion {name} has not succeeded: {why}"),
    };
    let mut wanted = condition(SUCCEEDED, reason, &message);
    put(&mut wanted, &[], "status", json!("False"));
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(installed: &str, csv: Option<Value>, expected: &Value) {
        let subscription = json!({
            "metadata": {"namespace": "n", "name": "s"}, "status": {"installedCSV": installed},
        });
        let cluster: Cluster = csv.into_iter().collect();
        let found = with_installed(&subscription, &cluster, Timestamp::UNIX_EPOCH);
        let found = found.map_or(Value::Null, |found| {
            let condition = &found["status"]["conditions"][0];
            json!([condition["status"], condition["reason"], condition["message"]])
        });
        assert_eq!(found, *expected);
    }

    #[test]
    fn the_condition_follows_the_phase_of_the_installed_version() {
        let csv = |phase: &str, message: &str| {
            json!({
                "kind": names::CSV_KIND, "metadata": {"namespace": "n", "name": "a"},
                "status": {"phase": phase, "message": message},
            })
        };
        check("", None, &Value::Null);
        check(
            "a",
            Some(csv("Succeeded", "ok")),
            &json!(["True", "Succeeded", null]),
        );
        check(
            "a",
            Some(csv("Failed", "no rights")),
            &json!([
                "False",
                "Failed",
                "clusterserviceversion a has not succeeded: no rights"
            ]),
        );
        check(
            "a",
            None,
            &json!(["False", "Missing", "clusterserviceversion a has not succeeded"]),
        );
    }
}
