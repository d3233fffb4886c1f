//! Whether an object fits the schema of a definition, as the API server sees it: what is null and may not be is dropped,
//! defaults are filled in, then every constraint of a structural schema is looked at. Fields that the schema lacks are
//! no fault, since the API server drops them. Formats and rules in CEL are not evaluated.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

/// Levels of values or schemas within one another below which nothing is looked at. Readers of JSON stop earlier.
const MAX_DEPTH: usize = 128;
/// Faults of one object beyond which no more are looked for.
const MAX_FAULTS: usize = 100;
/// The largest compiled pattern, in bytes.
const PATTERN_SIZE: usize = 256 << 10;

/// What of an object a schema refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fault {
    /// Where in the schema, `^.spec.list.items`.
    pub(super) path: String,
    /// Where in the object, `/spec/list/0`.
    pub(super) instance: String,
    /// The keyword of the schema.
    pub(super) keyword: &'static str,
    /// What is wrong. Values of the object are not told: who reads it may not be allowed to read the object.
    pub(super) message: String,
}

/// Patterns of a schema, each compiled once; none for what is no pattern here.
#[derive(Debug, Default)]
pub(super) struct Patterns(BTreeMap<String, Option<Regex>>);

impl Patterns {
    fn matches(&mut self, pattern: &str, text: &str) -> bool {
        let compiled = self.0.entry(pattern.to_owned()).or_insert_with(|| {
            RegexBuilder::new(pattern)
                .size_limit(PATTERN_SIZE)
                .dfa_size_limit(PATTERN_SIZE)
                .nest_limit(50)
                .build()
                .ok()
        });
        // The API server has its own reading of a pattern that is none here; nothing is said against the object.
        compiled.as_ref().is_none_or(|compiled| compiled.is_match(text))
    }
}

/// Everything of an object that the schema refuses, in the order of the schema.
pub(super) fn faults(object: &Value, schema: &Value, patterns: &mut Patterns) -> Vec<Fault> {
    let mut object = object.clone();
    fill(&mut object, schema, MAX_DEPTH);
    let mut look = Look {
        patterns,
        faults: Vec::new(),
    };
    let place = Place {
        path: "^".to_owned(),
        instance: String::new(),
        depth: MAX_DEPTH,
    };
    look.at(&object, schema, &place);
    look.faults
}

fn flag(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

fn list<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn fields<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    schema
        .get(keyword)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

/// The schema of a field: its own, else that of all others.
fn of_field<'a>(schema: &'a Value, name: &str) -> Option<(&'a Value, bool)> {
    let own = schema.get("properties").and_then(|all| all.get(name));
    own.map(|own| (own, true)).or_else(|| {
        let other = schema.get("additionalProperties")?;
        other.is_object().then_some((other, false))
    })
}

/// Drops nulls that may not be and fills defaults in, as the API server does whenever it reads an object.
fn fill(value: &mut Value, schema: &Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match value {
        Value::Object(map) => {
            fill_fields(map, schema);
            for (name, inner) in map.iter_mut() {
                if let Some((schema, _)) = of_field(schema, name) {
                    fill(inner, schema, depth);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    fill(item, schema, depth);
                }
            }
        }
        _ => {}
    }
}

fn fill_fields(map: &mut Map<String, Value>, schema: &Value) {
    for (name, inner) in fields(schema, "properties") {
        let Some(default) = inner.get("default").filter(|default| !default.is_null()) else {
            continue;
        };
        let is_dropped = map
            .get(name)
            .is_none_or(|present| present.is_null() && !flag(inner, "nullable"));
        if is_dropped {
            map.insert(name.clone(), default.clone());
        }
    }
}

#[derive(Debug, Clone)]
struct Place {
    path: String,
    instance: String,
    depth: usize,
}

impl Place {
    fn below(&self, step: &str, instance: &str) -> Option<Self> {
        Some(Self {
            path: format!("{}.{step}", self.path),
            instance: format!("{}/{instance}", self.instance),
            depth: self.depth.checked_sub(1)?,
        })
    }

    fn within(&self, step: &str) -> Option<Self> {
        Some(Self {
            path: format!("{}.{step}", self.path),
            instance: self.instance.clone(),
            depth: self.depth.checked_sub(1)?,
        })
    }
}

struct Look<'p> {
    patterns: &'p mut Patterns,
    faults: Vec<Fault>,
}

impl Look<'_> {
    fn say(&mut self, place: &Place, keyword: &'static str, message: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault {
                path: place.path.clone(),
                instance: place.instance.clone(),
                keyword,
                message,
            });
        }
    }

    /// Whether a value fits a schema by itself.
    fn fits(&mut self, value: &Value, schema: &Value, place: &Place) -> bool {
        let mut look = Look {
            patterns: &mut *self.patterns,
            faults: Vec::new(),
        };
        look.at(value, schema, place);
        look.faults.is_empty()
    }

    fn at(&mut self, value: &Value, schema: &Value, place: &Place) {
        if value.is_null() && flag(schema, "nullable") {
            return self.among(value, schema, place);
        }
        if !self.kind(value, schema, place) {
            return;
        }
        self.among(value, schema, place);
        match value {
            Value::String(text) => self.text(text, schema, place),
            Value::Number(number) => self.number(number.as_f64(), schema, place),
            Value::Array(items) => self.items(items, schema, place),
            Value::Object(map) => self.map(map, schema, place),
            Value::Null | Value::Bool(_) => {}
        }
        self.junctions(value, schema, place);
    }

    /// Whether the value has the right type; else nothing more is said of it.
    fn kind(&mut self, value: &Value, schema: &Value, place: &Place) -> bool {
        let found = kind_of(value);
        if flag(schema, "x-kubernetes-int-or-string") {
            if !matches!(found, "integer" | "string") {
                self.say(
                    place,
                    "type",
                    format!("is of type {found}, not integer or string"),
                );
            }
            return matches!(found, "integer" | "string");
        }
        let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        let fits = wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer");
        if !fits {
            self.say(place, "type", format!("is of type {found}, not {wanted}"));
        }
        fits
    }

    fn among(&mut self, value: &Value, schema: &Value, place: &Place) {
        let allowed = list(schema, "enum");
        if !allowed.is_empty() && !allowed.iter().any(|one| same(one, value)) {
            self.say(place, "enum", "is none of the values that are allowed".to_owned());
        }
    }

    fn text(&mut self, text: &str, schema: &Value, place: &Place) {
        let pattern = schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
        if !pattern.is_empty() && !self.patterns.matches(pattern, text) {
            self.say(place, "pattern", format!("does not match {pattern:?}"));
        }
        let length = text.chars().count();
        self.size(length, "minLength", "maxLength", "character", schema, place);
    }

    fn size(
        &mut self,
        size: usize,
        least: &'static str,
        most: &'static str,
        what: &str,
        schema: &Value,
        place: &Place,
    ) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        if let Some(limit) = limit(least).filter(|limit| size < *limit) {
            self.say(place, least, format!("has fewer than {limit} {what}(s)"));
        }
        if let Some(limit) = limit(most).filter(|limit| size > *limit) {
            self.say(place, most, format!("has more than {limit} {what}(s)"));
        }
    }

    fn number(&mut self, number: Option<f64>, schema: &Value, place: &Place) {
        let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let Some(number) = number else { return };
        if let Some(limit) = limit("minimum") {
            let exclusive = flag(schema, "exclusiveMinimum");
            if number < limit || (exclusive && number <= limit) {
                let or = if exclusive { " or equal to it" } else { "" };
                self.say(place, "minimum", format!("is less than {limit}{or}"));
            }
        }
        if let Some(limit) = limit("maximum") {
            let exclusive = flag(schema, "exclusiveMaximum");
            if number > limit || (exclusive && number >= limit) {
                let or = if exclusive { " or equal to it" } else { "" };
                self.say(place, "maximum", format!("is more than {limit}{or}"));
            }
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| *factor > 0.0) {
            let times = number / factor;
            if (times - times.round()).abs() > 1e-9 {
                self.say(place, "multipleOf", format!("is no multiple of {factor}"));
            }
        }
    }

    fn items(&mut self, items: &[Value], schema: &Value, place: &Place) {
        self.size(items.len(), "minItems", "maxItems", "item", schema, place);
        let keys = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Some(&[][..]),
            Some("map") => Some(list(schema, "x-kubernetes-list-map-keys")),
            _ => None,
        };
        if let Some(keys) = keys {
            let identity = |item: &Value| match keys {
                [] => item.to_string(),
                keys => keys
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|key| item.get(key).unwrap_or(&Value::Null).to_string())
                    .collect::<Vec<_>>()
                    .join(","),
            };
            let mut seen = BTreeSet::new();
            if !items.iter().all(|item| seen.insert(identity(item))) {
                self.say(
                    place,
                    "x-kubernetes-list-type",
                    "holds the same item twice".to_owned(),
                );
            }
        }
        if let Some(schema) = schema.get("items").filter(|schema| schema.is_object()) {
            for (index, item) in items.iter().enumerate() {
                if let Some(place) = place.below("items", &index.to_string()) {
                    self.at(item, schema, &place);
                }
            }
        }
    }

    fn map(&mut self, map: &Map<String, Value>, schema: &Value, place: &Place) {
        self.size(
            map.len(),
            "minProperties",
            "maxProperties",
            "field",
            schema,
            place,
        );
        for name in list(schema, "required").iter().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.say(place, "required", format!("lacks the required field {name:?}"));
            }
        }
        for (name, value) in map {
            let Some((schema, named)) = of_field(schema, name) else {
                continue;
            };
            let step = if named {
                name.as_str()
            } else {
                "additionalProperties"
            };
            if let Some(place) = place.below(step, name) {
                self.at(value, schema, &place);
            }
        }
    }

    fn junctions(&mut self, value: &Value, schema: &Value, place: &Place) {
        for (index, one) in list(schema, "allOf").iter().enumerate() {
            if let Some(place) = place.within(&format!("allOf[{index}]")) {
                self.at(value, one, &place);
            }
        }
        for (keyword, exact) in [("anyOf", false), ("oneOf", true)] {
            let all = list(schema, keyword);
            let Some(inner) = place.within(keyword).filter(|_| !all.is_empty()) else {
                continue;
            };
            let fitting = all.iter().filter(|one| self.fits(value, one, &inner)).count();
            if fitting == 0 || (exact && fitting > 1) {
                let how = if fitting == 0 { "none" } else { "several" };
                self.say(
                    place,
                    if exact { "oneOf" } else { "anyOf" },
                    format!("fits {how} of {keyword}"),
                );
            }
        }
        if let (Some(not), Some(inner)) = (schema.get("not"), place.within("not"))
            && not.is_object()
            && self.fits(value, not, &inner)
        {
            self.say(place, "not", "is what is excluded".to_owned());
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => "integer",
            _ => "number",
        },
        Value::Number(_) => "integer",
    }
}

/// Whether two values are equal; numbers by value.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, value: &Value, expected: &[&str]) {
        let schema = json!({"type": "object", "properties": {"f": schema}});
        let found = faults(&json!({ "f": value }), &schema, &mut Patterns::default());
        let texts: Vec<String> = found
            .iter()
            .map(|fault| format!("{} {}", fault.path, fault.message))
            .collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn every_constraint_of_a_structural_schema_counts() {
        check(&json!({"type": "string"}), &json!("a"), &[]);
        check(
            &json!({"type": "integer"}),
            &json!("a"),
            &["^.f is of type string, not integer"],
        );
        check(&json!({"type": "integer"}), &json!(2.0), &[]);
        check(&json!({"type": "number"}), &json!(2), &[]);
        check(
            &json!({"type": "integer"}),
            &json!(2.5),
            &["^.f is of type number, not integer"],
        );
        check(&json!({"x-kubernetes-int-or-string": true}), &json!("5%"), &[]);
        check(
            &json!({"x-kubernetes-int-or-string": true}),
            &json!([]),
            &["^.f is of type array, not integer or string"],
        );
        check(
            &json!({"type": "string"}),
            &Value::Null,
            &["^.f is of type null, not string"],
        );
        check(&json!({"type": "string", "nullable": true}), &Value::Null, &[]);
        check(&json!({"enum": ["a", 1]}), &json!(1.0), &[]);
        check(
            &json!({"enum": ["a"]}),
            &json!("b"),
            &["^.f is none of the values that are allowed"],
        );
        check(
            &json!({"type": "string", "pattern": "^a", "maxLength": 1}),
            &json!("bä"),
            &["^.f does not match \"^a\"", "^.f has more than 1 character(s)"],
        );
        check(&json!({"pattern": "(["}), &json!("x"), &[]);
        check(&json!({"minimum": 3}), &json!(3), &[]);
        check(
            &json!({"minimum": 3, "exclusiveMinimum": true}),
            &json!(3),
            &["^.f is less than 3 or equal to it"],
        );
        check(&json!({"maximum": 3}), &json!(4), &["^.f is more than 3"]);
        check(&json!({"multipleOf": 0.1}), &json!(0.3), &[]);
        check(&json!({"multipleOf": 2}), &json!(3), &["^.f is no multiple of 2"]);
        check(
            &json!({"minItems": 3, "items": {"type": "string"}}),
            &json!(["a", 1]),
            &[
                "^.f has fewer than 3 item(s)",
                "^.f.items is of type integer, not string",
            ],
        );
        check(
            &json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
            &json!([{"a": 1, "b": 1}, {"a": 1}]),
            &["^.f holds the same item twice"],
        );
        check(&json!({"x-kubernetes-list-type": "set"}), &json!(["a", "b"]), &[]);
        check(
            &json!({"required": ["a"], "properties": {"b": {"type": "string"}}}),
            &json!({"b": 1, "unknown": 1}),
            &[
                "^.f lacks the required field \"a\"",
                "^.f.b is of type integer, not string",
            ],
        );
        check(
            &json!({"additionalProperties": {"type": "string"}, "maxProperties": 1}),
            &json!({"a": 1, "b": "x"}),
            &[
                "^.f has more than 1 field(s)",
                "^.f.additionalProperties is of type integer, not string",
            ],
        );
        check(
            &json!({"allOf": [{"maximum": 1}], "anyOf": [{"maximum": 2}, {"maximum": 1}]}),
            &json!(3),
            &["^.f.allOf[0] is more than 1", "^.f fits none of anyOf"],
        );
        check(
            &json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            &json!({"a": 1, "b": 1}),
            &["^.f fits several of oneOf"],
        );
        check(
            &json!({"not": {"required": ["a"]}}),
            &json!({"a": 1}),
            &["^.f is what is excluded"],
        );
    }

    #[test]
    fn defaults_are_filled_in_first_as_the_api_server_does() {
        let schema = json!({"required": ["a"], "properties": {"a": {"type": "string", "default": "x"}}});
        check(&schema, &json!({}), &[]);
        check(&schema, &json!({"a": null}), &[]);
        let deep = json!({"items": {"required": ["a"], "properties": {"a": {"default": 1, "maximum": 0}}}});
        check(&deep, &json!([{}]), &["^.f.items.a is more than 0"]);
    }

    #[test]
    fn values_and_schemas_of_any_depth_are_looked_at_without_end_of_stack() {
        let (mut schema, mut value) = (json!({"type": "string"}), json!(1));
        for _ in 0..400 {
            schema = json!({"items": schema, "not": {"not": {}}});
            value = json!([value]);
        }
        assert!(faults(&value, &schema, &mut Patterns::default()).len() <= MAX_FAULTS);
    }
}
