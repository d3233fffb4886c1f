//! Whether the Deployments of a ClusterServiceVersion are those of its strategy and run.

use serde_json::Value;

use super::Pass;
use crate::cluster::{items, label, text};
use crate::{install, names};

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

/// The first fault; nothing where all are good.
pub(super) fn trouble(pass: &Pass<'_>, wanted: &[Value]) -> Option<DeploymentProblem> {
    let cluster = pass.facts.cluster;
    wanted.iter().find_map(|wanted| {
        let name = text(wanted, "/metadata/name");
        let found = cluster.get_watched(names::DEPLOYMENT_KIND, pass.namespace(), name);
        match found.filter(|found| install::is_of(found, &pass.csv)) {
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
