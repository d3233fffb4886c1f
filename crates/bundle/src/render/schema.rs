//! The keywords of a custom resource definition's schema.

use serde_json::{Map, Value};

/// The keywords of the API server besides Kubernetes' own, which begin with [`OWN`].
const KEYWORDS: [&str; 37] = [
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];
/// The prefix of Kubernetes' own keywords.
const OWN: &str = "x-kubernetes-";
/// Fields of definitions before `apiextensions.k8s.io/v1`.
const FORMER: [&str; 4] = [
    "additionalPrinterColumns",
    "subresources",
    "validation",
    "version",
];

/// Removes fields that `apiextensions.k8s.io/v1` does not have from a definition's specification: the reference
/// implementation drops them when it decodes the object, and the API server rejects them in a server-side apply.
pub(super) fn drop_unknown(spec: &mut Map<String, Value>) {
    for field in FORMER {
        spec.shift_remove(field);
    }
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    let schemas = versions.into_iter().flatten();
    let mut open: Vec<&mut Value> = schemas
        .filter_map(|version| version.pointer_mut("/schema/openAPIV3Schema"))
        .collect();
    while let Some(schema) = open.pop() {
        let Value::Object(schema) = schema else { continue };
        schema.retain(|key, _| key.starts_with(OWN) || KEYWORDS.contains(&key.as_str()));
        for (key, value) in schema {
            match (key.as_str(), value) {
                (
                    "properties" | "patternProperties" | "definitions" | "dependencies",
                    Value::Object(named),
                ) => {
                    open.extend(named.values_mut());
                }
                ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(several)) => open.extend(several),
                ("items" | "additionalProperties" | "additionalItems" | "not", value @ Value::Object(_)) => {
                    open.push(value);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_unknown_to_the_api_server_are_left_out_at_every_depth() {
        let schema = |extra: &Value| {
            let mut inner =
                json!({"type": "string", "x-kubernetes-int-or-string": true, "uniqueItems": true});
            if let (Some(inner), Some(extra)) = (inner.as_object_mut(), extra.as_object()) {
                inner.extend(extra.clone());
            }
            json!({
                "type": "object",
                // A property may have any name, and a default any value.
                "properties": {"readOnly": inner, "list": {"items": inner, "default": [{"readOnly": true}]}},
                "additionalProperties": inner, "allOf": [inner], "not": inner,
                "enum": [{"readOnly": 1}],
            })
        };
        let spec = |extra: &Value| {
            json!({"group": "g", "versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": schema(extra)}}, {"name": "v2"},
            ]})
        };
        let sound = spec(&json!({}));
        let mut odd = spec(&json!({"readOnly": true, "discriminator": {"propertyName": "x"}}));
        odd["version"] = json!("v1");
        odd["validation"] = json!({});
        for given in [sound.clone(), odd] {
            let mut found = given;
            drop_unknown(found.as_object_mut().expect("an object"));
            assert_eq!(found, sound);
        }
    }
}
