//! Writes of OLM's own records with the controller's own rights: status, finalizers, the lifecycle of older revisions.

pub(crate) mod teardown_records;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use olm_api::{
    ClusterObjectSet,
    cluster_object_set::{ClusterObjectSetStatus, LifecycleState, ObservedPhase},
    names,
};
use olm_platform::write::{patched_by, unless};
use serde_json::json;

/// The finalizer with which Kubernetes removes owner references from objects instead of deleting them.
pub(crate) const ORPHAN: &str = "orphan";

/// The finalizer with which Kubernetes deletes the objects before the set.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

fn params() -> PatchParams {
    patched_by(names::field_manager::OPERATOR_CONTROLLER)
}

fn api(client: &Client) -> Api<ClusterObjectSet> {
    Api::all(client.clone())
}

/// Whether the set has the finalizer.
pub(crate) fn has_finalizer(set: &ClusterObjectSet, finalizer: &str) -> bool {
    set.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|present| present == finalizer)
}

/// Adds and removes finalizers; writes nothing if they are unchanged. `set` becomes the object on the server.
///
/// # Errors
/// The set has changed, or could not be written.
pub(crate) async fn finalizers(
    client: &Client,
    set: &mut ClusterObjectSet,
    add: &[&str],
    remove: &[&str],
) -> Result<(), kube::Error> {
    let before = set.metadata.finalizers.clone().unwrap_or_default();
    let mut wanted: Vec<String> = before
        .iter()
        .filter(|f| !remove.contains(&f.as_str()))
        .cloned()
        .collect();
    for finalizer in add {
        if !wanted.iter().any(|present| present == finalizer) {
            wanted.push((*finalizer).to_owned());
        }
    }
    if wanted == before {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": set.metadata.uid,
        "resourceVersion": set.metadata.resource_version,
        "finalizers": wanted,
    }});
    *set = api(client)
        .patch(set.name(), &params(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Writes the status of the set as it is here; writes nothing if it is unchanged. `set` becomes the object on the
/// server.
///
/// # Errors
/// The set has changed, or could not be written.
pub(crate) async fn status(
    client: &Client,
    set: &mut ClusterObjectSet,
    conditions: Vec<Condition>,
    observed_phases: Vec<ObservedPhase>,
) -> Result<(), kube::Error> {
    let wanted = ClusterObjectSetStatus {
        observed_generation: Some(set.generation()),
        conditions,
        observed_phases,
    };
    if set.status.clone().unwrap_or_default() == wanted {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version},
        "status": wanted,
    });
    *set = api(client)
        .patch_status(set.name(), &params(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Lets Kubernetes remove the owner references from the objects of a set that is being deleted. A finalizer can no
/// longer be added to it, but another deletion can ask for orphaning. `set` becomes the object on the server.
///
/// # Errors
/// The set is another one, or could not be written.
pub(crate) async fn orphan(client: &Client, set: &mut ClusterObjectSet) -> Result<(), kube::Error> {
    let params = DeleteParams::orphan().preconditions(Preconditions {
        uid: set.metadata.uid.clone(),
        resource_version: None,
    });
    if let Some(now) = api(client).delete(set.name(), &params).await?.left() {
        *set = now;
    }
    Ok(())
}

/// Archives an older revision as it was seen.
///
/// # Errors
/// It could not be written.
pub(crate) async fn archive(client: &Client, older: &ClusterObjectSet) -> Result<(), kube::Error> {
    let patch = json!({
        "metadata": {"uid": older.metadata.uid},
        "spec": {"lifecycleState": LifecycleState::Archived},
    });
    let archived = api(client)
        .patch(older.name(), &params(), &Patch::Merge(&patch))
        .await;
    // The set may be gone, or another object has its name: there is nothing to archive.
    unless(&[404], archived).map(drop)
}
