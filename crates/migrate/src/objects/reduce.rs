//! The object that OLM classic rendered, computed from the fields that its managers own. Pure.

use olm_api::names::{GROUP, annotation, field_manager, label};
use olm_classic::names;
use olm_rollout::object::inheritance::unite;
use serde_json::{Map, Value};

use crate::facts::{list, text};

/// The field managers of the Go implementation of OLM classic.
const OF_GO: [&str; 3] = ["olm", "catalog", "olm.install"];
/// The field managers of content of the programs of this project.
const OF_THIS_PROJECT: [&str; 2] = [field_manager::CLASSIC, field_manager::CLASSIC_CONVERSIONS];
/// Labels by which they find their objects.
const LABELS: [&str; 8] = [
    names::OWNER_LABEL,
    names::OWNER_NAMESPACE_LABEL,
    names::OWNER_KIND_LABEL,
    names::MANAGED_LABEL,
    names::SPEC_HASH_LABEL,
    names::PERMISSIONS_HASH_LABEL,
    names::WEBHOOK_NAME_LABEL,
    names::WEBHOOK_HASH_LABEL,
];
/// The prefix of the label of an operator's components.
const COMPONENT: &str = "operators.coreos.com/";
/// The prefix of the annotation of a CRD with the operators that installed it.
const ALONGSIDE: &str = "operatorframework.io/installed-alongside";

/// Whether a label or annotation belongs to OLM classic and not to the operator.
pub fn is_bookkeeping(key: &str) -> bool {
    LABELS.contains(&key) || key.starts_with(COMPONENT) || key.starts_with(ALONGSIDE)
}

/// Whether we set a label or annotation on the objects of an operator.
pub fn is_ours(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| domain == GROUP) || key == label::MANAGED_BY
}

/// Whether an entry of `managedFields` is one of OLM classic, apart from those of the status.
pub fn is_of_classic(entry: &Value) -> bool {
    let manager = text(entry, "/manager");
    (OF_GO.contains(&manager) || OF_THIS_PROJECT.contains(&manager)) && text(entry, "/subresource").is_empty()
}

/// Whether the Go implementation has written an object.
pub fn is_written_by_go(live: &Value) -> bool {
    let mut entries = list(live, "/metadata/managedFields").iter();
    entries.any(|entry| OF_GO.contains(&text(entry, "/manager")))
}

/// The object with only the fields that OLM classic wrote, without its own labels and annotations; `None` if it wrote
/// none.
pub fn reduced(live: &Value) -> Option<Value> {
    let mut fields = Map::new();
    for entry in list(live, "/metadata/managedFields")
        .iter()
        .filter(|entry| is_of_classic(entry))
    {
        unite(&mut fields, entry.get("fieldsV1").and_then(Value::as_object));
    }
    if fields.is_empty() {
        return None;
    }
    let metadata_fields = fields.remove("f:metadata");
    fields.remove("f:status");
    // A set without members means the whole value: here only metadata was written.
    let mut object = match extract(live, &Value::Object(fields.clone())) {
        Value::Object(object) if !fields.is_empty() => object,
        _ => Map::new(),
    };
    let mut metadata = Map::new();
    for key in ["name", "namespace"] {
        if let Some(value) = live.pointer(&format!("/metadata/{key}")) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    for key in ["labels", "annotations"] {
        let written = metadata_fields
            .as_ref()
            .and_then(|fields| fields.get(format!("f:{key}")));
        let (Some(written), Some(present)) = (written, live.pointer(&format!("/metadata/{key}"))) else {
            continue;
        };
        if let Value::Object(mut map) = extract(present, written) {
            map.retain(|key, _| !is_bookkeeping(key) && key != annotation::LAST_APPLIED);
            if !map.is_empty() {
                metadata.insert(key.to_owned(), Value::Object(map));
            }
        }
    }
    let mut whole = Map::new();
    for key in ["apiVersion", "kind"] {
        whole.insert(key.to_owned(), live.get(key)?.clone());
    }
    whole.insert("metadata".to_owned(), Value::Object(metadata));
    whole.append(&mut object);
    Some(Value::Object(whole))
}

/// The part of a value that a set of fields names. The depth of both is bounded by the parser that made them.
fn extract(value: &Value, fields: &Value) -> Value {
    let Some(fields) = fields
        .as_object()
        .filter(|fields| fields.keys().any(|key| key != "."))
    else {
        return value.clone();
    };
    match value {
        Value::Object(map) => {
            let part = map.iter().filter_map(|(key, below)| {
                Some((key.clone(), extract(below, fields.get(&format!("f:{key}"))?)))
            });
            Value::Object(part.collect())
        }
        Value::Array(items) => {
            let part = items.iter().filter_map(|item| of_list(item, fields));
            Value::Array(part.collect())
        }
        other => other.clone(),
    }
}

/// The part of an element of a list; `None` if the fields contain none of it.
fn of_list(item: &Value, fields: &Map<String, Value>) -> Option<Value> {
    for (field, below) in fields {
        if let Some(key) = field.strip_prefix("k:") {
            let key: Map<String, Value> = serde_json::from_str(key).ok()?;
            if !key.iter().all(|(name, value)| item.get(name) == Some(value)) {
                continue;
            }
            let mut part = extract(item, below);
            if let Some(part) = part.as_object_mut() {
                for (name, value) in key {
                    part.entry(name).or_insert(value);
                }
            }
            return Some(part);
        }
        if let Some(value) = field.strip_prefix("v:")
            && serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item)
        {
            return Some(item.clone());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_reduced_to_what_classic_wrote_without_its_bookkeeping() {
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "postgres", "namespace": "databases", "uid": "u", "resourceVersion": "7", "generation": 1,
                "labels": {"olm.owner": "postgres.v1", "olm.managed": "true", "app": "postgres", "mine": "x",
                    "operators.coreos.com/postgres.databases": ""},
                "annotations": {"deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [{"uid": "c"}],
                "managedFields": [
                    {"manager": "olm", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:labels": {".": {}, "f:olm.owner": {}, "f:olm.managed": {}, "f:app": {},
                            "f:operators.coreos.com/postgres.databases": {}}, "f:ownerReferences": {".": {}}},
                        "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                            ".": {}, "f:name": {}, "f:image": {},
                            "f:env": {".": {}, "k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}}},
                            "f:args": {},
                        }}}}},
                    }},
                    {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}},
                    {"manager": "olm", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:a": {}}}},
                ],
            },
            "spec": {"paused": false, "replicas": 3, "template": {"spec": {"containers": [
                {"name": "a", "image": "i", "tty": true, "args": ["1"],
                    "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                {"name": "sidecar"},
            ]}}},
            "status": {"a": 1},
        });
        assert_eq!(
            reduced(&live).unwrap(),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "postgres", "namespace": "databases", "labels": {"app": "postgres"}},
                "spec": {"template": {"spec": {"containers": [
                    {"name": "a", "image": "i", "args": ["1"], "env": [{"name": "X", "value": "1"}]},
                ]}}},
            })
        );
    }

    #[test]
    fn sets_are_reduced_by_value_and_foreign_objects_are_none() {
        let live = |manager: &str| {
            json!({
                "apiVersion": "v1", "kind": "X",
                "metadata": {"name": "x", "managedFields": [
                    {"manager": manager, "operation": "Update", "fieldsV1": {"f:set": {"v:\"a\"": {}}}},
                ]},
                "set": ["a", "b"],
            })
        };
        assert_eq!(reduced(&live("catalog")).unwrap()["set"], json!(["a"]));
        assert_eq!(reduced(&live("kubectl")), None);
        let mut account = live("catalog");
        account["metadata"]["labels"] = json!({"olm.managed": "true"});
        account["metadata"]["managedFields"][0]["fieldsV1"] =
            json!({"f:metadata": {"f:labels": {".": {}, "f:olm.managed": {}}}});
        assert_eq!(
            reduced(&account).unwrap(),
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}})
        );
    }
}
