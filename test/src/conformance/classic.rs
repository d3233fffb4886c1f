//! Rules of OLM classic.

use olm_classic::cluster::Cluster;
use serde_json::Value;

use super::{Outcome, expect};

pub mod catalog_source;
pub mod csv_phases;
pub mod csv_render;
pub mod csv_requirements;
pub mod install_plan;
pub mod operatorgroup;
pub mod package_manifest;
pub mod registry_grpc;
pub mod resolve;
pub mod subscription;

/// The objects of a case.
fn cluster(case: &Value) -> Cluster {
    list(case, "objects").into_iter().cloned().collect()
}

/// Compares with the expectation of a case. If several outcomes are recorded, one of them must match; otherwise the
/// first failure counts.
fn one_of<'a>(case: &'a Value, compare: impl FnMut(&'a Value) -> Outcome) -> Outcome {
    let whole = case.get("expect").unwrap_or(&Value::Null);
    let recorded = expect(case, "any_of").as_array();
    let recorded = recorded.map_or_else(|| std::slice::from_ref(whole), Vec::as_slice);
    let mut outcomes = recorded.iter().map(compare);
    let first = outcomes
        .next()
        .unwrap_or_else(|| Outcome::Fail("nothing is expected".to_owned()));
    if first == Outcome::Pass || outcomes.any(|outcome| outcome == Outcome::Pass) {
        return Outcome::Pass;
    }
    first
}

/// The items of a list of a case; empty if it is absent.
fn list<'a>(case: &'a Value, key: &str) -> Vec<&'a Value> {
    case.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect()
}

/// The texts of a list of a case.
fn texts(case: &Value, key: &str) -> Vec<String> {
    let texts = list(case, key).into_iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// A text of a case; empty if it is absent.
fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The object without insignificant values: empty ones, values that Go writes for unset fields, and times.
fn significant(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key, significant(value)))
                .filter(|(key, value)| !is_noise(key, value));
            Value::Object(fields.map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(significant).collect()),
        plain => plain.clone(),
    }
}

fn is_noise(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => {
            fields.is_empty()
                || (key == "cleanup" && fields.values().all(|value| *value == Value::Bool(false)))
        }
        Value::Array(items) => items.is_empty(),
        Value::String(text) => {
            (key == "version" && text == "0.0.0")
                || matches!(key, "lastUpdated" | "lastTransitionTime" | "lastUpdateTime")
        }
        _ => false,
    }
}

/// Compares two lists of objects in any order.
fn compare_objects(what: &str, expected: &[&Value], actual: &[Value]) -> Outcome {
    let sorted = |objects: Vec<Value>| {
        let mut texts: Vec<String> = objects
            .iter()
            .map(|object| sort_keys(object).to_string())
            .collect();
        texts.sort();
        texts
    };
    let expected = sorted(expected.iter().map(|object| significant(object)).collect());
    let actual = sorted(actual.iter().map(significant).collect());
    Outcome::compare(what, &expected, &actual)
}

/// The value with the keys of all objects sorted.
fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| (key.clone(), sort_keys(value)))
                .collect();
            fields.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sort_keys).collect()),
        plain => plain.clone(),
    }
}

/// Compares one value with the expectation under this key; absent and null are equal.
fn compare(case: &Value, key: &str, actual: &Value) -> Outcome {
    Outcome::compare(key, &sort_keys(expect(case, key)), &sort_keys(actual))
}
