//! Objects of kinds that need example data, and some that tests share.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

/// The kinds of accounts and rights.
pub const RIGHTS: [&str; 5] = [
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// The API of an object's kind: in its namespace, or of the cluster when it names none.
pub fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default()
    };
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// The name of an object.
fn name(object: &Value) -> Result<&str> {
    object["metadata"]["name"]
        .as_str()
        .context("the object has no name")
}

/// The object with this kind, namespace and name as it is in the cluster.
///
/// # Errors
/// When the API server cannot read it.
pub async fn find(client: &Client, object: &Value) -> Result<Option<Value>> {
    let found = api(client, object).get_opt(name(object)?).await?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

/// Deletes the object with this kind, namespace and name.
///
/// # Errors
/// When the API server does not delete it.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    api(client, object)
        .delete(name(object)?, &DeleteParams::default())
        .await?;
    Ok(())
}

/// Changes the object with this kind, namespace and name by a merge patch.
///
/// # Errors
/// When the API server does not change it.
pub async fn merge(client: &Client, object: &Value, patch: &Value) -> Result<()> {
    let params = PatchParams::default();
    api(client, object)
        .patch(name(object)?, &params, &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// A webhook for writes of one resource in one namespace, which never answers, with the failure policy Ignore.
pub fn silent_webhook(name: &str, namespace: &str, group: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [{
            "name": format!("{name}.olm.example"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "timeoutSeconds": 1,
            // No server listens at this address.
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{
                "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                "operations": ["CREATE", "UPDATE"],
            }],
        }],
    })
}
