//! Changes of one node of a schema.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::unhandled;
use super::{Change, Check};

/// A failed check of a property: the check, the change and the message.
type PropertyFinding = (Check, Change, String);

/// The changes between two nodes without their properties and items. A null is an empty node.
pub(super) fn findings(old: &Value, new: &Value) -> Vec<PropertyFinding> {
    let mut found = Vec::new();
    found.extend(types(old, new));
    found.extend(defaults(old, new));
    found.extend(enums(old, new));
    found.extend(required(old, new));
    let minima = [
        (Check::Minimum, "minimum"),
        (Check::MinItems, "minItems"),
        (Check::MinLength, "minLength"),
        (Check::MinProperties, "minProperties"),
    ];
    for (check, field) in minima {
        found.extend(limit(
            old,
            new,
            field,
            check,
            Ordering::Greater,
            "minimum",
            "increased",
        ));
    }
    let maxima = [
        (Check::Maximum, "maximum"),
        (Check::MaxItems, "maxItems"),
        (Check::MaxLength, "maxLength"),
        (Check::MaxProperties, "maxProperties"),
    ];
    for (check, field) in maxima {
        found.extend(limit(
            old,
            new,
            field,
            check,
            Ordering::Less,
            "maximum",
            "decreased",
        ));
    }
    found.extend(texts(old, new, "pattern", Check::Pattern));
    found.extend(nullable(old, new));
    found.extend(one_of(old, new));
    found.extend(descriptions(old, new));
    found.extend(unhandled::message(old, new).map(|message| (Check::Unhandled, Change::Other, message)));
    found
}

fn text<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field that exists and is not null.
fn present<'a>(schema: &'a Value, field: &str) -> Option<&'a Value> {
    schema.get(field).filter(|value| !value.is_null())
}

fn list<'a>(schema: &'a Value, field: &str) -> &'a [Value] {
    schema
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The canonical JSON text of a value. The parser of the value bounds its depth.
fn json_text(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => olm_yaml::json_float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(json_text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let members: BTreeMap<&String, &Value> = map.iter().collect();
            let members: Vec<String> = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), json_text(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn change(before: bool, after: bool) -> Change {
    match (before, after) {
        (false, true) => Change::Addition,
        (true, false) => Change::Removal,
        _ => Change::Other,
    }
}

fn types(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let (before, after) = (text(old, "type"), text(new, "type"));
    (before != after).then(|| {
        let change = change(!before.is_empty(), !after.is_empty());
        (
            Check::Type,
            change,
            format!("type changed : {before:?} -> {after:?}"),
        )
    })
}

fn defaults(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let (before, after) = (
        present(old, "default").map(json_text),
        present(new, "default").map(json_text),
    );
    let (change, message) = match (before, after) {
        (None, Some(after)) => (
            Change::Addition,
            format!("default added when there was none previously : {after:?}"),
        ),
        (Some(before), None) => (Change::Removal, format!("default value removed : {before:?}")),
        (Some(before), Some(after)) if before != after => (
            Change::Other,
            format!("default value changed : {before:?} -> {after:?}"),
        ),
        _ => return None,
    };
    Some((Check::Default, change, message))
}

fn enums(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let values = |schema: &Value| {
        list(schema, "enum")
            .iter()
            .map(json_text)
            .collect::<BTreeSet<String>>()
    };
    let shown = |values: Vec<&String>| {
        values
            .into_iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (before, after) = (values(old), values(new));
    if before.is_empty() {
        // A new constraint narrows the values. It does not add to an enumeration.
        return (!after.is_empty()).then(|| {
            let shown = shown(after.iter().collect());
            (
                Check::Enum,
                Change::Other,
                format!("enum constraint added when there was none previously : [{shown}]"),
            )
        });
    }
    let removed: Vec<&String> = before.difference(&after).collect();
    if !removed.is_empty() {
        return Some((
            Check::Enum,
            Change::Removal,
            format!("allowed enum values removed : [{}]", shown(removed)),
        ));
    }
    let added: Vec<&String> = after.difference(&before).collect();
    (!added.is_empty()).then(|| {
        (
            Check::Enum,
            Change::Addition,
            format!("allowed enum values added : [{}]", shown(added)),
        )
    })
}

fn required(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let names = |schema: &Value| {
        list(schema, "required")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<BTreeSet<String>>()
    };
    let (before, after) = (names(old), names(new));
    let added: Vec<&str> = after.difference(&before).map(String::as_str).collect();
    (!added.is_empty()).then(|| {
        (
            Check::Required,
            Change::Addition,
            format!("new required fields: [{}]", added.join(" ")),
        )
    })
}

/// A limit that is new, or that moved in the direction `stricter`.
fn limit(
    old: &Value,
    new: &Value,
    field: &str,
    check: Check,
    stricter: Ordering,
    word: &str,
    moved: &str,
) -> Option<PropertyFinding> {
    let (before, after) = (present(old, field), present(new, field)?);
    // Bounds of numbers are floating point, counts are not.
    let shown = |limit: &Value| match limit.as_f64() {
        Some(float) if field == word => olm_yaml::yaml_float(float),
        _ => limit.to_string(),
    };
    let Some(before) = before else {
        let message = format!(
            "{word} constraint added when there was none previously : {}",
            shown(after)
        );
        return Some((check, Change::Addition, message));
    };
    let order = after.as_f64()?.partial_cmp(&before.as_f64()?)?;
    (order == stricter).then(|| {
        (
            check,
            Change::Other,
            format!("{word} {moved} : {} -> {}", shown(before), shown(after)),
        )
    })
}

/// A text in which every change counts.
fn texts(old: &Value, new: &Value, field: &str, check: Check) -> Option<PropertyFinding> {
    let (before, after) = (text(old, field), text(new, field));
    if before == after {
        return None;
    }
    let change = change(!before.is_empty(), !after.is_empty());
    let verb = match change {
        Change::Addition => "added",
        Change::Removal => "removed",
        Change::Other => "changed",
    };
    Some((check, change, format!("{field} {verb} : {before:?} -> {after:?}")))
}

fn descriptions(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let (before, after) = (text(old, "description"), text(new, "description"));
    (before != after).then(|| {
        let message = format!("description changed : {before:?} -> {after:?}");
        (
            Check::Description,
            change(!before.is_empty(), !after.is_empty()),
            message,
        )
    })
}

fn nullable(old: &Value, new: &Value) -> Option<PropertyFinding> {
    let flag = |schema: &Value| schema.get("nullable") == Some(&Value::Bool(true));
    match (flag(old), flag(new)) {
        (false, true) => Some((
            Check::Nullable,
            Change::Addition,
            "nullable added : false -> true".to_owned(),
        )),
        (true, false) => Some((
            Check::Nullable,
            Change::Removal,
            "nullable removed : true -> false".to_owned(),
        )),
        _ => None,
    }
}

fn one_of(old: &Value, new: &Value) -> Vec<PropertyFinding> {
    let schemas = |schema: &Value| {
        list(schema, "oneOf")
            .iter()
            .map(|schema| unhandled::canonical(schema).to_string())
            .collect::<BTreeSet<_>>()
    };
    let shown = |schemas: Vec<&String>| {
        schemas
            .into_iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (before, after) = (schemas(old), schemas(new));
    if before.is_empty() && !after.is_empty() {
        let shown = shown(after.iter().collect());
        let message = format!("oneOf constraint added when there was none previously: [{shown}]");
        return vec![(Check::OneOf, Change::Addition, message)];
    }
    let mut found = Vec::new();
    let removed: Vec<&String> = before.difference(&after).collect();
    if !removed.is_empty() {
        let message = format!("allowed oneOf schemas removed: [{}]", shown(removed));
        found.push((Check::OneOf, Change::Removal, message));
    }
    let added: Vec<&String> = after.difference(&before).collect();
    if !added.is_empty() {
        found.push((
            Check::OneOf,
            Change::Addition,
            format!("allowed oneOf schemas added: [{}]", shown(added)),
        ));
    }
    found
}
