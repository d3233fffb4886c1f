//! What is wrong with an object by the schema of a CRD, in the words of the API server.
//!
//! Types, bounds, enumerations, required fields, and the fields and items within; CEL rules, formats, patterns and the
//! combinations of schemas are left to the API server.

use serde_json::Value;

use crate::cluster::{items, text};

/// How deep objects are looked at.
const MAX_DEPTH: usize = 64;

/// The faults of an object; none where it fits.
pub(super) fn faults(object: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    look(object, schema, "", 0, &mut faults);
    faults
}

fn look(value: &Value, schema: &Value, path: &str, depth: usize, faults: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
        return;
    }
    let mut say = |problem: String| faults.push(format!("[].{path}: {problem}"));
    let wanted = text(schema, "/type");
    let found = type_of(value);
    let is_free = wanted.is_empty() || schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let fits = is_free || wanted == found || (wanted == "number" && found == "integer");
    if !fits {
        say(format!(
            "Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\""
        ));
        return;
    }
    let allowed: Vec<&Value> = items(schema, "/enum").collect();
    if !allowed.is_empty() && !allowed.contains(&value) {
        let allowed: Vec<String> = allowed.into_iter().map(quoted).collect();
        say(format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        ));
    }
    bounds(value, schema, path, &mut say);
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties");
            let more = schema.get("additionalProperties").filter(|more| more.is_object());
            for (key, field) in fields {
                // The API server looks at kind and metadata itself.
                if depth == 0 && ["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
                    continue;
                }
                if let Some(schema) = known.and_then(|known| known.get(key)).or(more) {
                    look(field, schema, &within(path, key), depth + 1, faults);
                }
            }
            for name in items(schema, "/required").filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    faults.push(format!("[].{}: Required value", within(path, name)));
                }
            }
        }
        Value::Array(list) => {
            if let Some(schema) = schema.get("items").filter(|schema| schema.is_object()) {
                for (index, item) in list.iter().enumerate() {
                    look(item, schema, &format!("{path}[{index}]"), depth + 1, faults);
                }
            }
        }
        _ => {}
    }
}

fn within(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A value of an enumeration, as the API server lists it.
fn quoted(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| format!("\"{value}\""), |text| format!("{text:?}"))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Bounds of numbers, texts, lists and objects.
fn bounds(value: &Value, schema: &Value, path: &str, say: &mut impl FnMut(String)) {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let is_set = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut refuse = |rule: String| say(format!("Invalid value: {value}: {path} in body {rule}"));
    if let Some(number) = value.as_f64() {
        if let Some(most) = limit("maximum") {
            if is_set("exclusiveMaximum") && number >= most {
                refuse(format!("should be less than {most}"));
            } else if number > most {
                refuse(format!("should be less than or equal to {most}"));
            }
        }
        if let Some(least) = limit("minimum") {
            if is_set("exclusiveMinimum") && number <= least {
                refuse(format!("should be greater than {least}"));
            } else if number < least {
                refuse(format!("should be greater than or equal to {least}"));
            }
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| *factor > 0.0 && (number % factor) != 0.0) {
            refuse(format!("should be a multiple of {factor}"));
        }
        return;
    }
    let whole = |key: &str| schema.get(key).and_then(Value::as_u64);
    let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    match value {
        Value::String(text) => {
            let length = size(text.chars().count());
            if let Some(least) = whole("minLength").filter(|least| length < *least) {
                refuse(format!("should be at least {least} chars long"));
            }
            if let Some(most) = whole("maxLength").filter(|most| length > *most) {
                say(format!("Too long: may not be more than {most} bytes"));
            }
        }
        Value::Array(list) => {
            let length = size(list.len());
            if let Some(least) = whole("minItems").filter(|least| length < *least) {
                refuse(format!("should have at least {least} items"));
            }
            if let Some(most) = whole("maxItems").filter(|most| length > *most) {
                say(format!("Too many: {length}: must have at most {most} items"));
            }
        }
        Value::Object(fields) => {
            let length = size(fields.len());
            if let Some(least) = whole("minProperties").filter(|least| length < *least) {
                refuse(format!("should have at least {least} properties"));
            }
            if let Some(most) = whole("maxProperties").filter(|most| length > *most) {
                say(format!("Too many: {length}: must have at most {most} items"));
            }
        }
        _ => {}
    }
}
