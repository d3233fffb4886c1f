//! The comparison of a live object with the applied one. It uses only the object itself.
//!
//! Every field of the wanted object must have the wanted value and be listed as ours in `managedFields`. A manager that
//! writes one of our fields becomes its owner, so both together show every drift. An object that is owned as a whole
//! may have more fields than wanted: as long as it is ours, the server filled them in. If the server stores a value in
//! another form (`1000m` as `1`), the difference remains. Its fingerprint is recorded once the server has returned it
//! for an apply, so that it does not cause another apply.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use olm_api::names::field_manager;
use olm_api::object::text;
use serde_json::{Map, Value};

use crate::ownership::fields_of;

/// The most pairs of list elements that are compared. Beyond that, lists count as different.
const MAX_PAIRS: usize = 250_000;
/// The most paths that are logged.
const MAX_PATHS: usize = 8;

/// The differences between a live object and the wanted one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// A hash of the differences; 0 if there are none.
    pub fingerprint: u64,
    /// The paths of the first differences.
    pub paths: Vec<String>,
}

impl Differences {
    /// Adds a difference.
    pub fn add(&mut self, path: &str) {
        let mut hasher = DefaultHasher::new();
        (self.fingerprint, path).hash(&mut hasher);
        self.fingerprint = hasher.finish().max(1);
        self.paths.push(path.to_owned());
    }
}

/// Compares a live object with the wanted one.
pub fn differences(wanted: &Value, live: &Value) -> Differences {
    differences_by(field_manager::OBJECTS, wanted, live)
}

/// Compares a live object with the object that another field manager applies.
pub fn differences_by(manager: &str, wanted: &Value, live: &Value) -> Differences {
    let api_version = text(wanted, "/apiVersion");
    let fields = fields_of(live, api_version, manager);
    let mut found = Comparison::default();
    let empty = Map::new();
    for (key, value) in wanted.as_object().unwrap_or(&empty) {
        match key.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for (key, value) in value.as_object().unwrap_or(&empty) {
                    if matches!(key.as_str(), "labels" | "annotations" | "ownerReferences") {
                        let live = live.get("metadata").and_then(|m| m.get(key));
                        let unblocking = live.filter(|_| key == "ownerReferences").map(without_blocking);
                        let live = unblocking.as_ref().or(live);
                        let fields = fields
                            .and_then(|f| f.get("f:metadata"))
                            .and_then(|f| f.get(field(key)));
                        compare(value, live, fields, &format!("metadata.{key}"), &mut found);
                    }
                }
            }
            _ => compare(
                value,
                live.get(key),
                fields.and_then(|f| f.get(field(key))),
                key,
                &mut found,
            ),
        }
    }
    found.finish()
}

/// Owner references without `blockOwnerDeletion`, if only the reference implementation sets it. We do not depend on it.
fn without_blocking(references: &Value) -> Value {
    let mut references = references.clone();
    for reference in references.as_array_mut().into_iter().flatten() {
        if let Some(reference) = reference.as_object_mut() {
            reference.remove("blockOwnerDeletion");
        }
    }
    references
}

fn field(key: &str) -> String {
    format!("f:{key}")
}

#[derive(Default)]
struct Comparison {
    hasher: DefaultHasher,
    paths: Vec<String>,
    any: bool,
}

impl Comparison {
    fn push(&mut self, path: &str, what: &str, live: Option<&Value>) {
        self.any = true;
        path.hash(&mut self.hasher);
        what.hash(&mut self.hasher);
        live.map(ToString::to_string).hash(&mut self.hasher);
        if self.paths.len() < MAX_PATHS {
            self.paths.push(path.to_owned());
        }
    }

    fn finish(self) -> Differences {
        let fingerprint = if self.any { self.hasher.finish().max(1) } else { 0 };
        Differences {
            fingerprint,
            paths: self.paths,
        }
    }
}

// The depth of both values is bounded by the parser that made them.
fn compare(wanted: &Value, live: Option<&Value>, fields: Option<&Value>, path: &str, found: &mut Comparison) {
    let Some(fields) = fields.and_then(Value::as_object) else {
        found.push(path, "not ours", live);
        return;
    };
    let atomic = fields.keys().all(|key| key == ".");
    match wanted {
        Value::Object(map) if map.is_empty() && live.is_none_or(|l| l.is_null() || l.is_object()) => {}
        Value::Object(map) if !atomic => {
            for (key, value) in map {
                let live = live.and_then(|live| live.get(key));
                compare(
                    value,
                    live,
                    fields.get(&field(key)),
                    &format!("{path}.{key}"),
                    found,
                );
            }
        }
        Value::Array(items) if items.is_empty() && live.is_none_or(|l| l.is_null() || l.is_array()) => {}
        Value::Array(items) if !atomic => compare_list(items, live, fields, path, found),
        Value::Null if live.is_none_or(Value::is_null) => {}
        Value::Object(_) if fields.is_empty() && live.is_some_and(|live| holds(live, wanted)) => {}
        _ if live.is_some_and(|live| equal(wanted, live)) => {}
        _ => found.push(path, "differs", live),
    }
}

/// Whether a value is the wanted one, apart from more fields of the objects in it.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key).is_some_and(|live| holds(live, value))),
        (live, wanted) => equal(live, wanted),
    }
}

/// A list with single elements that we own, by their keys or values.
fn compare_list(
    items: &[Value],
    live: Option<&Value>,
    fields: &Map<String, Value>,
    path: &str,
    found: &mut Comparison,
) {
    let present = live.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let keys: Vec<(Value, &Value)> = fields
        .iter()
        .filter_map(|(key, below)| Some((serde_json::from_str(key.strip_prefix("k:")?).ok()?, below)))
        .collect();
    if items.len().saturating_mul(keys.len().max(present.len())) > MAX_PAIRS {
        found.push(path, "too many", None);
        return;
    }
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if keys.is_empty() {
            let ours = fields.contains_key(&format!("v:{item}"));
            if !ours || !present.iter().any(|element| equal(item, element)) {
                found.push(&path, "not in the list", None);
            }
            continue;
        }
        // The key with the most equal fields: the server fills in defaults of keys, such as the protocol of a port.
        let best = keys
            .iter()
            .filter_map(|(key, below)| Some((shared(key, item)?, key, *below)))
            .max_by_key(|(count, ..)| *count);
        let Some((_, key, below)) = best else {
            found.push(&path, "not ours", None);
            continue;
        };
        let element = present.iter().find(|element| {
            key.as_object()
                .is_some_and(|key| key.iter().all(|(k, v)| element.get(k) == Some(v)))
        });
        compare(item, element, Some(below), &path, found);
    }
}

/// The number of fields of the key that the element has with the same value; `None` if one has another value.
fn shared(key: &Value, item: &Value) -> Option<usize> {
    let mut count = 0;
    for (name, value) in key.as_object()? {
        match item.get(name) {
            Some(own) if own == value => count += 1,
            Some(_) => return None,
            None => {}
        }
    }
    Some(count)
}

/// Whether two values are equal. Numbers are compared by value, maps without their order.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| equal(v, w)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(spec: &Value, fields: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "x", "managedFields": [
                {"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:spec": {"f:z": {}}}},
                {"manager": "olm.operatorframework.io", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:spec": fields}},
            ]},
            "spec": spec,
        })
    }

    #[track_caller]
    fn check(wanted: &Value, live_spec: &Value, fields: &Value, expected: &[&str]) {
        let wanted = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": wanted});
        let found = differences(&wanted, &live(live_spec, fields));
        assert_eq!(found.paths, expected);
        assert_eq!(found.fingerprint == 0, expected.is_empty());
    }

    #[test]
    fn fields_that_are_ours_and_equal_do_not_differ_whatever_others_add() {
        check(
            &json!({"a": 1, "m": {"k": "v"}, "e": {}, "l": [], "n": null}),
            &json!({"a": 1.0, "m": {"k": "v", "other": 1}, "z": true}),
            &json!({"f:a": {}, "f:m": {"f:k": {}}, "f:e": {}, "f:l": {}, "f:n": {}}),
            &[],
        );
    }

    #[test]
    fn another_value_and_a_lost_field_are_found() {
        check(
            &json!({"a": 1, "b": 2}),
            &json!({"a": 2, "b": 2}),
            &json!({"f:a": {}}),
            &["spec.a", "spec.b"],
        );
        check(
            &json!({"m": {"k": "v"}}),
            &json!({"m": {}}),
            &json!({"f:m": {"f:k": {}}}),
            &["spec.m.k"],
        );
    }

    #[test]
    fn elements_of_keyed_lists_are_found_by_keys_with_defaults() {
        let wanted = json!({"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]});
        let fields = json!({"f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
            "k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}},
        }});
        let present = json!({"ports": [
            {"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "targetPort": 80}, {"port": 1, "protocol": "TCP"},
        ]});
        check(&wanted, &present, &fields, &[]);
        let gone = json!({"ports": [{"port": 53, "protocol": "UDP"}]});
        check(&wanted, &gone, &fields, &["spec.ports[0].port"]);
    }

    #[test]
    fn sets_and_atomic_lists_are_compared_by_value() {
        let fields = json!({"f:set": {"v:\"a\"": {}}, "f:atomic": {}});
        check(
            &json!({"set": ["a"], "atomic": ["x"]}),
            &json!({"set": ["b", "a"], "atomic": ["x"]}),
            &fields,
            &[],
        );
        check(
            &json!({"set": ["a"], "atomic": ["x"]}),
            &json!({"set": ["b"], "atomic": ["x", "y"]}),
            &fields,
            &["spec.set[0]", "spec.atomic"],
        );
    }

    #[test]
    fn the_server_may_fill_in_fields_of_an_object_that_is_ours_as_a_whole() {
        // For example, the reference to a field in the environment of a container.
        let wanted = json!({"ref": {"path": "metadata.name"}});
        let check = |live: Value, fields: Value, expected: &[&str]| check(&wanted, &live, &fields, expected);
        let filled = json!({"ref": {"apiVersion": "v1", "path": "metadata.name"}});
        check(filled.clone(), json!({"f:ref": {}}), &[]);
        check(filled, json!({"f:other": {}}), &["spec.ref"]);
        check(
            json!({"ref": {"apiVersion": "v1"}}),
            json!({"f:ref": {}}),
            &["spec.ref"],
        );
        check(
            json!({"ref": {"path": "other"}}),
            json!({"f:ref": {}}),
            &["spec.ref"],
        );
    }

    #[test]
    fn an_owner_whose_deletion_waits_for_the_object_is_the_same_owner() {
        let wanted =
            json!({"apiVersion": "v1", "metadata": {"ownerReferences": [{"uid": "u", "controller": true}]}});
        let mut live = live(&json!({}), &json!({}));
        live["metadata"]["ownerReferences"] =
            json!([{"uid": "u", "controller": true, "blockOwnerDeletion": true}, {"uid": "o"}]);
        live["metadata"]["managedFields"][1]["fieldsV1"] =
            json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}});
        assert_eq!(differences(&wanted, &live).paths, [""; 0]);
        live["metadata"]["ownerReferences"][0]["controller"] = false.into();
        assert_eq!(differences(&wanted, &live).paths, ["metadata.ownerReferences[0]"]);
    }

    #[test]
    fn an_object_that_we_never_applied_differs() {
        let wanted =
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}});
        let live =
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}});
        assert_eq!(differences(&wanted, &live).paths, ["metadata.labels", "data"]);
    }

    #[test]
    fn the_fingerprint_tells_one_value_from_another() {
        let wanted = json!({"apiVersion": "v1", "spec": {"cpu": "1000m"}});
        let of = |value: &str| {
            differences(&wanted, &live(&json!({"cpu": value}), &json!({"f:cpu": {}}))).fingerprint
        };
        assert_eq!(of("1"), of("1"));
        assert_ne!(of("1"), of("2"));
        assert_eq!(of("1000m"), 0);
    }
}
