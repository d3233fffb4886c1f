//! Changes of fields without a check of their own. They count as unsafe.

use serde_json::{Map, Value};

/// The deepest schema within schemas that is compared. Readers of YAML and JSON stop earlier.
const MAX_DEPTH: usize = 256;
/// The longest value that is shown, in characters.
const MAX_SHOWN: usize = 120;

/// The form of a field without a value in messages.
#[derive(Clone, Copy)]
enum Kind {
    /// Text, empty by default.
    Text,
    /// A flag, false by default.
    Flag,
    /// A flag, text or number that can be absent.
    Optional,
    /// A schema, or a list or mapping of anything.
    Complex,
}

/// The fields without a check of their own: the name in the schema and the name in messages.
const UNHANDLED: [(&str, &str, Kind); 26] = [
    ("id", "ID", Kind::Text),
    ("$schema", "Schema", Kind::Text),
    ("$ref", "Ref", Kind::Optional),
    ("format", "Format", Kind::Text),
    ("title", "Title", Kind::Text),
    ("exclusiveMaximum", "ExclusiveMaximum", Kind::Flag),
    ("exclusiveMinimum", "ExclusiveMinimum", Kind::Flag),
    ("uniqueItems", "UniqueItems", Kind::Flag),
    ("multipleOf", "MultipleOf", Kind::Optional),
    ("allOf", "AllOf", Kind::Complex),
    ("anyOf", "AnyOf", Kind::Complex),
    ("not", "Not", Kind::Complex),
    ("additionalProperties", "AdditionalProperties", Kind::Complex),
    ("patternProperties", "PatternProperties", Kind::Complex),
    ("dependencies", "Dependencies", Kind::Complex),
    ("additionalItems", "AdditionalItems", Kind::Complex),
    ("definitions", "Definitions", Kind::Complex),
    ("externalDocs", "ExternalDocs", Kind::Complex),
    ("example", "Example", Kind::Complex),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
        Kind::Optional,
    ),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", Kind::Flag),
    ("x-kubernetes-int-or-string", "XIntOrString", Kind::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", Kind::Complex),
    ("x-kubernetes-list-type", "XListType", Kind::Optional),
    ("x-kubernetes-map-type", "XMapType", Kind::Optional),
    ("x-kubernetes-validations", "XValidations", Kind::Complex),
];

/// The fields with a check of their own, which count here inside another schema.
const HANDLED: [(&str, &str, Kind); 17] = [
    ("type", "Type", Kind::Text),
    ("default", "Default", Kind::Complex),
    ("enum", "Enum", Kind::Complex),
    ("required", "Required", Kind::Complex),
    ("minimum", "Minimum", Kind::Optional),
    ("minItems", "MinItems", Kind::Optional),
    ("minLength", "MinLength", Kind::Optional),
    ("minProperties", "MinProperties", Kind::Optional),
    ("maximum", "Maximum", Kind::Optional),
    ("maxItems", "MaxItems", Kind::Optional),
    ("maxLength", "MaxLength", Kind::Optional),
    ("maxProperties", "MaxProperties", Kind::Optional),
    ("pattern", "Pattern", Kind::Text),
    ("nullable", "Nullable", Kind::Flag),
    ("oneOf", "OneOf", Kind::Complex),
    ("items", "Items", Kind::Complex),
    ("properties", "Properties", Kind::Complex),
];

/// The changes that no check handles; `None` if there are none.
pub(super) fn message(old: &Value, new: &Value) -> Option<String> {
    let mut differences = Vec::new();
    let mut changed = false;
    for (field, shown, kind) in UNHANDLED {
        let (before, after) = (value(old, field), value(new, field));
        if before != after {
            changed = true;
            describe(shown, kind, &before, &after, &mut differences);
        }
    }
    if !changed {
        return None;
    }
    if differences.is_empty() {
        return Some("unhandled changes found".to_owned());
    }
    Some(format!("unhandled changes found ({})", differences.join("; ")))
}

/// A field in canonical form; null for a value that has no effect.
fn value(schema: &Value, field: &str) -> Value {
    let value = schema.get(field).unwrap_or(&Value::Null);
    match field {
        "example" | "externalDocs" | "x-kubernetes-list-map-keys" | "x-kubernetes-validations" => {
            if says_nothing(value) {
                Value::Null
            } else {
                value.clone()
            }
        }
        // Here false differs from an absent value.
        "x-kubernetes-preserve-unknown-fields" | "additionalProperties" | "additionalItems" => {
            inner(field, value, MAX_DEPTH)
        }
        // The default.
        "x-kubernetes-list-type" if value == "atomic" => Value::Null,
        "x-kubernetes-map-type" if value == "granular" => Value::Null,
        // `not` without a constraint excludes everything.
        "not" => inner(field, value, MAX_DEPTH),
        _ if says_nothing(value) => Value::Null,
        _ => inner(field, value, MAX_DEPTH),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// A schema without descriptions, titles, examples, values without effect and unknown fields. Its keys are sorted, so
/// that equal schemas have equal text.
pub(super) fn canonical(schema: &Value) -> Value {
    let mut schema = canonical_at(schema, MAX_DEPTH);
    if let Some(map) = schema.as_object_mut() {
        for field in ["title", "example"] {
            map.shift_remove(field);
        }
    }
    schema
}

/// A schema, a list of schemas, or a value in place of one.
fn canonical_at(value: &Value, depth: usize) -> Value {
    if depth == 0 {
        return Value::Null;
    }
    match value {
        Value::Object(map) => {
            let known = HANDLED.iter().chain(&UNHANDLED).map(|(field, ..)| *field);
            let mut kept = Map::new();
            for field in known {
                let Some(value) = map.get(field) else {
                    continue;
                };
                let value = inner(field, value, depth - 1);
                let counts = field == "not" || field.starts_with("additional");
                if !says_nothing(&value) || (counts && !value.is_null()) {
                    kept.insert(field.to_owned(), value);
                }
            }
            kept.sort_keys();
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(|item| canonical_at(item, depth - 1)).collect(),
        scalar => scalar.clone(),
    }
}

/// The value of a schema's field.
fn inner(field: &str, value: &Value, depth: usize) -> Value {
    match (field, value) {
        ("properties" | "patternProperties" | "definitions" | "dependencies", Value::Object(map)) => {
            let mut named: Map<String, Value> = map
                .iter()
                .map(|(name, value)| (name.clone(), canonical_at(value, depth)))
                .collect();
            named.sort_keys();
            Value::Object(named)
        }
        (
            "items" | "not" | "allOf" | "anyOf" | "oneOf" | "additionalProperties" | "additionalItems",
            value,
        ) => canonical_at(value, depth),
        // Values of users are not simplified, and the other fields contain no schemas.
        (_, value) => value.clone(),
    }
}

/// Adds `Field before -> after`, or the same for each field of a schema that both sides have.
fn describe(shown: &str, kind: Kind, before: &Value, after: &Value, differences: &mut Vec<String>) {
    if let (Kind::Complex, Value::Object(before), Value::Object(after)) = (kind, before, after) {
        let null = Value::Null;
        for (field, inner, kind) in HANDLED.into_iter().chain(UNHANDLED) {
            let (before, after) = (
                before.get(field).unwrap_or(&null),
                after.get(field).unwrap_or(&null),
            );
            // One level is enough: the node itself is reported at its own path.
            if before != after && !(before.is_object() && after.is_object()) {
                differences.push(format!("{inner} {} -> {}", show(before, kind), show(after, kind)));
            }
        }
        return;
    }
    differences.push(format!("{shown} {} -> {}", show(before, kind), show(after, kind)));
}

fn show(value: &Value, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Text, Value::Null) => "\"\"".to_owned(),
        (Kind::Flag, Value::Null) => "false".to_owned(),
        (_, Value::Null) => "nil".to_owned(),
        (Kind::Optional, Value::String(text)) => format!("&{text:?}"),
        (Kind::Optional, value) => format!("&{value}"),
        (_, Value::String(text)) => format!("{text:?}"),
        (_, value) => {
            let text = value.to_string();
            if text.len() > MAX_SHOWN {
                "<complex value>".to_owned()
            } else {
                text
            }
        }
    }
}
