//! The annotation with the properties of a bundle on its ClusterServiceVersion.

use olm_bundle::names::go_json;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::registry::TypedValue;
use crate::wire::{UNEXPECTED_END, json_fault};

/// The properties in the text of the annotation. A property without a value has the empty text.
///
/// # Errors
/// When the text is not JSON of that shape.
pub fn read_annotation(text: &str) -> Result<Vec<TypedValue>, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Annotation<'a> {
        #[serde(borrow)]
        properties: Option<Vec<Item<'a>>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Item<'a> {
        #[serde(rename = "type")]
        kind: String,
        #[serde(borrow, deserialize_with = "raw")]
        value: Option<&'a RawValue>,
    }
    // A null is a value like any other.
    fn raw<'a, 'de: 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Some)
    }
    let annotation: Annotation<'_> = serde_json::from_str(text)
        .map_err(|error| json_fault(&error, UNEXPECTED_END))
        .map_err(|fault| format!("failed to unmarshal properties annotation: {fault}"))?;
    let items = annotation.properties.unwrap_or_default().into_iter();
    Ok(items
        .map(|item| TypedValue {
            kind: item.kind,
            value: item.value.map(|value| value.get().to_owned()).unwrap_or_default(),
        })
        .collect())
}

/// The text of the annotation.
///
/// # Errors
/// When a value is not JSON.
pub fn write_annotation(properties: &[TypedValue]) -> Result<String, String> {
    if properties.is_empty() {
        return Ok("{}".to_owned());
    }
    let mut items = Vec::new();
    for property in properties {
        let value: serde_json::Value = serde_json::from_str(&property.value).map_err(|error| {
            let fault = json_fault(&error, UNEXPECTED_END);
            format!(
                "failed to marshal properties annotation: json: error calling MarshalJSON for type json.RawMessage: {fault}"
            )
        })?;
        items.push(format!(
            "{{\"type\":{},\"value\":{}}}",
            go_json(&property.kind),
            go_json(&value)
        ));
    }
    Ok(format!("{{\"properties\":[{}]}}", items.join(",")))
}
