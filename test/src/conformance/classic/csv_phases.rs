//! Passes over ClusterServiceVersions.

use jiff::Timestamp;
use olm_classic::csv::phases::{CsvDecision, pass};
use olm_classic::csv::requirements::ClusterFacts;
use olm_classic::install::{IssuedCertificate, Issuer};
use serde_json::{Map, Value, json};

use super::super::{Outcome, expect};
use super::csv_requirements::{UNKNOWN_VERSION, discovery};
use super::operatorgroup::with_kind;
use super::{cluster, compare, compare_objects, one_of, significant, text};

/// Makes the same certificate for everyone.
struct Fixed;

impl Issuer for Fixed {
    fn issue(&self, _: &[String]) -> Result<IssuedCertificate, String> {
        Ok(IssuedCertificate {
            authority: "authority".to_owned(),
            certificate: "certificate".to_owned(),
            key: "key".to_owned(),
            expires: Timestamp::MAX,
        })
    }
}

/// Runs a case. Where several outcomes are recorded, one of them does.
pub fn run(case: &Value) -> Outcome {
    one_of(case, |expected| {
        let mut case = case.clone();
        case["expect"] = expected.clone();
        run_one(&case)
    })
}

fn run_one(case: &Value) -> Outcome {
    let cluster = cluster(case);
    let Some(csv) = cluster.get(
        "ClusterServiceVersion",
        text(case, "namespace"),
        text(case, "csv"),
    ) else {
        return Outcome::Fail("the case has no ClusterServiceVersion of this name".to_owned());
    };
    let Ok(now) = text(case, "now").parse() else {
        return Outcome::Fail("the case has no time".to_owned());
    };
    let discovery = discovery(case);
    let server_version = case.get("serverVersion").and_then(Value::as_str);
    let facts = ClusterFacts {
        cluster: &cluster,
        discovery: &discovery,
        server_version: Some(server_version.unwrap_or(UNKNOWN_VERSION)),
    };
    let decision = match pass(csv, &facts, &Fixed, now) {
        Ok(decision) => decision,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    if expect(case, "unchanged") == true {
        return Outcome::compare("the object", csv, &decision.csv);
    }
    status(case, &decision)
        .and(|| marks(case, &decision))
        .and(|| objects(case, &decision))
}

fn status(case: &Value, decision: &CsvDecision) -> Outcome {
    let field = |key: &str| json!(decision.csv["status"][key].as_str().unwrap_or_default());
    let is_transitioned = text(case, "now") == text(&decision.csv["status"], "lastTransitionTime");
    let rows = significant(&decision.csv["status"]["requirementStatus"]);
    compare(case, "phase", &field("phase"))
        .and(|| compare(case, "reason", &field("reason")))
        .and(|| compare(case, "message", &field("message")))
        .and(|| compare(case, "sync_error", &json!(decision.error)))
        .and(|| compare(case, "conditions", &history(decision)))
        .and(|| {
            let expected = expect(case, "transitioned") == true;
            Outcome::compare("transitioned", &expected, &is_transitioned)
        })
        .and(|| {
            let expected = significant(expect(case, "requirementStatus"));
            Outcome::compare("requirementStatus", &expected, &rows)
        })
}

/// The history without times; null if it is empty.
fn history(decision: &CsvDecision) -> Value {
    let entries = decision.csv["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let entries: Vec<Value> = entries
        .map(|entry| json!({"message": entry["message"], "phase": entry["phase"], "reason": entry["reason"]}))
        .map(|entry| significant(&entry))
        .collect();
    if entries.is_empty() {
        Value::Null
    } else {
        json!(entries)
    }
}

/// The annotations and labels of OLM on the result.
fn marks(case: &Value, decision: &CsvDecision) -> Outcome {
    let of_olm = |key: &str| {
        let map = decision.csv["metadata"][key].as_object().into_iter().flatten();
        let map: Map<String, Value> = map
            .filter(|(key, _)| key.starts_with("olm."))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if map.is_empty() {
            Value::Null
        } else {
            Value::Object(map)
        }
    };
    let expected = |key: &str| match expect(case, key) {
        Value::Object(map) if map.is_empty() => Value::Null,
        other => other.clone(),
    };
    Outcome::compare(
        "olm_annotations",
        &expected("olm_annotations"),
        &of_olm("annotations"),
    )
    .and(|| Outcome::compare("olm_labels", &expected("olm_labels"), &of_olm("labels")))
}

fn objects(case: &Value, decision: &CsvDecision) -> Outcome {
    let list = |key: &str| expect(case, key).as_array().cloned().unwrap_or_default();
    let written: Vec<Value> = list("objects_written").iter().map(with_kind).collect();
    let deleted: Vec<Value> = decision
        .deleted
        .iter()
        .map(|(kind, namespace, name)| json!(format!("{kind}|{namespace}|{name}")))
        .collect();
    let actual: Vec<Value> = decision.written.iter().map(recorded).collect();
    compare_objects("objects_written", &written.iter().collect::<Vec<_>>(), &actual)
        .and(|| Outcome::compare("objects_deleted", &list("objects_deleted"), &deleted))
}

/// An object in the recorded form: placeholders for values derived from a certificate, no data of Secrets, a generated
/// name.
fn recorded(object: &Value) -> Value {
    let mut object = replaced(object);
    let is_serving = object
        .pointer("/spec/template/metadata/annotations/olmcahash")
        .is_some();
    if is_serving && let Some(hash) = object.pointer_mut("/metadata/labels/olm.deployment-spec-hash") {
        *hash = json!("<hash depends on the random certificate>");
    }
    let generated = object.pointer("/metadata/generateName").and_then(Value::as_str);
    if let Some(name) = generated.map(|name| format!("{name}<generated>")) {
        object["metadata"]["name"] = json!(name);
    }
    if let Some(data) = object.as_object_mut().and_then(|object| object.remove("data")) {
        let mut keys: Vec<&String> = data
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .collect();
        keys.sort();
        object["data_keys"] = json!(keys);
    }
    match text(&object, "kind") {
        // The typed clients of the recording add this.
        "Service" => object["status"] = json!({"loadBalancer": {}}),
        "CustomResourceDefinition" => {
            object["status"]["acceptedNames"] = json!({"kind": "", "plural": ""});
        }
        _ => {}
    }
    object
}

/// The value with placeholders for authorities and their hashes.
fn replaced(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("caBundle", Value::String(_)) => json!("<ca-bundle>"),
                    ("olmcahash", Value::String(_)) => json!("<ca-hash>"),
                    _ => replaced(value),
                };
                (key.clone(), value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(replaced).collect()),
        plain => plain.clone(),
    }
}
