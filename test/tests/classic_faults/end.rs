//! The end of a run: objects that must be the same with faults as without.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use olm_test::world::Lab;
use serde_json::{Value, json};

/// Kinds of which the objects of the operator are counted.
const COUNTED: &str = "serviceaccounts,roles,rolebindings,deployments,services,configmaps";
/// The same at cluster scope.
const CLUSTER: &str = "clusterroles,clusterrolebindings,customresourcedefinitions";

/// Objects of a package, under a name that all runs share.
pub(crate) fn of(lab: &Lab, name: &str) -> Result<Value> {
    let list = |arguments: &[&str]| -> Result<Vec<Value>> {
        let printed = lab.kubectl(&[&["get"], arguments, &["-o", "json"]].concat())?;
        let listed: Value = serde_json::from_str(&printed)?;
        Ok(listed["items"].as_array().context("no list")?.clone())
    };
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for object in list(&[COUNTED, "-n", name])? {
        *count.entry(object["kind"].to_string()).or_default() += 1;
    }
    for object in list(&[CLUSTER])? {
        if object["metadata"]["name"]
            .as_str()
            .is_some_and(|found| found.contains(name))
        {
            *count.entry(object["kind"].to_string()).or_default() += 1;
        }
    }
    let mut plans: Vec<Value> = list(&["installplans", "-n", name])?.iter().map(plan).collect();
    plans.sort_by_key(|plan| plan["generation"].as_i64());
    let subscriptions: Vec<Value> = list(&["subscriptions", "-n", name])?
        .iter()
        .map(subscription)
        .collect();
    let versions: Vec<Value> = list(&["csv", "-n", name])?.iter().map(version).collect();
    let end = json!({"count": count, "plans": plans, "subscriptions": subscriptions, "versions": versions});
    Ok(serde_json::from_str(&end.to_string().replace(name, "NAME"))?)
}

fn plan(found: &Value) -> Value {
    let steps = found["status"]["plan"].as_array().into_iter().flatten();
    // Whether an object was there shows only that a step was repeated.
    let steps = steps.map(|step| {
        let status = step["status"]
            .as_str()
            .map(|status| status.replace("Present", "Created"));
        json!([step["resource"]["kind"], step["resolving"], status])
    });
    json!({
        "generation": found["spec"]["generation"], "approved": found["spec"]["approved"],
        "versions": found["spec"]["clusterServiceVersionNames"], "phase": found["status"]["phase"],
        "steps": steps.collect::<Vec<_>>(),
    })
}

fn subscription(found: &Value) -> Value {
    let status = &found["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut conditions: Vec<String> = conditions
        .map(|one| format!("{} {} {}", one["type"], one["status"], one["reason"]))
        .collect();
    conditions.sort();
    json!({
        "state": status["state"], "current": status["currentCSV"], "installed": status["installedCSV"],
        "generation": status["installPlanGeneration"], "conditions": conditions,
    })
}

fn version(found: &Value) -> Value {
    json!({
        "name": found["metadata"]["name"], "phase": found["status"]["phase"], "replaces": found["spec"]["replaces"],
    })
}
