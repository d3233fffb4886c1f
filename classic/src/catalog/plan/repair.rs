//! Makes accounts, roles and bindings of an operator again that somebody has deleted.

use olm_classic::cluster::{Cluster, text};
use olm_classic::names;
use olm_classic::subscription::{RepairedPlan, is_living, repaired};
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::{AT_ONCE, SOON};
use crate::catalog::context::Context;
use crate::catalog::write::write_status;
use crate::objects::write::Actor;

/// Has a complete plan carry out the steps of objects that are gone.
pub(super) async fn repair(
    context: &Context,
    key: (String, String),
    plan: &Value,
    cluster: &Cluster,
) -> Outcome {
    let Some(repaired) = repaired(plan, cluster) else {
        return Outcome::Done;
    };
    let outcome = match begin(context, &repaired).await {
        Ok(true) => return Outcome::After(AT_ONCE),
        // The store will show it.
        Ok(false) => Outcome::After(SOON),
        Err(failure) if failure.kind == FailureKind::Conflict => Outcome::After(SOON),
        Err(failure) => {
            let ((namespace, name), error) = (&key, failure.message);
            tracing::warn!(
                namespace,
                name,
                error,
                "cannot make objects of an InstallPlan again; it is tried again"
            );
            Outcome::Failed
        }
    };
    context.repairs.lock().insert(key);
    outcome
}

/// Writes the plan; whether the ClusterServiceVersions are still there. What goes with one is not made again.
async fn begin(context: &Context, repaired: &RepairedPlan) -> Result<bool, RequestFailure> {
    let plan = &repaired.plan;
    let (namespace, writer) = (text(plan, "/metadata/namespace"), &context.base.writer);
    for version in &repaired.versions {
        let kind = (names::CSV_API_VERSION, names::CSV_KIND);
        let found = writer.read(&Actor::Own, kind, namespace, version).await?;
        if !found.as_ref().is_some_and(is_living) {
            return Ok(false);
        }
    }
    write_status(&context.base, plan).await?;
    let objects = repaired.objects.iter();
    let objects: Vec<String> = objects.map(|(kind, name)| format!("{kind} {name}")).collect();
    let note = format!(
        "somebody deleted {}; OLM creates what is missing again",
        objects.join(", ")
    );
    tracing::info!(
        namespace,
        name = text(plan, "/metadata/name"),
        note,
        "an InstallPlan is repaired"
    );
    context.warn(plan, [("ObjectsDeleted".to_owned(), note)]);
    Ok(true)
}
