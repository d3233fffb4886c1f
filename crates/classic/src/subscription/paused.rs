//! Objects that are left as they are while their operator moves to OLM v1 or back.

use serde_json::Value;

use crate::cluster::{Cluster, annotation, text};
use crate::names;

/// Whether the annotation [`names::PAUSED_ANNOTATION`] pauses an object.
pub fn is_paused(object: &Value) -> bool {
    annotation(object, names::PAUSED_ANNOTATION) == "true"
}

/// Whether a Subscription of the namespace is paused: all of them are resolved together.
pub fn is_namespace_paused(cluster: &Cluster, namespace: &str) -> bool {
    cluster
        .in_namespace(names::SUBSCRIPTION_KIND, namespace)
        .any(is_paused)
}

/// Whether a ClusterServiceVersion is paused, by itself or by the Subscription that has installed it.
pub fn is_version_paused(cluster: &Cluster, csv: &Value) -> bool {
    let (namespace, name) = (text(csv, "/metadata/namespace"), text(csv, "/metadata/name"));
    let mut subscriptions = cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
    is_paused(csv)
        || subscriptions.any(|found| is_paused(found) && text(found, "/status/installedCSV") == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subscription_pauses_its_namespace_and_its_version() {
        let subscription = |value: &str| {
            json!({
                "kind": "Subscription",
                "metadata": {"namespace": "n", "name": "s", "annotations": {names::PAUSED_ANNOTATION: value}},
                "status": {"installedCSV": "a.v1"},
            })
        };
        let csv = |name: &str| json!({"metadata": {"namespace": "n", "name": name}});
        let paused: Cluster = [subscription("true")].into_iter().collect();
        let other: Cluster = [subscription("false")].into_iter().collect();
        assert!(is_namespace_paused(&paused, "n") && !is_namespace_paused(&paused, "m"));
        assert!(!is_namespace_paused(&other, "n"));
        assert!(is_version_paused(&paused, &csv("a.v1")) && !is_version_paused(&paused, &csv("a.v2")));
        let own = json!({"metadata": {"namespace": "n", "name": "b", "annotations": {names::PAUSED_ANNOTATION: "true"}}});
        assert!(is_version_paused(&other, &own) && !is_version_paused(&other, &csv("a.v1")));
    }
}
