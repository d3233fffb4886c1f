//! Operators, and the labels by which their objects are found.

use olm_classic::cluster::text;
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::csv::component::{self, OperatorDecision, Unlabelled};
use olm_classic::names;
use olm_classic::subscription::{is_paused, is_version_paused};
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::group::after;
use super::work::Name;
use crate::objects::write::Actor;

/// Writes or deletes an Operator.
pub async fn reconcile(context: &Context, name: &str) -> Outcome {
    let cluster = context.snapshot();
    let result = match component::decide(name, &cluster) {
        OperatorDecision::Keep => return Outcome::Done,
        OperatorDecision::Write(wanted) => context.writer().write(&Actor::Own, &wanted).await.map(drop),
        OperatorDecision::Delete => match cluster.get(component::KIND, "", name) {
            Some(found) => context.writer().delete(&Actor::Own, found).await,
            None => Ok(()),
        },
    };
    match result {
        Ok(()) => Outcome::Done,
        Err(failure) => after(component::KIND, name, &failure),
    }
}

/// Labels a Subscription, its ClusterServiceVersion and its InstallPlan; former InstallPlans lose the label.
pub async fn label_subscription(context: &Context, name: &Name) -> Outcome {
    let cluster = context.snapshot();
    let Some(subscription) = cluster.get(names::SUBSCRIPTION_KIND, &name.namespace, &name.name) else {
        return Outcome::Done;
    };
    if is_paused(subscription) {
        return Outcome::Done;
    }
    for unlabelled in component::of_subscription(subscription, &cluster) {
        if let Err(failure) = label(context, &Actor::Own, &unlabelled).await {
            return after(names::SUBSCRIPTION_KIND, &name.to_string(), &failure);
        }
    }
    for former in component::former_plans(subscription, &cluster) {
        let patch = json!({"metadata": {
            "uid": text(former.plan, "/metadata/uid"), "labels": {former.key.as_str(): null},
        }});
        match context.writer().merge(&Actor::Own, former.plan, &patch).await {
            Ok(_) => {}
            // It was collected meanwhile.
            Err(failure) if failure.kind == FailureKind::MissingNamespace => {}
            Err(failure) => return after(names::SUBSCRIPTION_KIND, &name.to_string(), &failure),
        }
    }
    Outcome::Done
}

/// Labels what a ClusterServiceVersion owns, and the CustomResourceDefinitions that it brings.
pub async fn label_owned(context: &Context, name: &Name) -> Outcome {
    let cluster = context.snapshot();
    let Some(object) = cluster.get(names::CSV_KIND, &name.namespace, &name.name) else {
        return Outcome::Done;
    };
    if is_version_paused(&cluster, object) {
        return Outcome::Done;
    }
    let Ok(csv) = ClusterServiceVersion::read(object) else {
        return Outcome::Done;
    };
    if csv.is_copy() {
        return Outcome::Done;
    }
    for unlabelled in component::of_csv(object, &csv, &cluster) {
        let is_ours = text(unlabelled.object, "/kind") == names::OPERATOR_CONDITION_KIND;
        let actor = if is_ours {
            Actor::Own
        } else {
            match context.account(&cluster, &name.namespace) {
                Ok(actor) => actor,
                // Nothing is installed without an account.
                Err(_) => continue,
            }
        };
        match label(context, &actor, &unlabelled).await {
            Ok(()) => {}
            // Labels serve people: an operator runs without them.
            Err(failure) if failure.kind == FailureKind::Forbidden => {
                tracing::debug!(%name, error = failure.message, "cannot label an object of an operator");
            }
            Err(failure) => return after(names::CSV_KIND, &name.to_string(), &failure),
        }
    }
    Outcome::Done
}

async fn label(context: &Context, actor: &Actor, unlabelled: &Unlabelled<'_>) -> Result<(), RequestFailure> {
    let labels: Map<String, Value> = unlabelled
        .keys
        .iter()
        .map(|key| (key.clone(), "".into()))
        .collect();
    let patch = json!({"metadata": {
        "uid": text(unlabelled.object, "/metadata/uid"), "labels": labels,
    }});
    context
        .writer()
        .merge(actor, unlabelled.object, &patch)
        .await
        .map(drop)
}
