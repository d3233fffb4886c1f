//! Makes accounts, roles and bindings of an operator again that somebody has deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

/// The pause after a repair that failed. [`given_up`] names it.
///
/// [`given_up`]: olm_classic::install_plan::given_up
const PAUSE: Duration = Duration::from_mins(5);

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
                "cannot make objects of an InstallPlan again; retrying"
            );
            Outcome::Failed
        }
    };
    context.repairs.lock().insert(key, Instant::now());
    outcome
}

/// Has a plan repaired after a pause.
pub(super) fn repair_later(context: &Context, key: (String, String)) -> Outcome {
    context.repairs.lock().insert(key, Instant::now() + PAUSE);
    Outcome::After(PAUSE)
}

/// The time until a plan is repaired: none when it is due, and then it is forgotten. `None` for a plan that is not
/// repaired.
pub(super) fn time_left(
    repairs: &mut BTreeMap<(String, String), Instant>,
    key: &(String, String),
    now: Instant,
) -> Option<Duration> {
    let left = repairs.get(key)?.saturating_duration_since(now);
    if left.is_zero() {
        repairs.remove(key);
    }
    Some(left)
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
        "{} deleted; OLM creates the missing objects again",
        objects.join(", ")
    );
    tracing::info!(
        namespace,
        name = text(plan, "/metadata/name"),
        note,
        "repairing an InstallPlan"
    );
    context.warn(plan, [("ObjectsDeleted".to_owned(), note)]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_due_once() {
        let key = |name: &str| ("n".to_owned(), name.to_owned());
        let now = Instant::now();
        let mut repairs = BTreeMap::from([(key("due"), now), (key("later"), now + PAUSE)]);
        for (name, expected) in [
            ("due", Some(Duration::ZERO)),
            ("due", None),
            ("later", Some(PAUSE)),
            ("later", Some(PAUSE)),
            ("other", None),
        ] {
            assert_eq!(time_left(&mut repairs, &key(name), now), expected, "{name}");
        }
        assert_eq!(
            time_left(&mut repairs, &key("later"), now + PAUSE),
            Some(Duration::ZERO)
        );
    }
}
