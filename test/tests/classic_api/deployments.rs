//! The schema of Deployments is complete: the server would prune a field that it lacks.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use crate::SERVER;

/// Differences of the schema from the server's; the Go implementation has all but the last.
const DIFFERENCES: &[&str] = &[
    // An address may be absent there.
    ".template.spec.hostAliases[].ip default",
    // Defaults that the server takes from elsewhere.
    ".template.spec.volumes[].azureDisk.cachingMode default",
    ".template.spec.volumes[].azureDisk.kind default",
    // References that are applied as a whole.
    ".template.spec.containers[].envFrom[].configMapRef x-kubernetes-map-type",
    ".template.spec.containers[].envFrom[].secretRef x-kubernetes-map-type",
    ".template.spec.ephemeralContainers[].envFrom[].configMapRef x-kubernetes-map-type",
    ".template.spec.ephemeralContainers[].envFrom[].secretRef x-kubernetes-map-type",
    ".template.spec.initContainers[].envFrom[].configMapRef x-kubernetes-map-type",
    ".template.spec.initContainers[].envFrom[].secretRef x-kubernetes-map-type",
    ".template.spec.volumes[].configMap x-kubernetes-map-type",
    ".template.spec.volumes[].projected.sources[].configMap x-kubernetes-map-type",
    ".template.spec.volumes[].projected.sources[].secret x-kubernetes-map-type",
    // Labels and annotations are kept without being listed.
    ".template.metadata x-kubernetes-preserve-unknown-fields",
    ".template.spec.volumes[].ephemeral.volumeClaimTemplate.metadata x-kubernetes-preserve-unknown-fields",
];

#[test]
fn the_schema_of_deployments_is_that_of_the_server() -> Result<()> {
    SERVER.with(async |server| {
        let document = server.get("/openapi/v3/apis/apps/v1", "application/json").await?;
        let schemas = document.pointer("/components/schemas").context("no schemas")?;
        let expected = definition(schemas, "io.k8s.api.apps.v1.DeploymentSpec");
        let csv = olm_classic::crds::all()
            .into_iter()
            .find(|found| found["spec"]["names"]["kind"] == "ClusterServiceVersion")
            .context("no ClusterServiceVersion")?;
        let found = csv
            .pointer(
                "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/install/properties/spec",
            )
            .and_then(|spec| spec.pointer("/properties/deployments/items/properties/spec"))
            .context("no Deployments")?;
        let mut differences = BTreeSet::new();
        compare("", found, &expected, &mut differences);
        let differences: BTreeSet<&str> = differences.iter().map(String::as_str).collect();
        let known: BTreeSet<&str> = DIFFERENCES.iter().copied().collect();
        let new: Vec<_> = differences.difference(&known).collect();
        let gone: Vec<_> = known.difference(&differences).collect();
        ensure!(
            new.is_empty() && gone.is_empty(),
            "new: {new:#?}, gone: {gone:#?}"
        );
        Ok(())
    })
}

/// A schema of the server by its name, in the words of definitions.
fn definition(schemas: &Value, name: &str) -> Value {
    let integer_or_text =
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
    match name.rsplit('.').next() {
        Some("IntOrString") => integer_or_text,
        Some("Quantity") => {
            let mut quantity = integer_or_text;
            quantity["pattern"] = json!("");
            quantity
        }
        Some("Time") => json!({"type": "string", "format": "date-time"}),
        Some("ObjectMeta") => json!({"type": "object"}),
        _ => in_our_words(schemas, &schemas[name], true),
    }
}

/// `is_required`: the server's documents give such fields the zero value of their Go type as a default.
fn in_our_words(schemas: &Value, schema: &Value, is_required: bool) -> Value {
    let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"));
    let mut found = Map::new();
    if let Some(name) = reference.and_then(Value::as_str) {
        let name = name.rsplit('/').next().unwrap_or_default();
        if let Value::Object(members) = definition(schemas, name) {
            found = members;
        }
    }
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, value) in schema.as_object().into_iter().flatten() {
        let value = match key.as_str() {
            "type"
            | "format"
            | "required"
            | "x-kubernetes-list-type"
            | "x-kubernetes-list-map-keys"
            | "x-kubernetes-map-type" => value.clone(),
            "default" if !is_required && *value != json!({}) => value.clone(),
            "items" | "additionalProperties" => in_our_words(schemas, value, true),
            "properties" => {
                let members = value.as_object().into_iter().flatten();
                let members = members.map(|(name, member)| {
                    (
                        name.clone(),
                        in_our_words(schemas, member, required.contains(&name.as_str())),
                    )
                });
                Value::Object(members.collect())
            }
            _ => continue,
        };
        found.insert(key.clone(), value);
    }
    Value::Object(found)
}

/// Differences of two schemas, without their descriptions and the pattern of quantities.
fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut BTreeSet<String>) {
    let keys = |schema: &Value| -> BTreeSet<String> {
        let keys = schema
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone());
        keys.filter(|key| !["description", "pattern"].contains(&key.as_str()))
            .collect()
    };
    for key in keys(ours).union(&keys(theirs)) {
        let (ours, theirs) = (&ours[key.as_str()], &theirs[key.as_str()]);
        match key.as_str() {
            "properties" => {
                for name in keys_of(ours).union(&keys_of(theirs)) {
                    let path = format!("{path}.{name}");
                    match (ours.get(name), theirs.get(name)) {
                        (Some(ours), Some(theirs)) => compare(&path, ours, theirs, differences),
                        _ => {
                            differences.insert(path);
                        }
                    }
                }
            }
            "items" => compare(&format!("{path}[]"), ours, theirs, differences),
            "additionalProperties" => compare(&format!("{path}{{}}"), ours, theirs, differences),
            "required" if sorted(ours) == sorted(theirs) => {}
            _ if ours == theirs => {}
            _ => {
                differences.insert(format!("{path} {key}"));
            }
        }
    }
}

fn keys_of(schema: &Value) -> BTreeSet<String> {
    schema
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.clone())
        .collect()
}

fn sorted(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    texts.sort();
    texts
}
