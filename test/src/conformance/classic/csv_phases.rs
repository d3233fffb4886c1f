//! Passes over ClusterServiceVersions.

use olm_classic::csv::phases::{Outcome as Passed, pass};
use olm_classic::csv::requirements::Facts;
use serde_json::{Map, Value, json};

use super::super::{Outcome, expect};
use super::csv_requirements::{UNKNOWN_VERSION, discovery};
use super::{cluster, compare, compare_objects, significant, text};

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    let cluster = cluster(case);
    let Some(csv) = cluster.get("ClusterServiceVersion", text(case, "namespace"), text(case, "csv")) else {
        return Outcome::Fail("the case has no ClusterServiceVersion of this name".to_owned());
    };
    let Ok(now) = text(case, "now").parse() else {
        return Outcome::Fail("the case has no time".to_owned());
    };
    let discovery = discovery(case);
    let server_version = case.get("serverVersion").and_then(Value::as_str);
    let facts = Facts {
        cluster: &cluster,
        discovery: &discovery,
        server_version: Some(server_version.unwrap_or(UNKNOWN_VERSION)),
    };
    let passed = match pass(csv, &facts, now) {
        Ok(passed) => passed,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    if expect(case, "unchanged") == true {
        return Outcome::compare("the object", csv, &passed.csv);
    }
    status(case, &passed)
        .and(|| marks(case, &passed))
        .and(|| objects(case, &passed))
}

fn status(case: &Value, passed: &Passed) -> Outcome {
    let field = |key: &str| json!(passed.csv["status"][key].as_str().unwrap_or_default());
    let is_transitioned = text(case, "now") == text(&passed.csv["status"], "lastTransitionTime");
    let rows = significant(&passed.csv["status"]["requirementStatus"]);
    compare(case, "phase", &field("phase"))
        .and(|| compare(case, "reason", &field("reason")))
        .and(|| compare(case, "message", &field("message")))
        .and(|| compare(case, "sync_error", &json!(passed.error)))
        .and(|| compare(case, "conditions", &history(passed)))
        .and(|| {
            let expected = expect(case, "transitioned") == true;
            Outcome::compare("transitioned", &expected, &is_transitioned)
        })
        .and(|| {
            let expected = significant(expect(case, "requirementStatus"));
            Outcome::compare("requirementStatus", &expected, &rows)
        })
}

/// The history without times; null where it is empty.
fn history(passed: &Passed) -> Value {
    let entries = passed.csv["status"]["conditions"].as_array().into_iter().flatten();
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
fn marks(case: &Value, passed: &Passed) -> Outcome {
    let of_olm = |key: &str| {
        let map = passed.csv["metadata"][key].as_object().into_iter().flatten();
        let map: Map<String, Value> = map
            .filter(|(key, _)| key.starts_with("olm."))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if map.is_empty() { Value::Null } else { Value::Object(map) }
    };
    let expected = |key: &str| match expect(case, key) {
        Value::Object(map) if map.is_empty() => Value::Null,
        other => other.clone(),
    };
    Outcome::compare("olm_annotations", &expected("olm_annotations"), &of_olm("annotations"))
        .and(|| Outcome::compare("olm_labels", &expected("olm_labels"), &of_olm("labels")))
}

fn objects(case: &Value, passed: &Passed) -> Outcome {
    let list = |key: &str| expect(case, key).as_array().cloned().unwrap_or_default();
    let written = list("objects_written");
    let deleted: Vec<Value> = passed
        .deleted
        .iter()
        .map(|(kind, namespace, name)| json!(format!("{kind}|{namespace}|{name}")))
        .collect();
    compare_objects("objects_written", &written.iter().collect::<Vec<_>>(), &passed.written)
        .and(|| Outcome::compare("objects_deleted", &list("objects_deleted"), &deleted))
}
