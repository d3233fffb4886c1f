//! Defaults that the types of Kubernetes and OLM add to objects of a bundle.

use serde_json::{Map, Value};

use crate::cluster::object_at;
use crate::names;

/// The apiVersion of a kind that OLM knows itself.
pub(super) fn usual_version(kind: &str) -> &'static str {
    match kind {
        "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => names::RBAC_API_VERSION,
        "ConfigMap" | names::SECRET_KIND | "Service" | "ServiceAccount" => "v1",
        names::CSV_KIND => names::CSV_API_VERSION,
        _ => "",
    }
}

/// The ClusterServiceVersion in its one version, with the fields of its type alone, those that are always written among
/// them. Bundles exist whose ClusterServiceVersion names another version.
pub(super) fn as_written(mut csv: Value) -> Value {
    const APIS: [[&str; 2]; 4] = [
        ["customresourcedefinitions", "owned"],
        ["customresourcedefinitions", "required"],
        ["apiservicedefinitions", "owned"],
        ["apiservicedefinitions", "required"],
    ];
    if let Some(fields) = csv.as_object_mut() {
        fields.retain(|key, _| ["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()));
        fields.insert("apiVersion".to_owned(), names::CSV_API_VERSION.into());
    }
    for (path, key) in [
        (&["spec"][..], "displayName"),
        (&["spec", "install"][..], "strategy"),
    ] {
        if let Some(object) = object_at(&mut csv, path) {
            fill(object, &[key]);
        }
    }
    for [definitions, key] in APIS {
        for api in objects_mut(&mut csv, &format!("/spec/{definitions}/{key}")) {
            fill(api, &["name", "version", "kind"]);
            let resources = api.get_mut("resources").and_then(Value::as_array_mut);
            for resource in resources.into_iter().flatten().filter_map(Value::as_object_mut) {
                fill(resource, &["name", "kind", "version"]);
            }
        }
    }
    csv
}

/// Adds fields as empty text where they are missing.
fn fill(object: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        object.entry(*key).or_insert_with(|| "".into());
    }
}

/// The objects in a list.
fn objects_mut<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    let list = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_always_written_are_empty_where_a_bundle_has_none() {
        let owned = json!([{"name": "a", "version": "v1", "kind": "A", "resources": [{"kind": "Pod"}]}]);
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1", "other": 1,
            "spec": {"customresourcedefinitions": {"owned": owned}},
        });
        let expected = json!({"apiVersion": names::CSV_API_VERSION, "spec": {
            "customresourcedefinitions": {"owned": [
                {"name": "a", "version": "v1", "kind": "A", "resources": [{"kind": "Pod", "name": "", "version": ""}]},
            ]},
            "displayName": "", "install": {"strategy": ""},
        }});
        assert_eq!(as_written(csv), expected);
    }

    #[test]
    fn kinds_of_kubernetes_need_no_api_version() {
        assert_eq!(usual_version("ClusterRole"), "rbac.authorization.k8s.io/v1");
        assert_eq!(usual_version("Secret"), "v1");
        assert_eq!(usual_version("ServiceMonitor"), "");
    }
}
