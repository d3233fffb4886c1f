//! Manifests as JSON values.

pub use olm_api::object::{list, text};
use serde_json::Value;

/// The items of a list, otherwise the object. Items without kind and version take them from the list.
pub fn flatten(mut value: Value) -> Vec<Value> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some(Value::Array(_)) = value.get("items") else {
        return vec![value];
    };
    let kind = text(&value, "kind").and_then(|kind| kind.strip_suffix("List").map(str::to_owned));
    let version = text(&value, "apiVersion");
    let Some(Value::Array(mut items)) = value.get_mut("items").map(Value::take) else {
        return vec![value];
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let inherited = [
            ("kind", kind.as_deref().filter(|kind| !kind.is_empty())),
            ("apiVersion", version.as_deref()),
        ];
        for (field, inherited) in inherited {
            if let Some(inherited) = inherited
                && !item.contains_key(field)
            {
                item.insert(field.to_owned(), inherited.into());
            }
        }
    }
    items
}

/// The object's `metadata.name`; empty if absent.
pub fn object_name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Objects have a namespace, and are put into the install namespace.
    Namespaced,
    /// Objects have no namespace, and are not changed.
    Cluster,
}

/// The scope of a supported kind; `None` for a kind that bundles may not contain.
///
/// A VerticalPodAutoscaler is namespaced. The reference implementation treats it as cluster-scoped and applies it to
/// the namespace in the manifest.
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
