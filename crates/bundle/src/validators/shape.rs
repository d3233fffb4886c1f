//! Whether the fields of a ClusterServiceVersion have the types that they are read with.
//!
//! Only fields that are typed in the API are looked at; pod specifications and webhook rules are those of Kubernetes, which
//! checks them itself.

use serde_json::Value;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Boolean,
    Any,
    List(&'static Self),
    Map,
    Object(&'static [(&'static str, Self)]),
}

use Shape::{Any, Boolean, List, Map, Object, Text};

const RESOURCE: Shape = Object(&[("name", Text), ("kind", Text), ("version", Text)]);
const DESCRIPTOR: Shape = Object(&[
    ("path", Text),
    ("displayName", Text),
    ("description", Text),
    ("x-descriptors", List(&Text)),
]);
const DEFINITION: Shape = Object(&[
    ("name", Text),
    ("group", Text),
    ("version", Text),
    ("kind", Text),
    ("deploymentName", Text),
    ("displayName", Text),
    ("description", Text),
    ("resources", List(&RESOURCE)),
    ("statusDescriptors", List(&DESCRIPTOR)),
    ("specDescriptors", List(&DESCRIPTOR)),
    ("actionDescriptors", List(&DESCRIPTOR)),
]);
const DEFINITIONS: Shape = Object(&[("owned", List(&DEFINITION)), ("required", List(&DEFINITION))]);
const RULE: Shape = Object(&[
    ("verbs", List(&Text)),
    ("apiGroups", List(&Text)),
    ("resources", List(&Text)),
    ("resourceNames", List(&Text)),
    ("nonResourceURLs", List(&Text)),
]);
const PERMISSION: Shape = Object(&[("serviceAccountName", Text), ("rules", List(&RULE))]);
const DEPLOYMENT: Shape = Object(&[("name", Text), ("label", Map), ("spec", Object(&[]))]);
const INSTALL: Shape = Object(&[
    ("strategy", Text),
    (
        "spec",
        Object(&[
            ("deployments", List(&DEPLOYMENT)),
            ("permissions", List(&PERMISSION)),
            ("clusterPermissions", List(&PERMISSION)),
        ]),
    ),
]);
const WEBHOOK: Shape = Object(&[
    ("generateName", Text),
    ("type", Text),
    ("deploymentName", Text),
    ("rules", List(&Any)),
    ("admissionReviewVersions", List(&Text)),
    ("webhookPath", Text),
    ("conversionCRDs", List(&Text)),
]);
const LINK: Shape = Object(&[("name", Text), ("url", Text)]);
const SPEC: Shape = Object(&[
    ("install", INSTALL),
    ("version", Text),
    ("release", Text),
    ("maturity", Text),
    ("customresourcedefinitions", DEFINITIONS),
    ("apiservicedefinitions", DEFINITIONS),
    ("webhookdefinitions", List(&WEBHOOK)),
    (
        "nativeAPIs",
        List(&Object(&[("group", Text), ("version", Text), ("kind", Text)])),
    ),
    ("minKubeVersion", Text),
    ("displayName", Text),
    ("description", Text),
    ("keywords", List(&Text)),
    ("maintainers", List(&Object(&[("name", Text), ("email", Text)]))),
    ("provider", LINK),
    ("links", List(&LINK)),
    (
        "icon",
        List(&Object(&[("base64data", Text), ("mediatype", Text)])),
    ),
    (
        "installModes",
        List(&Object(&[("type", Text), ("supported", Boolean)])),
    ),
    ("replaces", Text),
    ("labels", Map),
    ("annotations", Map),
    ("selector", Object(&[])),
    ("cleanup", Object(&[("enabled", Boolean)])),
    ("skips", List(&Text)),
    ("relatedImages", List(&Object(&[("name", Text), ("image", Text)]))),
]);
const CSV: Shape = Object(&[
    ("apiVersion", Text),
    ("kind", Text),
    (
        "metadata",
        Object(&[("name", Text), ("labels", Map), ("annotations", Map)]),
    ),
    ("spec", SPEC),
]);

/// Every field of a ClusterServiceVersion whose value is of another type: what it is and has to be. Numbers and booleans
/// where a text belongs are taken for their text, as authors expect of YAML.
pub(super) fn faults(csv: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Vec<(String, &Value, Shape)> = vec![(String::new(), csv, CSV)];
    while let Some((path, value, shape)) = open.pop() {
        let fits = match (value, shape) {
            (Value::Null, _)
            | (_, Any)
            | (Value::Bool(_), Boolean)
            | (Value::String(_) | Value::Number(_) | Value::Bool(_), Text) => true,
            (Value::Array(elements), List(inner)) => {
                let elements = elements.iter().enumerate().rev();
                open.extend(elements.map(|(at, element)| (format!("{path}[{at}]"), element, *inner)));
                true
            }
            (Value::Object(members), Map) => {
                let members = members.iter();
                open.extend(members.map(|(key, member)| (format!("{path}.{key}"), member, Text)));
                true
            }
            (Value::Object(members), Object(fields)) => {
                let fields = fields.iter().rev();
                open.extend(fields.filter_map(|(name, inner)| {
                    let separator = if path.is_empty() { "" } else { "." };
                    Some((format!("{path}{separator}{name}"), members.get(*name)?, *inner))
                }));
                true
            }
            _ => false,
        };
        if !fits {
            faults.push(format!("{path} must be {}, not {}", wanted(shape), found(value)));
        }
    }
    faults
}

fn wanted(shape: Shape) -> &'static str {
    match shape {
        Text => "a text",
        Boolean => "true or false",
        Any => "anything",
        List(_) => "a list",
        Map | Object(_) => "a mapping",
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
