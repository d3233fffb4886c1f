//! Subscriptions: a pass over one, and a pass over all of a namespace.

use jiff::Timestamp;
use olm_classic::cluster::Cluster;
use olm_classic::subscription::{
    DeprecatedEntry, Health, Resolution, ResolveError, Unpacked, conclude, pass, prepare,
};
use serde_json::{Value, json};

use super::super::{Outcome, expect};
use super::{cluster, compare, list, sort_keys, text, texts};

/// The namespace of global catalogs.
const GLOBAL: &str = "olm";

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    let Ok(now) = text(case, "now").parse::<Timestamp>() else {
        return Outcome::Fail("the case has no time".to_owned());
    };
    let cluster = cluster(case);
    match text(case, "kind") {
        "subscription_sync" => subscription(case, &cluster, now),
        "sync_namespace" => namespace(case, &cluster, now),
        other => Outcome::Fail(format!("cannot run cases of kind {other:?}")),
    }
}

fn subscription(case: &Value, cluster: &Cluster, now: Timestamp) -> Outcome {
    let (place, name) = (text(case, "namespace"), text(case, "subscription"));
    let Some(found) = cluster.get("Subscription", place, name) else {
        return Outcome::Fail("the case has no Subscription of this name".to_owned());
    };
    let verdicts = &case["catalog_health"];
    let health = |source: &Value| {
        let metadata = &source["metadata"];
        let key = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
        match text(verdicts, &key) {
            "healthy" => Health::Good,
            "no-reconciler" => Health::Unknown(format!("could not get reconciler for catalog: {key}")),
            verdict => match verdict.strip_prefix("error:") {
                Some(error) => Health::Unknown(error.to_owned()),
                None => Health::Bad,
            },
        }
    };
    let entries: Vec<DeprecatedEntry> = list(case, "cache_entries").into_iter().map(entry).collect();
    let mut subscription = found.clone();
    let mut last = None;
    for _ in 0..case.get("passes").and_then(Value::as_u64).unwrap_or(1) {
        let outcome = pass(&subscription, cluster, GLOBAL, &health, &entries, now);
        if outcome.is_changed {
            subscription = outcome.subscription.clone();
        }
        last = Some(outcome);
    }
    let Some(last) = last else {
        return Outcome::Fail("there is no pass".to_owned());
    };
    let error = last.error.unwrap_or_default();
    let is_expected = match expect(case, "error_contains").as_str() {
        Some(part) => Outcome::compare("error", &true, &error.contains(part)),
        None => Outcome::compare("error", &text(&case["expect"], "error"), &error.as_str()),
    };
    is_expected
        .and(|| compare(case, "status_changed", &json!(last.is_changed)))
        .and(|| {
            let expected = plain(&json!({"status": expect(case, "status")}));
            let found = plain(&json!({"status": subscription["status"]}));
            Outcome::compare("status", &expected, &found)
        })
}

fn entry(recorded: &Value) -> DeprecatedEntry {
    let part = |key: &str| text(recorded, key).to_owned();
    let some = |key: &str| recorded.get(key).and_then(Value::as_str).map(str::to_owned);
    DeprecatedEntry {
        name: part("name"),
        package: part("package"),
        channel: part("channel"),
        catalog: part("catalog"),
        package_deprecation: some("packageDeprecation"),
        channel_deprecation: some("channelDeprecation"),
        bundle_deprecation: some("bundleDeprecation"),
    }
}

/// The value without null and empty fields, keys sorted. Times count.
fn plain(value: &Value) -> Value {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (key.clone(), strip(value)));
                let kept = fields.filter(|(_, value)| match value {
                    Value::Null => false,
                    Value::Object(fields) => !fields.is_empty(),
                    Value::Array(items) => !items.is_empty(),
                    _ => true,
                });
                Value::Object(kept.collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(strip).collect()),
            plain => plain.clone(),
        }
    }
    sort_keys(&strip(value))
}

fn namespace(case: &Value, cluster: &Cluster, now: Timestamp) -> Outcome {
    let place = text(case, "namespace");
    let prepared = prepare(place, cluster, now);
    let deleted: Vec<Value> = prepared
        .deleted
        .iter()
        .map(|name| json!(format!("InstallPlan|{place}|{name}")))
        .collect();
    let (mut written, mut error, mut events) = (prepared.written, prepared.error, Vec::new());
    let is_resolved = prepared.subscriptions.is_some();
    if let Some(subscriptions) = prepared.subscriptions {
        let resolved = resolved(case);
        let unpacked: Vec<Unpacked> = list(case, "unpack").into_iter().map(unpacked).collect();
        let concluded = conclude(place, &subscriptions, cluster, resolved.as_ref(), &unpacked, now);
        written.extend(concluded.written);
        error = error.or(concluded.error);
        events = concluded.events;
    }
    let sorted = |mut values: Vec<Value>| {
        values.sort_by_key(ToString::to_string);
        values
    };
    let recorded = |key: &str| expect(case, key).as_array().cloned().unwrap_or_default();
    let expected = sorted(recorded("objects_written").iter().map(untimed).collect());
    let actual = sorted(written.iter().map(untimed).collect());
    compare(case, "resolver_called", &json!(is_resolved))
        .and(|| {
            let error = error.unwrap_or_default();
            Outcome::compare("error", &text(&case["expect"], "error"), &error.as_str())
        })
        .and(|| Outcome::compare("objects_deleted", &recorded("objects_deleted"), &deleted))
        .and(|| Outcome::compare("objects_written", &expected, &actual))
        .and(|| {
            let events = events.iter();
            let events = events.map(|found| json!(format!("Warning {} {}", found.reason, found.message)));
            let events = sorted(events.collect());
            Outcome::compare("events", &sorted(recorded("events_unordered")), &events)
        })
}

/// An object without the times of conditions of this pass, which the recording does not contain.
fn untimed(object: &Value) -> Value {
    let mut object = plain(object);
    let conditions = object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    let lookups = object
        .pointer_mut("/status/bundleLookups")
        .and_then(Value::as_array_mut);
    for lookup in lookups.into_iter().flatten() {
        if let Some(lookup) = lookup.as_object_mut() {
            lookup.entry("replaces").or_insert_with(|| json!(""));
        }
    }
    object
}

fn resolved(case: &Value) -> Result<Resolution, ResolveError> {
    let recorded = case.get("resolve").unwrap_or(&Value::Null);
    let clauses = texts(recorded, "not_satisfiable");
    if !clauses.is_empty() {
        return Err(ResolveError::NotSatisfiable(clauses));
    }
    if let Some(error) = recorded.get("error").and_then(Value::as_str) {
        return Err(ResolveError::Other(error.to_owned()));
    }
    let all = |key: &str| list(recorded, key).into_iter().cloned().collect();
    let updated = recorded.get("updated").cloned().unwrap_or_else(|| json!({}));
    Ok(Resolution {
        steps: all("steps"),
        bundle_lookups: all("bundle_lookups"),
        updated: serde_json::from_value(updated).unwrap_or_default(),
        ..Resolution::default()
    })
}

fn unpacked(recorded: &Value) -> Unpacked {
    let error = text(recorded, "error").to_owned();
    match recorded.get("error") {
        None => Unpacked::Conditions(list(recorded, "conditions").into_iter().cloned().collect()),
        // The recording joins the errors of the unpacker, and with that forgets which one is fatal.
        Some(_) => Unpacked::Error(error),
    }
}
