//! Carries out the steps of a plan, one after the other, until one fails.

use serde_json::Value;

use super::objects::{Objects, group_version};
use super::step_error::StepError;
use super::{MISSING, PassInput, WAITING, Write, definitions};
use crate::cluster::{items, text};
use crate::names;

/// The result of carrying out a plan.
#[derive(Debug, Default)]
pub(super) struct Execution {
    pub(super) written: Vec<Write>,
    pub(super) events: Vec<(String, String)>,
    /// The status of each step.
    pub(super) statuses: Vec<String>,
    pub(super) error: Option<String>,
}

/// The error of a plan with a step of an unknown kind or status.
const INVALID: &str = "the InstallPlan contains invalid data";
const UNSUPPORTED: &str = "UnsupportedResource";

/// The positions of the steps in the order in which they are carried out: CustomResourceDefinitions first.
pub(super) fn order(plan: &Value) -> Vec<usize> {
    let steps = items(plan, "/status/plan").enumerate();
    let mut order: Vec<(bool, usize)> = steps
        .map(|(index, step)| (text(step, "/resource/kind") != names::CRD_KIND, index))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

/// The steps that are not carried out yet.
pub fn pending(plan: &Value) -> impl Iterator<Item = &Value> {
    items(plan, "/status/plan").filter(|step| matches!(text(step, "/status"), "Unknown" | MISSING | WAITING))
}

/// The CustomResourceDefinitions that the plan is to create or replace, as far as they can be read.
pub fn wanted_definitions(plan: &Value, facts: &PassInput<'_>) -> Vec<Value> {
    let mut objects = Objects::new(plan, facts);
    let steps = pending(plan).filter(|step| text(step, "/resource/kind") == names::CRD_KIND);
    let steps = steps.filter(|step| text(step, "/status") != WAITING);
    steps
        .filter_map(|step| definitions::wanted(step, &mut objects).ok())
        .collect()
}

pub(super) fn execute(plan: &Value, facts: &PassInput<'_>) -> Execution {
    let steps: Vec<&Value> = items(plan, "/status/plan").collect();
    let mut execution = Execution {
        statuses: steps
            .iter()
            .map(|step| text(step, "/status").to_owned())
            .collect(),
        ..Execution::default()
    };
    let mut objects = Objects::new(plan, facts);
    for index in order(plan) {
        let (Some(step), Some(status)) = (steps.get(index), execution.statuses.get_mut(index)) else {
            continue;
        };
        objects.step = index;
        let result = match (text(step, "/resource/kind"), status.as_str()) {
            (names::CRD_KIND, WAITING) => {
                *status = definitions::awaited(text(step, "/resource/name"), facts).to_owned();
                continue;
            }
            (_, "Present" | "Created" | WAITING) => continue,
            (names::CRD_KIND, "Unknown" | MISSING) => {
                definitions::apply(step, plan, &mut objects, &mut execution.events)
            }
            (_, "Unknown" | MISSING) => objects.apply(step),
            _ => Err(INVALID.to_owned().into()),
        };
        match result {
            Ok(Some(new)) => new.clone_into(status),
            Ok(None) => {
                UNSUPPORTED.clone_into(status);
                execution.error = Some(INVALID.to_owned());
                break;
            }
            Err(error) => {
                execution.error = Some(explained(step, error, facts));
                break;
            }
        }
    }
    execution.written = objects.into_written();
    execution
}

/// The error, or that the kind of the step is not served where this is the cause.
fn explained(step: &Value, error: StepError, facts: &PassInput<'_>) -> String {
    let text_of = match error {
        StepError::Other(text) => return text,
        StepError::NotFound(text) => text,
    };
    let field = |name: &str| text(step, &format!("/resource/{name}"));
    let (group, version, kind) = (field("group"), field("version"), field("kind"));
    let group_version = group_version(group, version);
    let served = facts.served.kinds(&group_version);
    if served.is_some_and(|kinds| kinds.contains_key(kind)) {
        return text_of;
    }
    format!(
        "api-server resource not found installing {kind} {}: GroupVersionKind {group}/{version}, Kind={kind} not found on the cluster. \
         This API may have been deprecated and removed, see https://kubernetes.io/docs/reference/using-api/deprecation-guide/ for more \
         information.",
        field("name"),
    )
}
