//! Properties: `metadata/properties.yaml` and the annotation `olm.properties` of the ClusterServiceVersion
//! (requirements 3.41, 3.42).

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::bundle::Bundle;
use crate::csv::ApiDescription;
use crate::members::{member, plain_text};

/// A typed fact about a bundle. Types are open: most mean something to somebody else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Property {
    /// What the fact is about, `olm.maxOpenShiftVersion` for example; empty where the author does not say.
    #[serde(rename = "type")]
    pub kind: String,
    /// The fact.
    pub value: Value,
}

/// A list of properties is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The list is something else.
    #[error("the properties are not a list")]
    NotAList,
    /// An entry is no mapping.
    #[error("property {0} is not a mapping")]
    NotAMapping(usize),
    /// The type of an entry is a list or a mapping.
    #[error("the type of property {0} is not a text")]
    Type(usize),
}

/// Reads a list of properties in the flat form `{type, value}` or wrapped as `{property: {type, value}}`
/// (T-3E-02). Entries are counted from 1 in errors.
///
/// Authors leave out types and values of properties that nobody reads; that is no reason not to install the operator.
pub(crate) fn read_list(list: &Value) -> Result<Vec<Property>, PropertyError> {
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

impl Bundle {
    /// The properties, and those that follow from the rest of the bundle as catalogs show them (requirements 3.40 and
    /// 3.54): `olm.gvk` for what it provides, and what it requires. Each once.
    #[must_use]
    pub fn all_properties(&self) -> Vec<Property> {
        let mut all = self.provided_properties();
        for dependency in &self.dependencies {
            add(&mut all, dependency.property_kind(), dependency.property_value());
        }
        all
    }

    /// [`Bundle::all_properties`] without what the bundle requires by its files: what it asks of others is not what it
    /// has to offer.
    #[must_use]
    pub fn provided_properties(&self) -> Vec<Property> {
        let mut all = self.properties.clone();
        for api in self.definitions.iter().flat_map(provided) {
            add(&mut all, "olm.gvk", api);
        }
        for api in &self.csv.spec.api_service_definitions.owned {
            add(&mut all, "olm.gvk", described(api));
        }
        all
    }

    /// [`Bundle::all_properties`] and those that the catalog tells beside, as the JSON text that revisions carry; `None`
    /// when there are none.
    #[must_use]
    pub fn recorded_properties(&self, told: &[(String, Value)]) -> Option<String> {
        let mut all = self.all_properties();
        for (kind, value) in told {
            add(&mut all, kind, value.clone());
        }
        (!all.is_empty()).then(|| crate::names::go_json(&all))
    }
}

fn add(all: &mut Vec<Property>, kind: &str, value: Value) {
    let property = Property {
        kind: kind.to_owned(),
        value,
    };
    if !all.contains(&property) {
        all.push(property);
    }
}

fn described(api: &ApiDescription) -> Value {
    json!({"group": api.group, "version": api.version, "kind": api.kind})
}

/// The APIs that a custom resource definition serves.
fn provided(definition: &Value) -> impl Iterator<Item = Value> + '_ {
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let is_served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
    let names = versions.into_iter().flatten().filter(is_served);
    names
        .filter_map(|version| version.get("name").and_then(Value::as_str))
        .map(move |version| json!({"group": group, "version": version, "kind": kind}))
}
