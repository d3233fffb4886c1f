//! Additional objects of a bundle, and which kinds they may be of (requirement 3.07).

use serde_json::{Map, Value};

use super::{Options, RenderError};
use crate::bundle::Bundle;
use crate::parse::object_name;

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// They do, and are put into the install namespace.
    Namespaced,
    /// They do not, and are left as they are.
    Cluster,
}

/// The scope of a supported kind; `None` for a kind that a bundle may not bring.
///
/// A VerticalPodAutoscaler is namespaced. The reference takes it for cluster-scoped and applies it to whatever
/// namespace the author happened to write.
#[must_use]
pub fn scope(kind: &str) -> Option<Scope> {
    match kind {
        "ClusterServiceVersion"
        | "Service"
        | "ServiceAccount"
        | "Role"
        | "RoleBinding"
        | "PrometheusRule"
        | "ServiceMonitor"
        | "PodMonitor"
        | "Secret"
        | "ConfigMap"
        | "PodDisruptionBudget"
        | "NetworkPolicy"
        | "VerticalPodAutoscaler" => Some(Scope::Namespaced),
        "CustomResourceDefinition"
        | "ClusterRole"
        | "ClusterRoleBinding"
        | "PriorityClass"
        | "ConsoleYAMLSample"
        | "ConsoleQuickStart"
        | "ConsoleCLIDownload"
        | "ConsoleLink"
        | "ConsolePlugin" => Some(Scope::Cluster),
        _ => None,
    }
}

/// The additional objects, namespaced ones in the install namespace whatever namespace they name.
///
/// # Errors
/// When an object is of a kind that is not supported.
pub fn additional(bundle: &Bundle, options: &Options) -> Result<Vec<Value>, RenderError> {
    bundle
        .others
        .iter()
        .map(|object| {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let Some(scope) = scope(kind) else {
                return Err(RenderError::UnsupportedObject {
                    name: object_name(object).to_owned(),
                    kind: kind.to_owned(),
                });
            };
            let mut object = without_noise(object.clone());
            if scope == Scope::Namespaced
                && let Some(metadata) = child(&mut object, "metadata")
            {
                metadata.insert("namespace".to_owned(), options.install_namespace.clone().into());
            }
            Ok(object)
        })
        .collect()
}

/// Drops the null creation time that generated manifests carry.
pub(super) fn without_noise(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("creationTimestamp") == Some(&Value::Null)
    {
        metadata.shift_remove("creationTimestamp");
    }
    object
}

/// The mapping in a field, made where there is none; `None` when `value` is no mapping.
pub(super) fn child<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = value.as_object_mut()?.entry(field).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}
