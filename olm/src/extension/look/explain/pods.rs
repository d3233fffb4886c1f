//! The causes of failing Pods of an extension, as far as the user may read them.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use olm_api::names::{annotation, label};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_rollout::cause::{Pods, WorkloadState, selector, sentence};
use serde_json::Value;

/// The number of checked Pods of a workload.
const MAX_PODS: u32 = 50;

/// A sentence for each workload in the install namespace that belongs to the extension and whose Pods are not all
/// available.
pub(super) async fn causes(
    client: &Client,
    extension: &ClusterExtension,
    sets: &[ClusterObjectSet],
) -> anyhow::Result<Vec<String>> {
    let namespace = extension.spec.namespace.as_str();
    let owners: BTreeSet<&str> = sets.iter().map(ClusterObjectSet::name).collect();
    let mut found = Vec::new();
    for workload in workloads(client, namespace).await? {
        if !belongs(&workload, extension, &owners) {
            continue;
        }
        let pods = match selector(&workload) {
            Some(selector) => {
                let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
                let of = ListParams::default().labels(&selector).limit(MAX_PODS);
                let listed = api.list(&of).await.context("cannot list the Pods")?;
                values(listed.items)?
            }
            None => Vec::new(),
        };
        if is_available(&workload) {
            continue;
        }
        found.push(sentence(&WorkloadState {
            workload: &workload,
            pods: Pods::Known(&pods),
            events: &[],
        }));
    }
    Ok(found)
}

async fn workloads(client: &Client, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let params = ListParams::default();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let mut found = kinds("Deployment", deployments.list(&params).await?.items)?;
    found.extend(kinds("StatefulSet", sets.list(&params).await?.items)?);
    found.extend(kinds("DaemonSet", daemons.list(&params).await?.items)?);
    Ok(found)
}

fn values<K: serde::Serialize>(items: Vec<K>) -> anyhow::Result<Vec<Value>> {
    items
        .into_iter()
        .map(|item| Ok(serde_json::to_value(item)?))
        .collect()
}

/// Items of a list lack their kind.
fn kinds<K: serde::Serialize>(kind: &str, items: Vec<K>) -> anyhow::Result<Vec<Value>> {
    let mut found = values(items)?;
    for object in found.iter_mut().filter_map(Value::as_object_mut) {
        object.insert("kind".to_owned(), kind.into());
    }
    Ok(found)
}

/// Whether an object was applied for the extension.
fn belongs(object: &Value, extension: &ClusterExtension, owners: &BTreeSet<&str>) -> bool {
    let name = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(label::OWNER_NAME))
        .and_then(Value::as_str);
    let package = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(annotation::PACKAGE_NAME))
        .is_some();
    let references = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let is_owned = references.into_iter().flatten().any(|reference| {
        let owner = reference.get("name").and_then(Value::as_str);
        owner.is_some_and(|owner| owners.contains(owner))
    });
    is_owned || (name == Some(extension.name()) && package)
}

/// Whether as many Pods are available as there should be, and none is left of an earlier version.
fn is_available(workload: &Value) -> bool {
    let number = |pointer: &str| workload.pointer(pointer).and_then(Value::as_u64);
    let is_daemon = workload.get("kind").and_then(Value::as_str) == Some("DaemonSet");
    let [there, available, updated] = if is_daemon {
        [
            "/status/currentNumberScheduled",
            "/status/numberAvailable",
            "/status/updatedNumberScheduled",
        ]
    } else {
        [
            "/status/replicas",
            "/status/availableReplicas",
            "/status/updatedReplicas",
        ]
    }
    .map(|pointer| number(pointer).unwrap_or_default());
    let wanted = if is_daemon {
        number("/status/desiredNumberScheduled").unwrap_or_default()
    } else {
        number("/spec/replicas").unwrap_or(1)
    };
    available >= wanted && updated >= wanted && there <= updated
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_belongs_to_the_extension_that_applied_it() {
        let greeter = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        let owners = BTreeSet::from(["greeter-1"]);
        let owned = json!({"metadata": {"ownerReferences": [{"name": "greeter-1"}]}});
        let other = json!({"metadata": {"ownerReferences": [{"name": "memcached-1"}]}});
        let labelled = json!({"metadata": {
            "labels": {label::OWNER_NAME: "greeter"}, "annotations": {annotation::PACKAGE_NAME: "greeter"},
        }});
        for (object, expected) in [
            (owned, true),
            (other, false),
            (labelled, true),
            (json!({}), false),
        ] {
            assert_eq!(belongs(&object, &greeter, &owners), expected, "{object}");
        }
    }

    #[test]
    fn a_workload_is_available_with_all_its_new_pods() {
        let deployment = |there: u64, available: u64, updated: u64| {
            json!({
                "kind": "Deployment", "spec": {"replicas": 2},
                "status": {"replicas": there, "availableReplicas": available, "updatedReplicas": updated},
            })
        };
        assert!(is_available(&deployment(2, 2, 2)));
        assert!(!is_available(&deployment(2, 1, 2)));
        assert!(!is_available(&deployment(3, 2, 1)));
        assert!(!is_available(&deployment(3, 2, 2)));
        assert!(is_available(&json!({"kind": "DaemonSet", "status": {}})));
    }
}
