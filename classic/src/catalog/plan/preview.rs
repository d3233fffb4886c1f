//! What the CustomResourceDefinitions of a plan that waits for its approval may break, for the approver.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use olm_classic::cluster::{Cluster, items, text};
use olm_classic::install_plan::plan_digest;
use olm_classic::names;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::findings::{self, bounded, noted};
use super::gather::{definition_steps, gather_findings};
use super::{Actors, note, warn_of_finding};
use crate::catalog::context::Context;

/// Delay before a preview is tried again whose facts could not be read.
const LATER: Duration = Duration::from_mins(5);

/// Notes the findings in the plan, and warns of those that are new. The findings are looked for again once one of the
/// definitions on the cluster changes.
///
/// # Errors
/// The plan has changed, or cannot be written.
pub(super) async fn preview(
    context: &Context,
    plan: &Value,
    cluster: &Cluster,
) -> Result<Outcome, RequestFailure> {
    if definition_steps(plan).next().is_none() {
        return Ok(Outcome::Done);
    }
    let of = |pointer: &str| text(plan, pointer).to_owned();
    let key = (of("/metadata/namespace"), of("/metadata/name"));
    let mark = mark(plan, cluster);
    if context.previews.lock().get(&key) == Some(&mark) {
        return Ok(Outcome::Done);
    }
    let Ok(actors) = Actors::new(context, plan, cluster) else {
        // A change of the OperatorGroup or of its account wakes the plan.
        return Ok(Outcome::Done);
    };
    let findings = match gather_findings(context, plan, cluster, &actors).await {
        Ok(findings) => bounded(findings),
        Err(failure) => {
            let (namespace, name) = &key;
            let error = failure.message;
            tracing::debug!(
                namespace,
                name,
                error,
                "cannot compare the definitions of an InstallPlan"
            );
            // A change of the rights of the account wakes the plan.
            let is_forbidden = failure.kind == FailureKind::Forbidden;
            return Ok(if is_forbidden {
                Outcome::Done
            } else {
                Outcome::After(LATER)
            });
        }
    };
    let told = noted(plan);
    if findings != told {
        note(
            context,
            plan,
            names::CRD_FINDINGS_ANNOTATION,
            findings::note(&findings),
        )
        .await?;
        for (step, name) in definitions(plan) {
            let found = findings.get(name);
            if let Some(found) = found.filter(|found| told.get(name) != Some(*found)) {
                warn_of_finding(context, plan, step, found);
            }
        }
    }
    context.previews.lock().insert(key, mark);
    Ok(Outcome::Done)
}

/// A hash of what the findings depend on: the plan, and the definitions on the cluster.
fn mark(plan: &Value, cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    (text(plan, "/metadata/uid"), plan_digest(plan)).hash(&mut hasher);
    for (_, name) in definitions(plan) {
        let found = cluster.get(names::CRD_KIND, "", name);
        found
            .map(|found| text(found, "/metadata/resourceVersion"))
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// The positions of the steps of CustomResourceDefinitions, and the names of these.
fn definitions(plan: &Value) -> impl Iterator<Item = (usize, &str)> {
    let steps = items(plan, "/status/plan").enumerate();
    let steps = steps.filter(|(_, step)| text(step, "/resource/kind") == names::CRD_KIND);
    steps.map(|(index, step)| (index, text(step, "/resource/name")))
}
