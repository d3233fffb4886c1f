//! InstallPlans.

use jiff::{SignedDuration, Timestamp};
use olm_classic::cluster::Cluster;
use olm_classic::install_plan::{
    BundleContent, Origin, PassInput, ServedKinds, Step, UnpackedBundles, bundle_steps, is_supported, pass,
    subscription_step,
};
use olm_classic::registry::TypedValue;
use serde_json::{Map, Value, json};

use super::super::{Outcome, expect};
use super::{compare, compare_objects, list, significant, sort_keys, text};

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    match text(case, "kind") {
        "bundle_steps" => steps_of_bundle(case),
        "subscription_step" => step_of_subscription(case),
        "supported_kind" => supported(case),
        "execute_plan" => execute(case),
        other => Outcome::Fail(format!("cannot run cases of kind {other:?}")),
    }
}

fn origin(case: &Value) -> Origin {
    Origin {
        namespace: text(case, "namespace").to_owned(),
        replaces: text(case, "replaces").to_owned(),
        catalog: text(case, "catalog").to_owned(),
        catalog_namespace: text(case, "catalogNamespace").to_owned(),
    }
}

/// Compares errors. Texts of Go's parsers count as the same.
fn error(case: &Value, found: &str) -> Outcome {
    let expected = expect(case, "error").as_str().unwrap_or_default();
    let of_parser = [
        "unexpected end of JSON input",
        "unexpected EOF",
        "invalid character",
        "json: cannot",
    ];
    let parsed = of_parser.iter().filter_map(|text| expected.find(text)).min();
    match parsed {
        Some(at) => Outcome::compare("error", &expected.get(..at), &found.get(..at)),
        None => Outcome::compare("error", &expected, &found),
    }
}

fn steps_of_bundle(case: &Value) -> Outcome {
    let bundle = &case["bundle"];
    let content = BundleContent {
        csv: text(bundle, "csvJson").to_owned(),
        objects: super::texts(bundle, "object"),
        properties: list(bundle, "properties")
            .into_iter()
            .map(|one| TypedValue {
                kind: text(one, "type").to_owned(),
                value: text(one, "value").to_owned(),
            })
            .collect(),
    };
    match bundle_steps(&content, &origin(case)) {
        Err(found) => error(case, &found.to_string()),
        Ok(_) if case["expect"].get("error").is_some() => {
            Outcome::Fail(format!("no error, expected {}", expect(case, "error")))
        }
        Ok(steps) => {
            let found: Vec<Value> = steps.iter().map(whole).collect();
            let normal = |steps: &Value| sort_keys(&significant(steps));
            Outcome::compare("steps", &normal(expect(case, "steps")), &normal(&json!(found)))
        }
    }
}

fn whole(step: &Step) -> Value {
    json!({
        "resolving": step.resolving, "status": "Unknown", "group": step.group, "version": step.version, "kind": step.kind,
        "name": step.name, "catalogSource": step.source, "catalogSourceNamespace": step.source_namespace,
        "manifest": step.manifest,
    })
}

fn step_of_subscription(case: &Value) -> Outcome {
    let step = subscription_step(
        text(case, "package"),
        text(case, "channel"),
        text(case, "startingCSV"),
        &origin(case),
    );
    compare(case, "name", &json!(step.name))
        .and(|| compare(case, "group", &json!(step.group)))
        .and(|| compare(case, "version", &json!(step.version)))
        .and(|| compare(case, "kind", &json!(step.kind)))
        .and(|| compare(case, "manifest", &step.manifest))
}

fn supported(case: &Value) -> Outcome {
    let kinds = super::texts(case, "kinds");
    let found: Map<String, Value> = kinds
        .into_iter()
        .map(|kind| (kind.clone(), json!(is_supported(&kind))))
        .collect();
    compare(case, "supported", &Value::Object(found))
}

fn execute(case: &Value) -> Outcome {
    let mut objects: Vec<Value> = [list(case, "objects"), list(case, "custom_resources")]
        .concat()
        .into_iter()
        .cloned()
        .collect();
    let mut served = ServedKinds::default();
    for group in list(case, "discovery") {
        for resource in list(group, "resources") {
            let is_namespaced = resource["namespaced"] == json!(true);
            served.add(text(group, "groupVersion"), text(resource, "kind"), is_namespaced);
        }
    }
    let Ok(now) = text(case, "now").parse::<Timestamp>() else {
        return Outcome::Fail("the case has no time".to_owned());
    };
    let seconds = case["timeout_seconds"].as_i64().unwrap_or_default();
    let mut plan = case["plan"].clone();
    let (mut written, mut events, mut failed) = (Vec::new(), Vec::new(), None);
    for _ in 0..case["passes"].as_u64().unwrap_or(1) {
        let cluster: Cluster = objects.iter().cloned().collect();
        let facts = PassInput {
            cluster: &cluster,
            bundles: &UnpackedBundles::new(),
            served: &served,
            global_namespace: "olm",
            retry_for: SignedDuration::from_secs(seconds),
        };
        let outcome = pass(&plan, &facts, now);
        plan = outcome.plan;
        for write in outcome.written {
            objects.push(write.object.clone());
            written.push(write.object);
        }
        events.extend(outcome.events);
        failed = outcome.error;
    }
    let status = &plan["status"];
    let steps: Vec<Value> = list(status, "plan")
        .into_iter()
        .map(|step| json!({"kind": step["resource"]["kind"], "name": step["resource"]["name"], "status": step["status"]}))
        .collect();
    let conditions: Vec<Value> = list(status, "conditions")
        .into_iter()
        .map(|one| json!({"type": one["type"], "status": one["status"], "reason": text(one, "reason"), "message": text(one, "message")}))
        .collect();
    let mut events: Vec<Value> = events
        .into_iter()
        .map(|(reason, message)| json!(format!("Warning {reason} {message}")))
        .collect();
    events.sort_by_key(Value::to_string);
    error(case, failed.as_deref().unwrap_or_default())
        .and(|| compare(case, "phase", &status["phase"]))
        .and(|| compare(case, "steps", &json!(steps)))
        .and(|| {
            Outcome::compare(
                "conditions",
                &json!(list(&case["expect"], "conditions")),
                &json!(conditions),
            )
        })
        .and(|| compare(case, "startTime", &status["startTime"]))
        .and(|| match case["expect"].get("error") {
            Some(_) => Outcome::Pass,
            None => Outcome::compare(
                "message",
                &text(&case["expect"], "message"),
                &text(status, "message"),
            ),
        })
        .and(|| {
            let expected = list(&case["expect"], "objects_written");
            compare_objects(
                "objects_written",
                &expected,
                &written.iter().map(typed).collect::<Vec<_>>(),
            )
        })
        .and(|| {
            let mut expected: Vec<Value> = list(&case["expect"], "events_unordered")
                .into_iter()
                .cloned()
                .collect();
            expected.sort_by_key(Value::to_string);
            Outcome::compare("events", &expected, &events)
        })
}

/// The object with the values that the typed clients of the recording add.
fn typed(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Service" {
        object["status"] = json!({"loadBalancer": {}});
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if port.get("targetPort").is_none() {
                port["targetPort"] = json!(0);
            }
        }
    }
    object
}
