//! Accounts, roles and bindings that somebody deletes while their operator is installed: their steps are carried out
//! again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::collection::generation;
use super::{INSTALL_PLAN_KIND, is_namespace_paused, is_version_paused};
use crate::cluster::{Cluster, items, put, text};
use crate::names;

/// The kinds of the objects, and whether they are in the namespace of the plan.
const KINDS: &[(&str, bool)] = &[
    ("ServiceAccount", true),
    ("Role", true),
    ("RoleBinding", true),
    ("ClusterRole", false),
    ("ClusterRoleBinding", false),
];
/// The status of a step that is not carried out.
const UNKNOWN: &str = "Unknown";

/// The complete plans that make a deleted object again: for each ClusterServiceVersion that it belongs to, the newest one.
pub fn repairing<'a>(cluster: &'a Cluster, deleted: &'a Value) -> Vec<&'a Value> {
    let of = |pointer: &str| text(deleted, pointer);
    let (kind, namespace, name) = (of("/kind"), of("/metadata/namespace"), of("/metadata/name"));
    let is_it = |step: &Value| text(step, "/resource/kind") == kind && text(step, "/resource/name") == name;
    if namespace.is_empty() {
        newest(cluster.of_kind(INSTALL_PLAN_KIND), |_, step| is_it(step))
    } else {
        newest(cluster.in_namespace(INSTALL_PLAN_KIND, namespace), |_, step| {
            is_it(step)
        })
    }
}

/// The complete plans of ClusterServiceVersions that do not work, of which something may have been deleted unseen.
pub fn plans_of_failing(cluster: &Cluster) -> Vec<&Value> {
    newest(cluster.of_kind(INSTALL_PLAN_KIND), |plan, step| {
        let csv = cluster.get(
            names::CSV_KIND,
            text(plan, "/metadata/namespace"),
            text(step, "/resolving"),
        );
        csv.is_some_and(|csv| text(csv, "/status/phase") != "Succeeded")
    })
}

/// The newest complete plan of a ClusterServiceVersion, of which something may have been deleted unseen when it stops
/// working.
pub fn plan_of_failing<'a>(cluster: &'a Cluster, csv: &'a Value) -> Vec<&'a Value> {
    let name = text(csv, "/metadata/name");
    let plans = cluster.in_namespace(INSTALL_PLAN_KIND, text(csv, "/metadata/namespace"));
    newest(plans, |_, step| text(step, "/resolving") == name)
}

/// The newest complete plan of each ClusterServiceVersion with such a step.
fn newest<'a>(
    plans: impl Iterator<Item = &'a Value>,
    is_it: impl Fn(&Value, &Value) -> bool,
) -> Vec<&'a Value> {
    let mut newest: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for plan in plans.filter(|plan| text(plan, "/status/phase") == "Complete") {
        for step in items(plan, "/status/plan").filter(|step| is_it(plan, step)) {
            let key = (text(plan, "/metadata/namespace"), text(step, "/resolving"));
            let known = newest.entry(key).or_insert(plan);
            if generation(known) < generation(plan) {
                *known = plan;
            }
        }
    }
    newest.into_values().collect()
}

/// A complete plan that makes objects again.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairedPlan {
    /// The plan; the steps of these objects are not carried out yet.
    pub plan: Value,
    /// The objects, by kind and name.
    pub objects: Vec<(String, String)>,
    /// The names of their ClusterServiceVersions.
    pub versions: BTreeSet<String>,
}

/// The plan with the steps of the objects that are gone, where their ClusterServiceVersion is there and nothing is
/// paused; `None` where nothing is gone.
pub fn repaired(plan: &Value, cluster: &Cluster) -> Option<RepairedPlan> {
    let namespace = text(plan, "/metadata/namespace");
    if text(plan, "/status/phase") != "Complete" || is_namespace_paused(cluster, namespace) {
        return None;
    }
    let mut repaired = RepairedPlan {
        plan: plan.clone(),
        objects: Vec::new(),
        versions: BTreeSet::new(),
    };
    let steps = repaired
        .plan
        .pointer_mut("/status/plan")
        .and_then(Value::as_array_mut);
    for step in steps.into_iter().flatten() {
        let of = |field: &str| text(step, &format!("/resource/{field}")).to_owned();
        let (kind, name, version) = (of("kind"), of("name"), text(step, "/resolving").to_owned());
        let Some((_, is_namespaced)) = KINDS.iter().find(|(known, _)| *known == kind) else {
            continue;
        };
        let place = if *is_namespaced { namespace } else { "" };
        let is_done = matches!(text(step, "/status"), "Created" | "Present");
        if !is_done || cluster.get(&kind, place, &name).is_some() {
            continue;
        }
        let csv = cluster.get(names::CSV_KIND, namespace, &version);
        if csv.is_some_and(|csv| is_living(csv) && !is_version_paused(cluster, csv)) {
            put(step, &[], "status", UNKNOWN);
            repaired.objects.push((kind, name));
            repaired.versions.insert(version);
        }
    }
    if repaired.objects.is_empty() {
        return None;
    }
    put(&mut repaired.plan, &["status"], "phase", "Installing");
    put(&mut repaired.plan, &["status"], "message", "");
    if let Some(status) = repaired.plan.get_mut("status").and_then(Value::as_object_mut) {
        // Its time begins anew.
        status.remove("startTime");
    }
    Some(repaired)
}

/// Whether an object is not being deleted.
pub fn is_living(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(kind: &str, name: &str) -> Value {
        json!({"resolving": "a.v1", "status": "Created", "resource": {"kind": kind, "name": name}})
    }

    fn plan(name: &str, generation: i64, phase: &str) -> Value {
        json!({
            "kind": INSTALL_PLAN_KIND, "metadata": {"namespace": "n", "name": name},
            "spec": {"generation": generation},
            "status": {
                "phase": phase, "startTime": "2026-01-01T00:00:00Z",
                "plan": [
                    step(names::CSV_KIND, "a.v1"), step("ServiceAccount", "s"), step("Role", "r"),
                    step("ClusterRole", "c"),
                ],
            },
        })
    }

    fn object(kind: &str, namespace: &str, name: &str) -> Value {
        json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}})
    }

    fn csv() -> Value {
        object(names::CSV_KIND, "n", "a.v1")
    }

    #[test]
    fn steps_of_objects_that_are_gone_are_carried_out_again() {
        let cluster: Cluster = [
            csv(),
            object("ServiceAccount", "n", "s"),
            object("ClusterRole", "", "other"),
        ]
        .into_iter()
        .collect();
        let repaired = repaired(&plan("p", 1, "Complete"), &cluster).unwrap();
        let gone =
            [("Role", "r"), ("ClusterRole", "c")].map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        assert_eq!(repaired.objects, gone);
        let steps = items(&repaired.plan, "/status/plan").map(|step| text(step, "/status"));
        assert_eq!(
            steps.collect::<Vec<_>>(),
            ["Created", "Created", UNKNOWN, UNKNOWN]
        );
        assert_eq!(text(&repaired.plan, "/status/phase"), "Installing");
        assert_eq!(repaired.plan.pointer("/status/startTime"), None);
        assert_eq!(super::repaired(&plan("p", 1, "Failed"), &cluster), None);
    }

    #[test]
    fn nothing_is_made_again_for_a_version_that_is_gone_or_paused() {
        let plan = plan("p", 1, "Complete");
        let check = |csv: Option<Value>, others: Vec<Value>| {
            let cluster: Cluster = csv.into_iter().chain(others).collect();
            assert_eq!(repaired(&plan, &cluster), None);
        };
        check(None, vec![]);
        let mut deleted = csv();
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(Some(deleted), vec![]);
        let paused = json!({names::PAUSED_ANNOTATION: "true"});
        let mut version = csv();
        version["metadata"]["annotations"] = paused.clone();
        check(Some(version), vec![]);
        let mut subscription = object(names::SUBSCRIPTION_KIND, "n", "s");
        subscription["metadata"]["annotations"] = paused;
        check(Some(csv()), vec![subscription]);
    }

    #[test]
    fn the_newest_complete_plan_makes_an_object_again() {
        let mut working = csv();
        working["status"] = json!({"phase": "Succeeded"});
        let cluster = |csv: Value| -> Cluster {
            let plans = [
                ("old", 1, "Complete"),
                ("new", 2, "Complete"),
                ("failed", 3, "Failed"),
            ];
            let plans = plans.map(|(name, generation, phase)| plan(name, generation, phase));
            plans.into_iter().chain([csv]).collect()
        };
        let names = |plans: Vec<&Value>| -> Vec<String> {
            plans
                .into_iter()
                .map(|plan| text(plan, "/metadata/name").to_owned())
                .collect()
        };
        let here = cluster(working);
        for (deleted, expected) in [
            (object("Role", "n", "r"), vec!["new"]),
            (object("ClusterRole", "", "c"), vec!["new"]),
            (object("Role", "m", "r"), vec![]),
            (object("Role", "n", "other"), vec![]),
        ] {
            assert_eq!(names(repairing(&here, &deleted)), expected);
        }
        assert_eq!(names(plans_of_failing(&here)), Vec::<String>::new());
        assert_eq!(names(plans_of_failing(&cluster(csv()))), ["new"]);
        assert_eq!(names(plan_of_failing(&here, &csv())), ["new"]);
        let other = object(names::CSV_KIND, "n", "b.v1");
        assert_eq!(names(plan_of_failing(&here, &other)), Vec::<String>::new());
    }
}
