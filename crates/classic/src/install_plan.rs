//! InstallPlans: the steps of a bundle, and a pass over a plan that carries them out.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, items, put, text};

mod account;
mod approval;
mod definitions;
mod execute;
mod files;
mod objects;
mod reference;
mod repair;
mod schema;
mod step_error;
mod steps;
mod typed;

pub use account::{AccountLookup, look_up_account};
pub use approval::{approval, edited, plan_digest, refused};
pub use definitions::{DefinitionWrites, Replacement};
pub use execute::{pending, wanted_definitions};
pub use files::{FilesError, read_bundle};
pub use objects::{is_installable, is_supported};
pub use reference::{BundleReference, UnpackedBundles, bundle_name, references, referring_steps};
pub use repair::{given_up, is_repair};
pub use steps::{BundleContent, Origin, Step, StepsError, bundle_steps, subscription_step};

/// The kinds that the API server serves, and whether their objects are in namespaces, by `group/version`.
#[derive(Debug, Clone, Default)]
pub struct ServedKinds(BTreeMap<String, BTreeMap<String, bool>>);

impl ServedKinds {
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

/// Input of a pass over a plan.
#[derive(Debug, Clone, Copy)]
pub struct PassInput<'a> {
    /// The objects that the steps name, custom resources of CRDs that steps replace, ClusterServiceVersions, and
    /// ConfigMaps with unpacked bundles.
    pub cluster: &'a Cluster,
    /// Unpacked bundles that stand in no ConfigMap.
    pub bundles: &'a UnpackedBundles,
    /// The APIs that the API server serves.
    pub served: &'a ServedKinds,
    /// The namespace from which pull Secrets are copied.
    pub global_namespace: &'a str,
    /// Time after its start during which a failing plan is retried.
    pub retry_for: SignedDuration,
}

/// An object that a step writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The position of the step in the plan.
    pub step: usize,
    /// The object, whole.
    pub object: Value,
}

/// Time limit of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryLimit {
    /// As long as the plan may fail.
    Limited,
    /// Until the failure ends: others can end it.
    Endless,
}

/// Result of a pass over a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstallPlanDecision {
    /// The plan with its status after the pass. The status holds once all objects of `written` are written: a caller
    /// writes them first, and passes a failure to [`interrupted`].
    pub plan: Value,
    /// The objects to write, in this order: CustomResourceDefinitions first. The UID of an owner that the pass itself
    /// creates is empty: it is filled in when the object is written.
    pub written: Vec<Write>,
    /// Warning events on the plan, as reason and message.
    pub events: Vec<(String, String)>,
    /// Error that keeps the plan from being carried out.
    pub error: Option<String>,
    /// Whether the API of a created CRD is waited for: the pass is tried again soon.
    pub is_waiting: bool,
}

/// One pass over an InstallPlan as it is on the wire. A plan that waits for its approval, is complete or has failed
/// stays as it is.
pub fn pass(plan: &Value, facts: &PassInput<'_>, now: Timestamp) -> InstallPlanDecision {
    let mut decision = InstallPlanDecision {
        plan: plan.clone(),
        ..InstallPlanDecision::default()
    };
    match text(plan, "/status/phase") {
        "RequiresApproval" if plan.pointer("/spec/approved") == Some(&Value::Bool(true)) => {
            put(&mut decision.plan, &["status"], "phase", "Installing");
            put(&mut decision.plan, &["status"], "message", "");
        }
        "Installing" => install(&mut decision, facts, now),
        _ => {}
    }
    decision
}

fn install(decision: &mut InstallPlanDecision, facts: &PassInput<'_>, now: Timestamp) {
    if started(&decision.plan).is_none() {
        put(&mut decision.plan, &["status"], "startTime", format!("{now:.0}"));
    }
    let execution = execute::execute(&decision.plan, facts);
    decision.written = execution.written;
    decision.events = execution.events;
    set_statuses(&mut decision.plan, &execution.statuses);
    if let Some(error) = execution.error {
        fail(decision, &error, RetryLimit::Limited, facts.retry_for, now);
        return;
    }
    let mut statuses = execution.statuses.iter().map(String::as_str);
    decision.is_waiting = statuses.any(|status| [WAITING, MISSING].contains(&status));
    if !decision.is_waiting {
        put(&mut decision.plan, &["status"], "phase", "Complete");
        put(&mut decision.plan, &["status"], "message", "");
        condition(&mut decision.plan, "True", "", "", now);
    }
}

/// Whether a plan has neither steps nor bundles to unpack: it is ignored.
pub fn is_empty(plan: &Value) -> bool {
    ["/status/plan", "/status/bundleLookups"]
        .iter()
        .all(|list| items(plan, list).next().is_none())
}

/// A failed plan that is carried out once more because the rights of its account may have changed. The time of its
/// first attempt stays. `None` for a plan that has not failed, or without such an account.
pub fn resumed(plan: &Value) -> Option<Value> {
    let is_failed = text(plan, "/status/phase") == "Failed";
    if !is_failed || plan.pointer("/status/attenuatedServiceAccountRef").is_none() || edited(plan).is_some() {
        return None;
    }
    let mut plan = plan.clone();
    put(&mut plan, &["status"], "phase", "Installing");
    put(&mut plan, &["status"], "message", "");
    Some(plan)
}

/// The decision after a pass over `plan` of which the write at this position failed: the steps before it are done, and
/// the later ones are as before.
pub fn interrupted(
    plan: &Value,
    decision: &InstallPlanDecision,
    position: usize,
    error: &str,
    patience: RetryLimit,
    retry_for: SignedDuration,
    now: Timestamp,
) -> InstallPlanDecision {
    let (done, rest) = decision
        .written
        .split_at_checked(position)
        .unwrap_or((&decision.written, &[]));
    let failed = rest.first().map(|write| write.step);
    let mut interrupted = InstallPlanDecision {
        plan: plan.clone(),
        written: done.to_vec(),
        events: decision.events.clone(),
        ..InstallPlanDecision::default()
    };
    if started(plan).is_none() {
        put(
            &mut interrupted.plan,
            &["status"],
            "startTime",
            format!("{now:.0}"),
        );
    }
    let order = execute::order(plan);
    let reached = order.iter().take_while(|step| Some(**step) != failed);
    let after: Vec<&Value> = items(&decision.plan, "/status/plan").collect();
    let mut statuses: Vec<String> = items(plan, "/status/plan")
        .map(|step| text(step, "/status").to_owned())
        .collect();
    for step in reached {
        if let (Some(status), Some(after)) = (statuses.get_mut(*step), after.get(*step)) {
            text(after, "/status").clone_into(status);
        }
    }
    set_statuses(&mut interrupted.plan, &statuses);
    let step = failed.and_then(|step| after.get(step));
    let error = step.map_or_else(
        || error.to_owned(),
        |step| {
            let doing = if text(step, "/status") == "Present" {
                "updating"
            } else {
                "creating"
            };
            let kind = text(step, "/resource/kind").to_lowercase();
            format!("error {doing} {kind} {}: {error}", text(step, "/resource/name"))
        },
    );
    fail(&mut interrupted, &error, patience, retry_for, now);
    interrupted
}

/// Time of the first attempt to carry out the plan.
fn started(plan: &Value) -> Option<Timestamp> {
    text(plan, "/status/startTime").parse().ok()
}

/// The rest of the time for which a failing plan is tried again; `None` if it is over. A pass after that decides whether
/// the plan has failed.
pub fn time_left(plan: &Value, retry_for: SignedDuration, now: Timestamp) -> Option<SignedDuration> {
    let left = retry_for.saturating_sub(now.duration_since(started(plan)?));
    left.is_positive().then_some(left)
}

fn fail(
    decision: &mut InstallPlanDecision,
    error: &str,
    patience: RetryLimit,
    retry_for: SignedDuration,
    now: Timestamp,
) {
    let lasted = now.duration_since(started(&decision.plan).unwrap_or(now));
    let is_over = lasted >= retry_for;
    if is_over && is_repair(&decision.plan) {
        let (plan, event) = given_up(&decision.plan, error);
        decision.plan = plan;
        decision.events.push(event);
    } else if is_over && patience == RetryLimit::Limited {
        put(&mut decision.plan, &["status"], "phase", "Failed");
        put(&mut decision.plan, &["status"], "message", error);
        condition(&mut decision.plan, "False", "InstallComponentFailed", error, now);
    } else {
        let message = format!("retrying execution due to error: {error}");
        put(&mut decision.plan, &["status"], "message", message);
    }
    decision.error = Some(error.to_owned());
}

/// The status of a step whose CRD is not served yet.
const WAITING: &str = "WaitingForApi";
/// The status of a step whose CRD is gone.
const MISSING: &str = "NotPresent";

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

/// Removes the condition `Installed` where it has this reason.
fn without_condition(plan: &mut Value, reason: &str) {
    let conditions = plan
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    if let Some(conditions) = conditions {
        conditions.retain(|found| text(found, "/type") != "Installed" || text(found, "/reason") != reason);
    }
}

#[cfg(test)]
mod tests;
