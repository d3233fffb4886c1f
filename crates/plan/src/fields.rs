//! The differences between two versions of an object, field by field.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::content::{hidden, is_hidden, is_secret};

/// The deepest field that is compared alone. Deeper values are compared as a whole.
const MAX_DEPTH: usize = 100;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A field of an object.
    Key(String),
    /// The entry of a list that has this name.
    Named(String),
    /// The entry at this place of a list, from 0.
    Index(usize),
}

/// The path to a field, `spec.containers[name=manager].image`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(pub Vec<Step>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if key.is_empty() || key.contains(['.', '[', ']', '"', '=', '/']) => {
                    write!(f, "[{key:?}]")?;
                }
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Named(name) => write!(f, "[name={name}]")?,
                Step::Index(place) => write!(f, "[{place}]")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldChange {
    /// The path.
    pub path: Path,
    /// The old value; none if the field is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; none if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The differences between two versions of an object. Lists whose entries have names are compared by name, if that
/// preserves their order. For Secrets the result contains that values differ, not the values.
pub fn differences(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut differ = Differ {
        path: Vec::new(),
        is_secret: is_secret(before) || is_secret(after),
        found: Vec::new(),
    };
    differ.values(before, after);
    differ.found
}

struct Differ {
    path: Vec<Step>,
    is_secret: bool,
    found: Vec<FieldChange>,
}

impl Differ {
    fn at(&mut self, step: Step, work: impl FnOnce(&mut Self)) {
        self.path.push(step);
        work(self);
        self.path.pop();
    }

    fn record(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let is_hidden =
            self.is_secret && matches!(self.path.first(), Some(Step::Key(field)) if is_hidden(field));
        let shown = |value: Option<&Value>| {
            value.map(|value| match value {
                // The keys are not confidential.
                Value::Object(entries) if is_hidden => {
                    entries.keys().map(|key| (key.clone(), hidden())).collect()
                }
                _ if is_hidden => hidden(),
                value => value.clone(),
            })
        };
        let (before, after) = (shown(before), shown(after));
        let path = Path(self.path.clone());
        self.found.push(FieldChange { path, before, after });
    }

    fn values(&mut self, before: &Value, after: &Value) {
        if before == after {
            return;
        }
        match (before, after) {
            _ if self.path.len() >= MAX_DEPTH => self.record(Some(before), Some(after)),
            (Value::Object(old), Value::Object(new)) => self.objects(old, new),
            (Value::Array(old), Value::Array(new)) => self.lists(old, new, before, after),
            _ => self.record(Some(before), Some(after)),
        }
    }

    fn objects(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        for (key, before) in old {
            self.at(Step::Key(key.clone()), |differ| match new.get(key) {
                Some(after) => differ.values(before, after),
                None => differ.record(Some(before), None),
            });
        }
        for (key, after) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
            self.at(Step::Key(key.clone()), |differ| differ.record(None, Some(after)));
        }
    }

    fn lists(&mut self, old: &[Value], new: &[Value], before: &Value, after: &Value) {
        if let (Some(old_names), Some(new_names)) = (names(old), names(new)) {
            let wanted: HashMap<&str, &Value> = new_names.iter().copied().zip(new).collect();
            let known: HashSet<&str> = old_names.iter().copied().collect();
            let kept = old_names.iter().filter(|name| wanted.contains_key(**name));
            let added = new_names.iter().filter(|name| !known.contains(**name));
            if kept.chain(added).eq(&new_names) {
                for (name, before) in old_names.iter().zip(old) {
                    self.at(Step::Named((*name).to_owned()), |differ| match wanted.get(name) {
                        Some(after) => differ.values(before, after),
                        None => differ.record(Some(before), None),
                    });
                }
                let added = new_names.iter().zip(new);
                for (name, after) in added.filter(|(name, _)| !known.contains(**name)) {
                    self.at(Step::Named((*name).to_owned()), |differ| {
                        differ.record(None, Some(after));
                    });
                }
                return;
            }
        }
        if old.len() != new.len() {
            return self.record(Some(before), Some(after));
        }
        for (index, (before, after)) in old.iter().zip(new).enumerate() {
            self.at(Step::Index(index), |differ| differ.values(before, after));
        }
    }
}

/// The names of all entries of a list; none if an entry has no name, or two have the same.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Option<Vec<&str>> = list.iter().map(|entry| entry.get("name")?.as_str()).collect();
    let names = names?;
    let different: HashSet<&str> = names.iter().copied().collect();
    (different.len() == names.len()).then_some(names)
}

/// The object after these changes: the reverse of [`differences`]. A change that does not fit the object is ignored.
pub fn apply(mut object: Value, changes: &[FieldChange]) -> Value {
    for change in changes {
        if let Some((last, way)) = change.path.0.split_last() {
            if let Some(parent) = way.iter().try_fold(&mut object, |value, step| child(value, step)) {
                set_field(parent, last, change.after.as_ref());
            }
        } else if let Some(after) = &change.after {
            object = after.clone();
        }
    }
    object
}

fn child<'v>(value: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
        Step::Named(name) => value
            .as_array_mut()?
            .iter_mut()
            .find(|entry| is_named(entry, name)),
    }
}

fn is_named(entry: &Value, name: &str) -> bool {
    entry.get("name").and_then(Value::as_str) == Some(name)
}

fn set_field(parent: &mut Value, step: &Step, after: Option<&Value>) {
    match (step, parent) {
        (Step::Key(key), Value::Object(fields)) => match after {
            Some(after) => drop(fields.insert(key.clone(), after.clone())),
            None => drop(fields.shift_remove(key)),
        },
        (Step::Index(index), Value::Array(list)) => {
            if let (Some(entry), Some(after)) = (list.get_mut(*index), after) {
                *entry = after.clone();
            }
        }
        (Step::Named(name), Value::Array(list)) => {
            let found = list.iter().position(|entry| is_named(entry, name));
            match (found, after) {
                (Some(place), None) => drop(list.remove(place)),
                (Some(place), Some(after)) => {
                    if let Some(entry) = list.get_mut(place) {
                        *entry = after.clone();
                    }
                }
                (None, Some(after)) => list.push(after.clone()),
                (None, None) => {}
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: &Value, after: &Value, expected: &[&str]) {
        let found = differences(before, after);
        let text = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
        let lines: Vec<String> = found
            .iter()
            .map(|change| {
                format!(
                    "{}: {} > {}",
                    change.path,
                    text(&change.before),
                    text(&change.after)
                )
            })
            .collect();
        assert_eq!(lines, expected);
        assert_eq!(apply(before.clone(), &found), *after);
    }

    #[test]
    fn fields_that_come_go_and_differ_are_named_with_their_place() {
        check(
            &json!({"a": 1, "b": {"c": [1, 2]}, "x.y/z": 1, "gone": null}),
            &json!({"a": 2, "b": {"c": [1, 3], "d": {}}, "x.y/z": 2}),
            &[
                "a: 1 > 2",
                "b.c[1]: 2 > 3",
                "b.d: - > {}",
                "[\"x.y/z\"]: 1 > 2",
                "gone: null > -",
            ],
        );
        check(&json!({"a": [1]}), &json!({"a": [1, 2]}), &["a: [1] > [1,2]"]);
        check(&json!({"a": [1]}), &json!({"a": {}}), &["a: [1] > {}"]);
    }

    #[test]
    fn entries_with_names_are_compared_by_name_unless_their_order_changes() {
        let list = |names: &[&str]| {
            let entries: Vec<Value> = names.iter().map(|name| json!({"name": name, "v": 1})).collect();
            json!({"c": entries})
        };
        let mut other = list(&["a", "c"]);
        other["c"][1]["v"] = json!(2);
        other["c"].as_array_mut().unwrap().push(json!({"name": "d"}));
        check(
            &list(&["a", "b", "c"]),
            &other,
            &[
                r#"c[name=b]: {"name":"b","v":1} > -"#,
                "c[name=c].v: 1 > 2",
                r#"c[name=d]: - > {"name":"d"}"#,
            ],
        );
        check(
            &list(&["a", "b"]),
            &list(&["b", "a"]),
            &[r#"c[0].name: "a" > "b""#, r#"c[1].name: "b" > "a""#],
        );
    }

    #[test]
    fn values_of_secrets_are_never_shown() {
        let secret =
            |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "data": data, "type": "Opaque"});
        let found = differences(
            &secret(json!({"a": "c2VjcmV0MQ==", "b": "c2VjcmV0Mg=="})),
            &secret(json!({"a": "c2VjcmV0Mw==", "c": "c2VjcmV0NA=="})),
        );
        assert_eq!(found.len(), 3);
        let all = differences(&secret(json!(null)), &secret(json!({"a": "c2VjcmV0Mw=="})));
        let text = serde_json::to_string(&(&found, &all)).unwrap();
        assert!(
            !text.contains("c2Vj") && text.contains(r#"{"a":"(hidden)"}"#),
            "{text}"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            "[ab]?".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 4, |inner| {
            let named =
                ("[abc]", inner.clone()).prop_map(|(name, value)| json!({"name": name, "value": value}));
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(named, 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc./]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_changes_lead_from_one_object_to_the_other(before in value(), after in value()) {
            let found = differences(&before, &after);
            prop_assert_eq!(found.is_empty(), before == after);
            prop_assert_eq!(apply(before, &found), after);
        }
    }
}
