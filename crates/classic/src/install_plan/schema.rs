//! Checks an object against the schema of a CRD, with the error texts of the API server.
//!
//! Covered are types, bounds, enumerations, patterns, common formats, required fields and combinations of schemas, down
//! to 64 levels. The API server alone checks CEL rules and other formats.

use std::net::{Ipv4Addr, Ipv6Addr};

use regex::Regex;
use serde_json::Value;

use crate::cluster::{items, text};

/// Greatest depth at which objects are checked.
const MAX_DEPTH: usize = 64;

/// The faults of an object; none where it fits.
pub(super) fn faults(object: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    validate_value(object, schema, "", 0, &mut faults);
    faults
}

fn validate_value(value: &Value, schema: &Value, path: &str, depth: usize, faults: &mut Vec<String>) {
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
    combinations(value, schema, path, depth, faults);
    let mut say = |problem: String| faults.push(format!("[].{path}: {problem}"));
    let allowed: Vec<&Value> = items(schema, "/enum").collect();
    if !allowed.is_empty() && !allowed.contains(&value) {
        let allowed: Vec<String> = allowed.into_iter().map(quoted).collect();
        say(format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        ));
    }
    if let Some(number) = value.as_f64() {
        let mut refuse = |rule: String| say(format!("Invalid value: {value}: {path} in body {rule}"));
        check_number(number, schema, &mut refuse);
    }
    if !check_size(value, schema, path, &mut say) {
        check_text(value, schema, path, &mut say);
    }
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
                    validate_value(field, schema, &within(path, key), depth + 1, faults);
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
                    validate_value(item, schema, &format!("{path}[{index}]"), depth + 1, faults);
                }
            }
        }
        _ => {}
    }
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`.
fn combinations(value: &Value, schema: &Value, path: &str, depth: usize, faults: &mut Vec<String>) {
    let each = |key: &str| -> Vec<Vec<String>> {
        let parts = items(schema, key).map(|part| {
            let mut faults = Vec::new();
            validate_value(value, part, path, depth + 1, &mut faults);
            faults
        });
        parts.collect()
    };
    let mut say = |rule: &str| faults.push(format!("[]: Invalid value: \"\": {} {rule}", quoted_text(path)));
    let any = each("/anyOf");
    if !any.is_empty() && any.iter().all(|found| !found.is_empty()) {
        say("must validate at least one schema (anyOf)");
        faults.extend(any.into_iter().next().unwrap_or_default());
    }
    let one = each("/oneOf");
    let valid = one.iter().filter(|found| found.is_empty()).count();
    let mut say = |rule: &str| faults.push(format!("[]: Invalid value: \"\": {} {rule}", quoted_text(path)));
    if valid > 1 {
        say(&format!(
            "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
        ));
    } else if valid == 0 && !one.is_empty() {
        say("must validate one and only one schema (oneOf). Found none valid");
        faults.extend(one.into_iter().next().unwrap_or_default());
    }
    let all = each("/allOf");
    let valid = all.iter().filter(|found| found.is_empty()).count();
    if valid < all.len() {
        faults.extend(all.into_iter().flatten());
        let none = if valid == 0 { ". None validated" } else { "" };
        faults.push(format!(
            "[]: Invalid value: \"\": {} must validate all the schemas (allOf){none}",
            quoted_text(path)
        ));
    }
    if let Some(excluded) = schema.get("not").filter(|schema| schema.is_object()) {
        let mut found = Vec::new();
        validate_value(value, excluded, path, depth + 1, &mut found);
        if found.is_empty() {
            faults.push(format!(
                "[]: Invalid value: \"\": {} must not validate the schema (not)",
                quoted_text(path)
            ));
        }
    }
}

/// Checks the pattern and the format of a text.
fn check_text(value: &Value, schema: &Value, path: &str, say: &mut impl FnMut(String)) {
    let Some(found) = value.as_str() else {
        return;
    };
    let pattern = text(schema, "/pattern");
    if !pattern.is_empty() {
        match Regex::new(pattern) {
            Ok(regex) if regex.is_match(found) => {}
            Ok(_) => say(format!(
                "Invalid value: {value}: {path} in body should match '{pattern}'"
            )),
            Err(error) => say(format!(
                "Invalid value: {value}: {path} in body should match '{pattern}, but pattern is invalid: {error}'"
            )),
        }
    }
    let format = text(schema, "/format");
    if !has_format(found, format) {
        say(format!(
            "Invalid value: {value}: {path} in body must be of type {format}: {value}"
        ));
    }
}

/// Whether a text has a format; also where the format is not a common one.
fn has_format(found: &str, format: &str) -> bool {
    let is = |pattern: &str| Regex::new(pattern).is_ok_and(|regex| regex.is_match(found));
    match format {
        "ipv4" => found.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => found.parse::<Ipv6Addr>().is_ok(),
        "date" => is(r"^\d{4}-\d{2}-\d{2}$") && found.parse::<jiff::civil::Date>().is_ok(),
        "date-time" => {
            is(r"^\d{4}-\d{2}-\d{2}[tT ]\d{2}:\d{2}:\d{2}(\.\d+)?([zZ]|[+-]\d{2}:\d{2})$")
                && found.parse::<jiff::Timestamp>().is_ok()
        }
        "uuid" => is(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        _ => true,
    }
}

fn quoted_text(text: &str) -> String {
    olm_version::quoted(text)
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

/// Checks the bounds of a number.
fn check_number(number: f64, schema: &Value, refuse: &mut impl FnMut(String)) {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let is_set = |key: &str| schema.get(key) == Some(&Value::Bool(true));
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
}

/// Checks the length of a text, a list or an object. Says whether there is something wrong.
fn check_size(value: &Value, schema: &Value, path: &str, say: &mut impl FnMut(String)) -> bool {
    let (size, least, most) = match value {
        Value::String(text) => (text.chars().count(), "minLength", "maxLength"),
        Value::Array(list) => (list.len(), "minItems", "maxItems"),
        Value::Object(fields) => (fields.len(), "minProperties", "maxProperties"),
        _ => return false,
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
    let is_short = limit(least).is_some_and(|least| size < least);
    let is_long = limit(most).is_some_and(|most| size > most);
    if let Some(least) = limit(least).filter(|least| size < *least) {
        let rule = match value {
            Value::String(_) => format!("should be at least {least} chars long"),
            Value::Array(_) => format!("should have at least {least} items"),
            _ => format!("should have at least {least} properties"),
        };
        say(format!("Invalid value: {value}: {path} in body {rule}"));
    }
    if let Some(most) = limit(most).filter(|most| size > *most) {
        say(if value.is_string() {
            format!("Too long: may not be more than {most} bytes")
        } else {
            format!("Too many: {size}: must have at most {most} items")
        });
    }
    is_short || is_long
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_bound_has_its_text() {
        for (value, schema, expected) in [
            (
                json!(6),
                json!({"maximum": 5}),
                "Invalid value: 6: f in body should be less than or equal to 5",
            ),
            (
                json!(5),
                json!({"maximum": 5, "exclusiveMaximum": true}),
                "Invalid value: 5: f in body should be less than 5",
            ),
            (
                json!(1),
                json!({"minimum": 2}),
                "Invalid value: 1: f in body should be greater than or equal to 2",
            ),
            (
                json!(3),
                json!({"multipleOf": 2}),
                "Invalid value: 3: f in body should be a multiple of 2",
            ),
            (
                json!("a"),
                json!({"minLength": 2}),
                "Invalid value: \"a\": f in body should be at least 2 chars long",
            ),
            (
                json!("abc"),
                json!({"maxLength": 2}),
                "Too long: may not be more than 2 bytes",
            ),
            (
                json!([1]),
                json!({"minItems": 2}),
                "Invalid value: [1]: f in body should have at least 2 items",
            ),
            (
                json!([1, 2]),
                json!({"maxItems": 1}),
                "Too many: 2: must have at most 1 items",
            ),
            (
                json!({}),
                json!({"minProperties": 1}),
                "Invalid value: {}: f in body should have at least 1 properties",
            ),
            (
                json!("x"),
                json!({"enum": ["a", "b"]}),
                "Unsupported value: \"x\": supported values: \"a\", \"b\"",
            ),
            (
                json!("x"),
                json!({"pattern": "^a+$"}),
                "Invalid value: \"x\": f in body should match '^a+$'",
            ),
            (
                json!("x"),
                json!({"format": "ipv4"}),
                "Invalid value: \"x\": f in body must be of type ipv4: \"x\"",
            ),
            (
                json!("x"),
                json!({"type": "integer"}),
                "Invalid value: \"string\": f in body must be of type integer: \"string\"",
            ),
        ] {
            let found = faults(&json!({"f": value}), &json!({"properties": {"f": schema}}));
            assert_eq!(found, [format!("[].f: {expected}")]);
        }
    }

    #[test]
    fn combinations_name_the_path_and_the_first_failure() {
        let short = json!({"maxLength": 1});
        let word = json!({"pattern": "^a+$"});
        let problem = |rule: &str| format!("[]: Invalid value: \"\": \"f\" {rule}");
        let too_long = "[].f: Too long: may not be more than 1 bytes".to_owned();
        let no_word = "[].f: Invalid value: \"bb\": f in body should match '^a+$'".to_owned();
        for (schema, expected) in [
            (
                json!({"anyOf": [short, word]}),
                vec![
                    problem("must validate at least one schema (anyOf)"),
                    too_long.clone(),
                ],
            ),
            (
                json!({"oneOf": [short, word]}),
                vec![
                    problem("must validate one and only one schema (oneOf). Found none valid"),
                    too_long.clone(),
                ],
            ),
            (
                json!({"oneOf": [{}, {}]}),
                vec![problem(
                    "must validate one and only one schema (oneOf). Found 2 valid alternatives",
                )],
            ),
            (
                json!({"allOf": [word, {}]}),
                vec![no_word.clone(), problem("must validate all the schemas (allOf)")],
            ),
            (
                json!({"not": {"maxLength": 2}}),
                vec![problem("must not validate the schema (not)")],
            ),
            (json!({"anyOf": [short, {}], "not": short}), Vec::new()),
        ] {
            let found = faults(&json!({"f": "bb"}), &json!({"properties": {"f": schema}}));
            assert_eq!(found, expected, "{schema}");
        }
    }

    #[test]
    fn values_within_their_bounds_have_no_faults() {
        let schema = json!({"properties": {
            "n": {"type": "number", "maximum": 5, "minimum": 1}, "s": {"maxLength": 2}, "o": {"nullable": true, "type": "object"},
            "p": {"x-kubernetes-int-or-string": true},
        }});
        let object = json!({"n": 5, "s": "ab", "o": null, "p": "50%", "unknown": 1});
        assert_eq!(faults(&object, &schema), Vec::<String>::new());
    }
}
