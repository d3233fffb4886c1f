//! The patch that releases an object.

use olm_api::names;
use olm_api::object::list;
use serde_json::{Map, Value, json};

use crate::ownership::Ownership;

/// A merge patch that removes an owner reference from a live object and, if that owner controlled it, our marks too. It
/// contains the resourceVersion that it requires.
pub fn released(live: &Value, owner_uid: &str) -> Value {
    let ownership = Ownership::of(live, owner_uid);
    let references = list(live, "/metadata/ownerReferences");
    let others: Vec<&Value> = references
        .iter()
        .filter(|entry| entry.get("uid").and_then(Value::as_str) != Some(owner_uid))
        .collect();
    let mut metadata = Map::new();
    metadata.insert(
        "resourceVersion".to_owned(),
        ownership.resource_version.clone().into(),
    );
    metadata.insert("ownerReferences".to_owned(), json!(others));
    if ownership.is_controlled_by(owner_uid) {
        let without = |keys: &[&str]| -> Value {
            keys.iter()
                .map(|key| ((*key).to_owned(), Value::Null))
                .collect::<Map<_, _>>()
                .into()
        };
        let labels = [
            names::label::OWNER_KIND,
            names::label::OWNER_NAME,
            names::label::MANAGED_BY,
        ];
        metadata.insert("labels".to_owned(), without(&labels));
        metadata.insert("annotations".to_owned(), without(&[names::annotation::REVISION]));
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releasing_keeps_other_owners_and_removes_our_marks_from_our_objects_only() {
        let live = json!({"metadata": {"resourceVersion": "3", "ownerReferences": [
            {"uid": "us", "controller": true}, {"uid": "other"},
        ]}});
        let patch = released(&live, "us");
        assert_eq!(patch["metadata"]["ownerReferences"], json!([{"uid": "other"}]));
        assert_eq!(patch["metadata"]["resourceVersion"], "3");
        assert!(
            patch["metadata"]["annotations"]
                .as_object()
                .unwrap()
                .values()
                .all(Value::is_null)
        );
        let patch = released(&live, "other");
        assert_eq!(patch["metadata"].get("labels"), None);
    }
}
