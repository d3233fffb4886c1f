//! Whether the Deployments of a ClusterServiceVersion are those of its strategy and run.

use serde_json::Value;

use super::CsvPass;
use crate::cluster::{items, label, text};
use crate::wire::deployment::DEPLOYMENT_SPEC;
use crate::{install, names, wire};

/// The fault of the Deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeploymentProblem {
    /// One is not there or does not run yet.
    Waiting(String),
    /// One is not as the strategy wants it: it is installed again.
    Changed(String),
    /// One has not come up in the time that it has.
    Ended(String),
}

/// What keeps Deployments from being healthy that are as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadyDeployments {
    /// New Pods take the place of others; enough of them run meanwhile.
    RollingOut,
    /// Too few Pods run.
    Unavailable,
}

/// The Deployment on the cluster, where it is that of the ClusterServiceVersion.
fn live<'a>(pass: &'a CsvPass<'_>, wanted: &Value) -> Option<&'a Value> {
    let name = text(wanted, "/metadata/name");
    let found = pass
        .facts
        .cluster
        .get_watched(names::DEPLOYMENT_KIND, pass.namespace(), name);
    found.filter(|found| install::is_of(found, &pass.csv))
}

/// What keeps the Deployments from being healthy; `None` where one is missing, is not as the strategy wants it, or has
/// not come up in its time.
pub(super) fn unready_deployments(pass: &CsvPass<'_>, wanted: &[Value]) -> Option<UnreadyDeployments> {
    let mut state = UnreadyDeployments::RollingOut;
    for wanted in wanted {
        let found = live(pass, wanted)?;
        let name = text(wanted, "/metadata/name");
        let is_changed = changed_annotations(found, &pass.csv.metadata.annotations).is_some()
            || changed_spec(found, wanted, name).is_some();
        if is_changed || !is_within(&spec(wanted)?, &spec(found)?) {
            return None;
        }
        match unready(found, name) {
            Some(DeploymentProblem::Ended(_)) => return None,
            Some(_) if !is_available(found) => state = UnreadyDeployments::Unavailable,
            _ => {}
        }
    }
    Some(state)
}

fn is_available(found: &Value) -> bool {
    let mut conditions = items(found, "/status/conditions");
    conditions.any(|found| text(found, "/type") == "Available" && text(found, "/status") == "True")
}

/// The spec as its type writes it, which is how the API server stores it: quantities in their canonical form, without
/// unknown and empty fields.
fn spec(deployment: &Value) -> Option<Value> {
    serde_json::from_str(&wire::write(deployment.get("spec")?, DEPLOYMENT_SPEC)).ok()
}

/// Whether a value has what is wanted; the server adds defaults, and tools such as `kubectl rollout restart` fields.
fn is_within(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, wanted)| {
            let found = found.get(key);
            found.map_or_else(|| is_empty(wanted), |found| is_within(wanted, found))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| is_within(wanted, found))
        }
        _ => wanted == found || is_empty(wanted),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The first fault; nothing where all are good.
pub(super) fn first_problem(pass: &CsvPass<'_>, wanted: &[Value]) -> Option<DeploymentProblem> {
    wanted.iter().find_map(|wanted| {
        let name = text(wanted, "/metadata/name");
        match live(pass, wanted) {
            None => Some(DeploymentProblem::Waiting(format!(
                "missing deployment with name={name}"
            ))),
            Some(found) => unready(found, name)
                .or_else(|| changed_annotations(found, &pass.csv.metadata.annotations))
                .or_else(|| changed_spec(found, wanted, name)),
        }
    })
}

fn unready(found: &Value, name: &str) -> Option<DeploymentProblem> {
    let number = |key: &str| found.pointer(key).and_then(Value::as_i64).unwrap_or_default();
    let waiting = |why: String| {
        Some(DeploymentProblem::Waiting(format!(
            "waiting for deployment {name} to become ready: {why}"
        )))
    };
    if number("/metadata/generation") > number("/status/observedGeneration") {
        return waiting(format!(
            "waiting for spec update of deployment \"{name}\" to be observed..."
        ));
    }
    let condition =
        |kind: &str| items(found, "/status/conditions").find(|condition| text(condition, "/type") == kind);
    let is_over = |progress: &Value| text(progress, "/reason") == "ProgressDeadlineExceeded";
    if condition("Progressing").is_some_and(is_over) {
        return Some(DeploymentProblem::Ended(format!(
            "deployment {name} not ready before timeout: deployment \"{name}\" exceeded its progress deadline"
        )));
    }
    let outdated = number("/status/replicas") - number("/status/updatedReplicas");
    if outdated > 0 {
        return waiting(format!(
            "deployment \"{name}\" waiting for {outdated} outdated replica(s) to be terminated"
        ));
    }
    let why = match condition("Available") {
        Some(available) if text(available, "/status") == "True" => return None,
        Some(available) => text(available, "/message"),
        None => "missing condition \"Available\"",
    };
    waiting(format!("deployment \"{name}\" not available: {why}"))
}

fn changed_annotations(
    found: &Value,
    wanted: &std::collections::BTreeMap<String, String>,
) -> Option<DeploymentProblem> {
    let present = found
        .pointer("/spec/template/metadata/annotations")
        .and_then(Value::as_object);
    let Some(present) = present else {
        return (!wanted.is_empty())
            .then(|| DeploymentProblem::Changed("no annotations found on deployment".to_owned()));
    };
    wanted.iter().find_map(|(key, value)| {
        let found = present.get(key).and_then(Value::as_str);
        match found {
            None => Some(DeploymentProblem::Changed(format!(
                "annotations on deployment does not contain expected key: {key}"
            ))),
            Some(found) if found != value => Some(DeploymentProblem::Changed(format!(
                "unexpected annotation on deployment. Expected {key}:{value}, found {key}:{found}"
            ))),
            Some(_) => None,
        }
    })
}

fn changed_spec(found: &Value, wanted: &Value, name: &str) -> Option<DeploymentProblem> {
    let (old, new) = (
        label(found, names::SPEC_HASH_LABEL),
        label(wanted, names::SPEC_HASH_LABEL),
    );
    let labels = found.pointer("/metadata/labels");
    if labels.is_none_or(|labels| labels.get(names::SPEC_HASH_LABEL).is_none()) {
        return Some(DeploymentProblem::Changed(format!(
            "deployment {name} doesn't have a spec hash, update it"
        )));
    }
    (old != new)
        .then(|| DeploymentProblem::Changed(format!("deployment changed old hash={old}, new hash={new}")))
}
