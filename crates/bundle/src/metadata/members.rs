//! How the metadata files of bundles are read: as Go's decoders read YAML.

use serde_json::{Map, Value};

/// The member of this name, however its letters are written; the exact spelling goes first.
pub fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let folded = || {
        let mut members = object.iter().rev();
        members.find(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    object.get(name).or_else(|| folded().map(|(_, value)| value))
}

/// The text that a plain value is; of null the empty one, of lists and mappings none.
pub(super) fn plain_text(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
        Some(Value::Array(_) | Value::Object(_)) => None,
    }
}
