//! Failed InstallPlans: their replacements and their retries.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::restart::without_plan;
use super::{INSTALL_PLAN_KIND, Resolution, plan};
use crate::cluster::{Cluster, annotation, items, put, text};
use crate::install_plan::{edited, pending, plan_digest};
use crate::names::{self, PLANNED_FOR_ANNOTATION};

/// Retries of the failed plans of a namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanRetries {
    /// Subscriptions that forget their plan, so that the next resolution makes another one.
    pub subscriptions: Vec<Value>,
    /// Plans that are carried out again, whole: their ClusterServiceVersions are there.
    pub plans: Vec<Value>,
}

/// The failed plans of a namespace that get another try: the spec of a Subscription changed, a kind that was missing is
/// served, or the plan was edited.
pub fn retried(namespace: &str, cluster: &Cluster, now: Timestamp) -> PlanRetries {
    let mut retried = PlanRetries::default();
    for (plan, subscriptions) in failed(namespace, cluster) {
        let is_edited = edited(plan).is_some();
        if !is_edited && !is_planned_otherwise(plan, &subscriptions) && !is_kind_served(plan, cluster) {
            continue;
        }
        let waiting: Vec<&Value> = waiting(&subscriptions, cluster).collect();
        if waiting.is_empty() && !is_edited {
            retried.plans.push(resumed(plan, &subscriptions));
        }
        let forgetting = waiting.into_iter();
        retried
            .subscriptions
            .extend(forgetting.map(|subscription| without_plan(subscription, cluster, now)));
    }
    retried
}

/// The Subscriptions of a namespace as if those with a failed plan had none: their resolution shows whether the plan
/// still holds. `None` where no failed plan is in the way.
pub fn reconsidered(namespace: &str, cluster: &Cluster, now: Timestamp) -> Option<Vec<Value>> {
    let mut subscriptions: BTreeMap<String, Value> = cluster
        .in_namespace(names::SUBSCRIPTION_KIND, namespace)
        .map(|subscription| {
            (
                text(subscription, "/metadata/name").to_owned(),
                subscription.clone(),
            )
        })
        .collect();
    let mut is_any = false;
    for (_, of_plan) in failed(namespace, cluster) {
        for subscription in waiting(&of_plan, cluster) {
            let name = text(subscription, "/metadata/name").to_owned();
            subscriptions.insert(name, without_plan(subscription, cluster, now));
            is_any = true;
        }
    }
    is_any.then(|| subscriptions.into_values().collect())
}

/// The Subscriptions that forget their failed plan: the resolution of [`reconsidered`] comes to another one.
pub fn superseded(
    namespace: &str,
    cluster: &Cluster,
    resolution: &Resolution,
    subscriptions: &[Value],
    now: Timestamp,
) -> Vec<Value> {
    let planned = plan::planned(resolution, subscriptions, cluster, namespace);
    let digest = planned.map(|planned| plan_digest(&planned.plan));
    let mut forgetting = Vec::new();
    for (plan, of_plan) in failed(namespace, cluster) {
        if digest.as_deref() != Some(plan_digest(plan).as_str()) {
            let waiting = waiting(&of_plan, cluster);
            forgetting.extend(waiting.map(|subscription| without_plan(subscription, cluster, now)));
        }
    }
    forgetting
}

/// The failed plans of a namespace with the Subscriptions that refer to them.
fn failed<'a>(namespace: &'a str, cluster: &'a Cluster) -> Vec<(&'a Value, Vec<&'a Value>)> {
    let plans = cluster.in_namespace(INSTALL_PLAN_KIND, namespace);
    let plans = plans.filter(|plan| text(plan, "/status/phase") == "Failed");
    let with_subscriptions = plans.map(|plan| {
        let name = text(plan, "/metadata/name");
        let subscriptions = cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
        let of_plan = subscriptions.filter(|found| text(found, "/status/installPlanRef/name") == name);
        (plan, of_plan.collect::<Vec<_>>())
    });
    with_subscriptions
        .filter(|(_, subscriptions)| !subscriptions.is_empty())
        .collect()
}

/// Those of the Subscriptions whose version is not there.
fn waiting<'a>(subscriptions: &[&'a Value], cluster: &Cluster) -> impl Iterator<Item = &'a Value> {
    subscriptions.iter().copied().filter(|subscription| {
        let place = text(subscription, "/metadata/namespace");
        let version = text(subscription, "/status/currentCSV");
        cluster.get(names::CSV_KIND, place, version).is_none()
    })
}

/// Whether the spec of a Subscription is another than the plan was made for. A plan of another implementation does not
/// say.
fn is_planned_otherwise(plan: &Value, subscriptions: &[&Value]) -> bool {
    let planned: Value = serde_json::from_str(annotation(plan, PLANNED_FOR_ANNOTATION)).unwrap_or_default();
    subscriptions.iter().any(|subscription| {
        let generation = planned.get(text(subscription, "/metadata/name"));
        generation.is_some_and(|generation| Some(generation) != subscription.pointer("/metadata/generation"))
    })
}

/// Whether the kind of a step that is left is served since the plan failed.
fn is_kind_served(plan: &Value, cluster: &Cluster) -> bool {
    let mut conditions = items(plan, "/status/conditions");
    let failed = conditions.find(|found| text(found, "/type") == "Installed");
    let since = failed.and_then(|failed| text(failed, "/lastTransitionTime").parse::<Timestamp>().ok());
    let Some(since) = since else { return false };
    pending(plan).any(|step| {
        let of = |field: &str| text(step, &format!("/resource/{field}"));
        let mut definitions = cluster.of_kind(names::CRD_KIND);
        definitions.any(|found| {
            let created = text(found, "/metadata/creationTimestamp").parse::<Timestamp>();
            text(found, "/spec/group") == of("group")
                && text(found, "/spec/names/kind") == of("kind")
                && created.is_ok_and(|created| created >= since)
        })
    })
}

/// A plan that is carried out again.
fn resumed(plan: &Value, subscriptions: &[&Value]) -> Value {
    let mut plan = plan.clone();
    put(&mut plan, &["status"], "phase", "Installing");
    put(&mut plan, &["status"], "message", "");
    if let Some(status) = plan.pointer_mut("/status").and_then(Value::as_object_mut) {
        status.remove("startTime");
        status.remove("conditions");
    }
    let path = ["metadata", "annotations"];
    put(
        &mut plan,
        &path,
        PLANNED_FOR_ANNOTATION,
        plan::planned_for(subscriptions),
    );
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::PLAN_DIGEST_ANNOTATION;

    fn subscription(generation: i64) -> Value {
        json!({
            "kind": "Subscription", "metadata": {"namespace": "n", "name": "s", "uid": "su", "generation": generation},
            "spec": {"name": "a"},
            "status": {
                "state": "UpgradePending", "currentCSV": "a.v2", "installedCSV": "a.v1", "installPlanGeneration": 3,
                "installPlanRef": {"name": "p"}, "installplan": {"name": "p"},
                "conditions": [{"type": "InstallPlanFailed", "status": "True"}],
            },
        })
    }

    fn step(kind: &str, name: &str) -> Value {
        json!({
            "resolving": "a.v2", "status": "Unknown",
            "resource": {"group": "g", "version": "v1", "kind": kind, "name": name, "manifest": "{}"},
        })
    }

    fn plan() -> Value {
        let mut plan = json!({
            "kind": "InstallPlan",
            "metadata": {
                "namespace": "n", "name": "p", "uid": "pu", "annotations": {PLANNED_FOR_ANNOTATION: r#"{"s":1}"#},
            },
            "spec": {"generation": 3, "clusterServiceVersionNames": ["a.v2"]},
            "status": {
                "phase": "Failed", "startTime": "2026-01-01T00:00:00Z",
                "plan": [step(names::CSV_KIND, "a.v2"), step("Monitor", "m")],
                "conditions": [{"type": "Installed", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
            },
        });
        plan["metadata"]["annotations"][PLAN_DIGEST_ANNOTATION] = plan_digest(&plan).into();
        plan
    }

    fn csv(name: &str) -> Value {
        json!({"kind": names::CSV_KIND, "metadata": {"namespace": "n", "name": name}})
    }

    fn definition(created: &str) -> Value {
        json!({
            "kind": names::CRD_KIND, "metadata": {"name": "monitors.g", "creationTimestamp": created},
            "spec": {"group": "g", "names": {"kind": "Monitor"}},
        })
    }

    /// Checks whether Subscriptions forget their plan and whether it is carried out again.
    fn check(objects: Vec<Value>, forgets: bool, resumes: bool) {
        let cluster: Cluster = objects.into_iter().collect();
        let found = retried("n", &cluster, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (!found.subscriptions.is_empty(), !found.plans.is_empty()),
            (forgets, resumes),
            "{found:?}"
        );
    }

    #[test]
    fn a_failed_plan_gives_way_when_its_cause_may_be_gone() {
        check(vec![subscription(1), plan()], false, false);
        check(vec![subscription(2), plan()], true, false);
        check(vec![subscription(2), plan(), csv("a.v2")], false, true);
        let (early, late) = ("2025-12-31T00:00:00Z", "2026-01-01T00:02:00Z");
        check(vec![subscription(1), plan(), definition(early)], false, false);
        check(vec![subscription(1), plan(), definition(late)], true, false);
        check(
            vec![subscription(1), plan(), definition(late), csv("a.v2")],
            false,
            true,
        );
        let mut edited = plan();
        edited["status"]["plan"] = json!([]);
        check(vec![subscription(1), edited.clone()], true, false);
        check(vec![subscription(1), edited, csv("a.v2")], false, false);
        let mut complete = plan();
        complete["status"]["phase"] = "Complete".into();
        check(vec![subscription(2), complete], false, false);
    }

    #[test]
    fn a_forgotten_plan_leaves_the_installed_version() {
        let cluster: Cluster = [subscription(2), plan(), csv("a.v1")].into_iter().collect();
        let found = retried("n", &cluster, Timestamp::UNIX_EPOCH);
        let expected = json!({
            "currentCSV": "a.v1", "installedCSV": "a.v1", "installPlanGeneration": 3, "conditions": [],
            "lastUpdated": "1970-01-01T00:00:00Z",
        });
        assert_eq!(found.subscriptions[0]["status"], expected);
    }

    #[test]
    fn a_plan_that_is_carried_out_again_starts_anew() {
        let cluster: Cluster = [subscription(2), plan(), csv("a.v2")].into_iter().collect();
        let found = retried("n", &cluster, Timestamp::UNIX_EPOCH);
        let status = &found.plans[0]["status"];
        assert_eq!(status["phase"], "Installing");
        assert_eq!((status.get("startTime"), status.get("conditions")), (None, None));
        assert_eq!(annotation(&found.plans[0], PLANNED_FOR_ANNOTATION), r#"{"s":2}"#);
    }

    #[test]
    fn another_resolution_takes_the_place_of_a_failed_plan() {
        let cluster: Cluster = [subscription(1), plan(), csv("a.v1")].into_iter().collect();
        let subscriptions = reconsidered("n", &cluster, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(subscriptions[0]["status"]["currentCSV"], "a.v1");
        let check = |steps: Vec<Value>, expected: usize| {
            let resolution = Resolution {
                steps,
                ..Resolution::default()
            };
            let found = superseded("n", &cluster, &resolution, &subscriptions, Timestamp::UNIX_EPOCH);
            assert_eq!(found.len(), expected);
        };
        let same = vec![step(names::CSV_KIND, "a.v2"), step("Monitor", "m")];
        check(same, 0);
        check(vec![step(names::CSV_KIND, "a.v2")], 1);
        check(Vec::new(), 1);
        let without_plan: Cluster = [subscription(1)].into_iter().collect();
        assert_eq!(reconsidered("n", &without_plan, Timestamp::UNIX_EPOCH), None);
    }
}
