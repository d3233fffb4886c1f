//! Properties: `metadata/properties.yaml` and the annotation `olm.properties` of the ClusterServiceVersion.

use serde::Serialize;
use serde_json::{Map, Value};

use super::members::{member, plain_text};

/// A typed fact about a bundle. Types are open; most are for other tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Property {
    /// The type, such as `olm.maxOpenShiftVersion`; empty if absent.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value.
    pub value: Value,
}

/// The reason why a list of properties is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The value is not a list.
    #[error("the properties are not a list")]
    NotAList,
    /// An entry is not a mapping.
    #[error("property {0} is not a mapping")]
    NotAMapping(usize),
    /// The type of an entry is a list or a mapping.
    #[error("the type of property {0} is not a text")]
    Type(usize),
}

/// Reads a list of properties in the flat form `{type, value}` or wrapped as `{property: {type, value}}`.
/// Entries are counted from 1 in errors.
///
/// A property without a type or value has no effect and does not prevent an installation.
pub fn read_list(list: &Value) -> Result<Vec<Property>, PropertyError> {
    let entries = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Array(entries) => entries,
        _ => return Err(PropertyError::NotAList),
    };
    entries
        .iter()
        .zip(1..)
        .map(|(entry, position)| read_entry(entry, position))
        .collect()
}

fn read_entry(entry: &Value, position: usize) -> Result<Property, PropertyError> {
    let empty = Map::new();
    let entry = match entry {
        Value::Null => &empty,
        Value::Object(entry) => entry,
        _ => return Err(PropertyError::NotAMapping(position)),
    };
    let entry = match member(entry, "property") {
        Some(Value::Object(inner)) if member(entry, "type").is_none() => inner,
        _ => entry,
    };
    Ok(Property {
        kind: plain_text(member(entry, "type")).ok_or(PropertyError::Type(position))?,
        value: member(entry, "value").cloned().unwrap_or_default(),
    })
}
