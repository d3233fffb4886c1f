//! The body of a server-side apply.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_api::names;
use serde_json::{Map, Value, json};

use super::request::Write;
use crate::outline::Owner;
use crate::ownership::Guard;

/// A resourceVersion that no object has: an apply with it creates an object or fails with a conflict.
const NEVER: &str = "1";

/// The object to apply: with our label, our revision and us as controller. `status` and metadata that only the server
/// writes are removed; `stringData` of a Secret moves to `data`, as the server stores it.
///
/// The owner reference does not block the owner's deletion, because that needs a right on the owner that the account
/// has no other use for.
pub fn wanted(object: &Value, owner: &Owner) -> Value {
    let mut body = object.as_object().cloned().unwrap_or_default();
    body.shift_remove("status");
    if let Some(data) = stored_data(&body) {
        body.shift_remove("stringData");
        body.insert("data".to_owned(), data.into());
    }
    let given = body.get("metadata").and_then(Value::as_object);
    let text = |key: &str| {
        given
            .and_then(|m| m.get(key))
            .filter(|value| value.is_string())
            .cloned()
    };
    let map = |key: &str| {
        given
            .and_then(|m| m.get(key))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let mut labels = map("labels");
    labels.insert(
        names::label::OWNER_NAME.to_owned(),
        owner.owner_name.clone().into(),
    );
    labels.insert(
        names::label::MANAGED_BY.to_owned(),
        names::label::MANAGED_BY_OLM.into(),
    );
    let mut annotations = map("annotations");
    annotations.insert(
        names::annotation::REVISION.to_owned(),
        owner.revision.to_string().into(),
    );
    let mut metadata = Map::new();
    for key in ["name", "namespace"] {
        if let Some(value) = text(key) {
            metadata.insert(key.to_owned(), value);
        }
    }
    metadata.insert("labels".to_owned(), labels.into());
    metadata.insert("annotations".to_owned(), annotations.into());
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": names::API_VERSION,
            "kind": names::CLUSTER_OBJECT_SET,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
        }]),
    );
    body.insert("metadata".to_owned(), metadata.into());
    Value::Object(body)
}

/// The `data` that the server creates from `data` and `stringData` of a Secret; `None` without `stringData`, or if the
/// server must refuse it. The server never returns `stringData`, so drift in it would be invisible.
fn stored_data(object: &Map<String, Value>) -> Option<Map<String, Value>> {
    let is_secret = object.get("apiVersion").and_then(Value::as_str) == Some("v1")
        && object.get("kind").and_then(Value::as_str) == Some("Secret");
    let plain = object.get("stringData").filter(|_| is_secret)?.as_object()?;
    let mut data = match object.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(data) => data.as_object()?.clone(),
    };
    for (key, value) in plain {
        let text = match value {
            Value::Null => "",
            value => value.as_str()?,
        };
        data.insert(key.clone(), STANDARD.encode(text).into());
    }
    Some(data)
}

/// The object to apply, with the precondition of the write and the owners that no longer control it.
pub fn body(object: &Value, owner: &Owner, write: &Write) -> Value {
    let mut body = wanted(object, owner);
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        match &write.guard {
            Guard::Absent => {
                metadata.insert("resourceVersion".to_owned(), NEVER.into());
            }
            Guard::Seen {
                uid,
                resource_version,
            } => {
                metadata.insert("uid".to_owned(), uid.clone().into());
                metadata.insert("resourceVersion".to_owned(), resource_version.clone().into());
            }
        }
        if let Some(references) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            references.extend(write.demoted.iter().map(|other| {
                json!({
                    "apiVersion": other.api_version,
                    "kind": other.kind,
                    "name": other.name,
                    "uid": other.uid,
                    "controller": false,
                })
            }));
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::OwnerReference;

    #[test]
    fn an_applied_object_carries_our_marks_and_nothing_that_the_server_writes() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "creationTimestamp": null, "labels": {"x": "y"}, "annotations": null},
            "data": {"k": "v"}, "status": {},
        });
        let owner = Owner {
            name: "e-2".into(),
            uid: "u".into(),
            revision: 2,
            owner_name: "e".into(),
            extension: String::new(),
            migrated: false,
        };
        let reference = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "e-2", "uid": "u",
            "controller": true,
        });
        let mut expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "a", "namespace": "n",
                "labels": {
                    "x": "y", "olm.operatorframework.io/owner-name": "e",
                    "app.kubernetes.io/managed-by": "olm.operatorframework.io",
                },
                "annotations": {"olm.operatorframework.io/revision": "2"},
                "ownerReferences": [reference],
            },
            "data": {"k": "v"},
        });
        assert_eq!(wanted(&object, &owner), expected);

        let demoted = OwnerReference {
            name: "old".into(),
            uid: "o".into(),
            ..OwnerReference::default()
        };
        let guard = Guard::Seen {
            uid: "me".into(),
            resource_version: "7".into(),
        };
        expected["metadata"]["uid"] = "me".into();
        expected["metadata"]["resourceVersion"] = "7".into();
        expected["metadata"]["ownerReferences"] = json!([reference, {
            "apiVersion": "", "kind": "", "name": "old", "uid": "o", "controller": false,
        }]);
        assert_eq!(
            body(
                &object,
                &owner,
                &Write {
                    guard,
                    demoted: vec![demoted]
                }
            ),
            expected
        );
    }

    #[test]
    fn the_string_data_of_a_secret_is_applied_as_the_server_stores_it() {
        let secret = |more: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": "Secret"});
            for (key, value) in more.as_object().unwrap() {
                object[key] = value.clone();
            }
            let wanted = wanted(&object, &Owner::default());
            (wanted.get("data").cloned(), wanted.get("stringData").cloned())
        };
        for (given, data) in [
            (json!({"stringData": {"a": "x"}}), json!({"a": "eA=="})),
            (
                json!({"data": {"a": "eQ==", "b": "eQ=="}, "stringData": {"a": "x"}}),
                json!({"a": "eA==", "b": "eQ=="}),
            ),
            (json!({"data": null, "stringData": {}}), json!({})),
        ] {
            assert_eq!(secret(given), (Some(data), None));
        }
        // An invalid value is left for the server to refuse.
        let wrong = json!({"a": 1});
        assert_eq!(secret(json!({"stringData": wrong})), (None, Some(wrong)));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "stringData": {"a": "x"}});
        assert_eq!(wanted(&map, &Owner::default())["stringData"], json!({"a": "x"}));
    }

    #[test]
    fn an_object_that_must_not_exist_is_applied_with_a_version_that_none_has() {
        let write = Write {
            guard: Guard::Absent,
            demoted: Vec::new(),
        };
        assert_eq!(
            body(&json!({}), &Owner::default(), &write)["metadata"]["resourceVersion"],
            "1"
        );
    }
}
