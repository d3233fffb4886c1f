//! InstallPlans: the steps of a bundle, and a pass over a plan that carries them out.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, items, put, text};

mod definitions;
mod execute;
mod failure;
mod objects;
mod reference;
mod schema;
mod steps;

pub use objects::is_supported;
pub use steps::{BundleContent, Origin, Step, StepsError, bundle_steps, subscription_step};

/// The kinds that the API server serves, and whether their objects are in namespaces, by `group/version`.
#[derive(Debug, Clone, Default)]
pub struct Served(BTreeMap<String, BTreeMap<String, bool>>);

impl Served {
    /// Adds a kind of `group/version`.
    pub fn add(&mut self, group_version: &str, kind: &str, is_namespaced: bool) {
        let kinds = self.0.entry(group_version.to_owned()).or_default();
        kinds.insert(kind.to_owned(), is_namespaced);
    }

    /// The kinds of `group/version` with whether their objects are in namespaces; `None` where it is not served.
    fn kinds(&self, group_version: &str) -> Option<&BTreeMap<String, bool>> {
        self.0.get(group_version)
    }
}

/// What a pass over a plan reads.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The objects that the steps name, custom resources of CRDs that steps replace, ClusterServiceVersions, and the
    /// ConfigMaps with unpacked bundles.
    pub cluster: &'a Cluster,
    /// What the API server serves.
    pub served: &'a Served,
    /// The namespace from which pull Secrets are copied.
    pub global_namespace: &'a str,
    /// How long after its start a failing plan is tried again.
    pub retry_for: SignedDuration,
}

/// What a pass over a plan wants done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The plan with its status after the pass. The status holds once all objects of `written` are written: a caller writes
    /// them first.
    pub plan: Value,
    /// The objects to write, whole, in this order. The UID of an owner that the pass itself creates is empty: it is filled in
    /// when the object is written.
    pub written: Vec<Value>,
    /// Warning events on the plan, as reason and message.
    pub events: Vec<(String, String)>,
    /// Why the plan could not be carried out.
    pub error: Option<String>,
    /// Whether the API of a created CRD is waited for: the pass is tried again soon.
    pub is_waiting: bool,
}

/// One pass over an InstallPlan as it is on the wire. A plan that waits for its approval, is complete or has failed stays as it
/// is.
pub fn pass(plan: &Value, facts: &Facts<'_>, now: Timestamp) -> Outcome {
    let mut outcome = Outcome {
        plan: plan.clone(),
        ..Outcome::default()
    };
    match text(plan, "/status/phase") {
        "RequiresApproval" if plan.pointer("/spec/approved") == Some(&Value::Bool(true)) => {
            put(&mut outcome.plan, &["status"], "phase", "Installing");
            put(&mut outcome.plan, &["status"], "message", "");
        }
        "Installing" => install(&mut outcome, facts, now),
        _ => {}
    }
    outcome
}

fn install(outcome: &mut Outcome, facts: &Facts<'_>, now: Timestamp) {
    let started = text(&outcome.plan, "/status/startTime").parse::<Timestamp>().ok();
    if started.is_none() {
        put(&mut outcome.plan, &["status"], "startTime", format!("{now:.0}"));
    }
    let done = execute::execute(&outcome.plan, facts);
    outcome.written = done.written;
    outcome.events = done.events;
    set_statuses(&mut outcome.plan, &done.statuses);
    if let Some(error) = done.error {
        let is_over = now.duration_since(started.unwrap_or(now)) >= facts.retry_for;
        if is_over {
            put(&mut outcome.plan, &["status"], "phase", "Failed");
            put(&mut outcome.plan, &["status"], "message", error.as_str());
            condition(&mut outcome.plan, "False", "InstallComponentFailed", &error, now);
        } else {
            let message = format!("retrying execution due to error: {error}");
            put(&mut outcome.plan, &["status"], "message", message);
        }
        outcome.error = Some(error);
        return;
    }
    outcome.is_waiting = done.statuses.iter().any(|status| status == WAITING);
    if !outcome.is_waiting {
        put(&mut outcome.plan, &["status"], "phase", "Complete");
        put(&mut outcome.plan, &["status"], "message", "");
        condition(&mut outcome.plan, "True", "", "", now);
    }
}

/// The status of a step whose CRD is not served yet.
const WAITING: &str = "WaitingForApi";

fn set_statuses(plan: &mut Value, statuses: &[String]) {
    let steps = plan.pointer_mut("/status/plan").and_then(Value::as_array_mut);
    for (step, status) in steps.into_iter().flatten().zip(statuses) {
        put(step, &[], "status", status.as_str());
    }
}

/// Sets the condition `Installed`.
fn condition(plan: &mut Value, status: &str, reason: &str, message: &str, now: Timestamp) {
    let now = format!("{now:.0}");
    let mut conditions: Vec<Value> = items(plan, "/status/conditions").cloned().collect();
    let old = conditions
        .iter_mut()
        .find(|found| text(found, "/type") == "Installed");
    let since = old
        .as_ref()
        .filter(|old| text(old, "/status") == status)
        .map_or(now.as_str(), |old| text(old, "/lastTransitionTime"))
        .to_owned();
    let mut new = json!({
        "type": "Installed", "status": status, "lastUpdateTime": now, "lastTransitionTime": since,
    });
    for (key, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            put(&mut new, &[], key, value);
        }
    }
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    put(plan, &["status"], "conditions", conditions);
}

#[cfg(test)]
mod tests;
