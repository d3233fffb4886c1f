//! The members of metadata files, read as Go's decoders read YAML.

use serde_json::{Map, Value};

/// The member with this name, in any case. The exact spelling has precedence.
pub fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let folded = || {
        let mut members = object.iter().rev();
        members.find(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    object.get(name).or_else(|| folded().map(|(_, value)| value))
}

/// The text of a scalar; empty for null, `None` for lists and mappings.
pub(super) fn plain_text(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
        Some(Value::Array(_) | Value::Object(_)) => None,
    }
}
