//! OperatorConditions.

use olm_classic::cluster::text;
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::csv::condition::pass;
use olm_classic::names;
use olm_classic::subscription::is_paused;
use olm_platform::queue::Outcome;

use super::context::Context;
use super::group::after;
use super::work::Name;
use crate::objects::write::Actor;

/// Makes a pass over the OperatorCondition of a ClusterServiceVersion. With the ClusterServiceVersion it is collected.
pub async fn reconcile(context: &Context, name: &Name) -> Outcome {
    let cluster = context.snapshot();
    let Some(object) = cluster.get(names::CSV_KIND, &name.namespace, &name.name) else {
        return Outcome::Done;
    };
    let Ok(csv) = ClusterServiceVersion::read(object) else {
        // The pass over the ClusterServiceVersion itself reports that it cannot be read.
        return Outcome::Done;
    };
    // One that is paused gives its OperatorCondition away.
    if csv.is_copy() || csv.metadata.deletion_timestamp.is_some() || is_paused(object) {
        return Outcome::Done;
    }
    let condition = cluster.get(names::OPERATOR_CONDITION_KIND, &name.namespace, &name.name);
    if condition.is_some_and(|found| !text(found, "/metadata/deletionTimestamp").is_empty()) {
        return Outcome::Done;
    }
    for object in pass(object, &csv, &cluster).written {
        // Roles and bindings hold no rights but those on the condition, which is a record of ours.
        if let Err(failure) = context.writer().write(&Actor::Own, &object).await {
            return after(names::OPERATOR_CONDITION_KIND, &name.to_string(), &failure);
        }
    }
    Outcome::Done
}
