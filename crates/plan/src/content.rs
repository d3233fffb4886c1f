//! The part of an object that counts when two revisions are compared: the fields from the bundle without those that a
//! cluster adds.

use std::collections::BTreeSet;

use olm_api::names::annotation;
use olm_rollout::canonical;
use olm_rollout::object::ObjectId;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The placeholder for the value of a Secret.
const HIDDEN: &str = "(hidden)";
/// Fields of a Secret with confidential values.
const SECRET_FIELDS: [&str; 2] = ["data", "stringData"];
/// The fields of metadata that a bundle sets.
const OWN_METADATA: [&str; 4] = ["annotations", "labels", "name", "namespace"];

/// An object by its identity, without the version of its kind.
pub(crate) fn identified(object: &Value) -> (ObjectId, &Value) {
    let mut id = ObjectId::of(object);
    id.version.clear();
    (id, object)
}

/// Annotations that kubectl adds.
const OF_TOOLS: [&str; 1] = [annotation::LAST_APPLIED];
/// The same, and the marks of a revision.
const MARKS: [&str; 3] = [
    annotation::LAST_APPLIED,
    annotation::BUNDLE_VERSION,
    annotation::PACKAGE_NAME,
];

/// An object without fields that the API server adds, and without these annotations.
fn stripped(object: &Value, annotations: &[&str]) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, value| OWN_METADATA.contains(&key.as_str()) && !value.is_null());
        if let Some(present) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            for key in annotations {
                present.shift_remove(*key);
            }
        }
    }
    object
}

/// The canonical form of an object from a bundle, without the marks of its revision.
pub(crate) fn unmarked_bytes(object: &Value) -> Vec<u8> {
    canonical::to_vec(&stripped(object, &MARKS))
}

/// An object from a bundle without the marks of its revision, with numbers as the API server stores them.
pub(crate) fn unmarked(object: &Value) -> Value {
    let object = stripped(object, &MARKS);
    // A value that is nested too deeply for the parser is compared as it is.
    serde_json::from_slice(&canonical::to_vec(&object)).unwrap_or(object)
}

/// Whether the object is a Secret.
pub(crate) fn is_secret(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    text("kind") == Some("Secret") && text("apiVersion") == Some("v1")
}

/// Whether a field of a Secret holds confidential values.
pub(crate) fn is_hidden(field: &str) -> bool {
    SECRET_FIELDS.contains(&field)
}

/// The placeholder for a hidden value.
pub(crate) fn hidden() -> Value {
    Value::from(HIDDEN)
}

/// The object with the values of a Secret hidden.
pub(crate) fn shown(mut object: Value) -> Value {
    if is_secret(&object) {
        for field in SECRET_FIELDS {
            match object.get_mut(field) {
                Some(Value::Object(entries)) => entries.values_mut().for_each(|value| *value = hidden()),
                Some(other) => *other = hidden(),
                None => {}
            }
        }
    }
    object
}

/// The digest of objects, whatever their order: `sha256:` and hexadecimal digits.
pub(crate) fn digest<'v>(objects: impl IntoIterator<Item = &'v Value>) -> String {
    let sorted: BTreeSet<_> = objects
        .into_iter()
        .map(|object| {
            (
                identified(object).0,
                canonical::to_vec(&stripped(object, &OF_TOOLS)),
            )
        })
        .collect();
    let mut hash = Sha256::new();
    for (_, bytes) in &sorted {
        hash.update(bytes);
        hash.update(b"\n");
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// The digest of an object in its canonical form: `sha256:` and hexadecimal digits.
pub fn digest_of(value: &Map<String, Value>) -> String {
    let bytes = canonical::to_vec(&Value::Object(value.clone()));
    format!("sha256:{}", hex::encode(Sha256::digest(&bytes)))
}
