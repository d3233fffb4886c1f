//! The shipped alerts and the dashboard: their metrics exist, the alerts fire on recorded data, and a real Prometheus
//! fires them on faults of a real cluster.

mod firing;
mod prometheus;
mod promtool;
mod queries;
mod shipped;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use olm_test::world::repository;
use serde::Deserialize;
use serde_json::Value;

/// An alert of the shipped rules.
#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The shipped groups of rules, as Prometheus reads them from a file.
fn rules() -> Result<Value> {
    let path = repository().join("manifests/prometheus/alerts/rules.yaml");
    let text = std::fs::read_to_string(path)?;
    let mut object: Value = olm_yaml::to_json(&text)?;
    Ok(object["spec"].take())
}

/// The shipped alerts.
fn alerts() -> Result<Vec<Alert>> {
    let rules = rules()?;
    let groups = rules["groups"].as_array().context("groups")?;
    let all = groups.iter().filter_map(|group| group["rules"].as_array());
    all.flatten()
        .map(|rule| Ok(serde_json::from_value(rule.clone())?))
        .collect()
}
