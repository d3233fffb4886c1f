//! Tests of what there is to do after a change.

use std::sync::Arc;

use serde_json::json;

use super::*;

fn csv(name: &str, more: &Value) -> Value {
    let mut csv = json!({
        "kind": names::CSV_KIND, "metadata": {"namespace": "n", "name": name}, "spec": {}, "status": {"phase": "Succeeded"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        csv["spec"][key] = value.clone();
    }
    csv
}

fn change(kind: &'static str, object: Value) -> Change {
    Change {
        kind,
        before: None,
        now: Some(Arc::new(object)),
    }
}

fn check(change: &Change, objects: Vec<Value>, expected: &[(&str, Urgency)]) {
    let cluster: Cluster = objects.into_iter().collect();
    let csvs: Vec<(String, Urgency)> = tasks(change, &cluster)
        .into_iter()
        .filter_map(|(work, urgency)| match work {
            Work::Csv(name) => Some((name.to_string(), urgency)),
            _ => None,
        })
        .collect();
    let expected: Vec<(String, Urgency)> = expected
        .iter()
        .map(|(name, urgency)| ((*name).to_owned(), *urgency))
        .collect();
    assert_eq!(csvs, expected);
}

#[test]
fn a_definition_wakes_those_that_bring_or_need_it() {
    let needs = json!({"customresourcedefinitions": {"required": [{"name": "as.g"}]}});
    let brings = json!({"customresourcedefinitions": {"owned": [{"name": "as.g"}]}});
    let object = json!({"kind": names::CRD_KIND, "metadata": {"name": "as.g"}});
    check(
        &change(names::CRD_KIND, object),
        vec![csv("a", &needs), csv("b", &brings), csv("c", &json!({}))],
        &[("n/a", Urgency::Now), ("n/b", Urgency::Now)],
    );
}

#[test]
fn a_role_wakes_those_whose_accounts_are_bound_to_it() {
    let rights = json!({"install": {"spec": {"permissions": [{"serviceAccountName": "sa"}]}}});
    let binding = json!({
        "kind": "RoleBinding", "metadata": {"namespace": "n", "name": "b"},
        "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "sa"}],
    });
    let role = |name: &str| {
        change(
            "Role",
            json!({"kind": "Role", "metadata": {"namespace": "n", "name": name}}),
        )
    };
    let objects = || vec![csv("a", &rights), csv("b", &json!({})), binding.clone()];
    check(&role("r"), objects(), &[("n/a", Urgency::Now)]);
    check(&role("other"), objects(), &[]);
    check(
        &change("RoleBinding", binding.clone()),
        objects(),
        &[("n/a", Urgency::Now)],
    );
}

#[test]
fn what_it_owns_wakes_a_version_patiently() {
    let object = json!({
        "kind": "Deployment",
        "metadata": {"namespace": "n", "name": "d", "ownerReferences": [{"kind": names::CSV_KIND, "name": "a"}]},
    });
    check(
        &change("Deployment", object),
        vec![],
        &[("n/a", Urgency::Patient)],
    );
}

#[test]
fn a_new_version_wakes_itself_and_the_one_that_it_replaces() {
    let new = csv("b", &json!({"replaces": "a"}));
    check(
        &change(names::CSV_KIND, new.clone()),
        vec![csv("a", &json!({})), new, csv("c", &json!({}))],
        &[("n/a", Urgency::Now), ("n/b", Urgency::Now)],
    );
}

#[test]
fn only_a_status_of_its_own_is_no_news_to_a_version() {
    let check_own = |what: &str, changed: fn(&mut Value), expected: Urgency| {
        let mut before = csv("a", &json!({}));
        before["metadata"]["generation"] = json!(1);
        let mut now = before.clone();
        changed(&mut now);
        let cluster: Cluster = [now.clone()].into_iter().collect();
        let change = Change {
            kind: names::CSV_KIND,
            before: Some(Arc::new(before)),
            now: Some(Arc::new(now)),
        };
        let own = Work::Csv(Name::new("n", "a"));
        let found: Vec<Urgency> = tasks(&change, &cluster)
            .into_iter()
            .filter_map(|(work, urgency)| (work == own).then_some(urgency))
            .collect();
        assert_eq!(found, [expected], "{what}");
    };
    check_own(
        "status",
        |now| now["status"] = json!({"phase": "Failed", "message": "m"}),
        Urgency::Patient,
    );
    check_own(
        "deletion",
        |now| now["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        Urgency::Now,
    );
    check_own(
        "spec",
        |now| now["metadata"]["generation"] = json!(2),
        Urgency::Now,
    );
    check_own(
        "annotation",
        |now| now["metadata"]["annotations"] = json!({"a": "b"}),
        Urgency::Now,
    );
    check_own(
        "label",
        |now| now["metadata"]["labels"] = json!({"a": "b"}),
        Urgency::Now,
    );
}

#[test]
fn a_role_for_an_api_wakes_those_that_own_the_api() {
    let brings = json!({"customresourcedefinitions": {"owned": [{"name": "as.g"}]}});
    let needs = json!({"customresourcedefinitions": {"required": [{"name": "as.g"}]}});
    let serves = json!({"apiservicedefinitions": {"owned": [{"group": "h", "version": "v1"}]}});
    let role = |kind: &str, name: &str, label: &str| {
        json!({"kind": "ClusterRole", "metadata": {
            "name": "r", "labels": {label: "true"}, "ownerReferences": [{"kind": kind, "name": name}],
        }})
    };
    let objects = || vec![csv("a", &brings), csv("b", &needs), csv("c", &serves)];
    let label = "olm.opgroup.permissions/aggregate-to-1-admin";
    for (role, expected) in [
        (role("CustomResourceDefinition", "as.g", label), &["n/a"][..]),
        (role("customresourcedefinition", "as.g", label), &["n/a"]),
        (role("APIService", "v1.h", label), &["n/c"]),
        (role("APIService", "v1.h", "mine"), &[]),
        (role("CustomResourceDefinition", "bs.g", label), &[]),
    ] {
        let expected: Vec<_> = expected.iter().map(|name| (*name, Urgency::Patient)).collect();
        check(&change("ClusterRole", role), objects(), &expected);
    }
}

#[test]
fn a_plan_wakes_the_subscriptions_that_it_is_or_was_of() {
    let subscription = |name: &str, package: &str, plan: &str| {
        json!({
            "kind": names::SUBSCRIPTION_KIND, "metadata": {"namespace": "n", "name": name},
            "spec": {"name": package}, "status": {"installPlanRef": {"name": plan}},
        })
    };
    let cluster: Cluster = [
        subscription("present", "p", "i"),
        subscription("former", "q", "j"),
        subscription("other", "r", "j"),
    ]
    .into_iter()
    .collect();
    let plan = json!({"kind": names::INSTALL_PLAN_KIND, "metadata": {
        "namespace": "n", "name": "i", "labels": {"operators.coreos.com/q.n": ""},
    }});
    let woken: Vec<String> = tasks(&change(names::INSTALL_PLAN_KIND, plan), &cluster)
        .into_iter()
        .filter_map(|(work, _)| match work {
            Work::Subscription(name) => Some(name.name),
            _ => None,
        })
        .collect();
    assert_eq!(woken, ["former", "present"]);
}

#[test]
fn a_left_over_api_service_is_looked_at_at_the_start() {
    let service = json!({"kind": names::API_SERVICE_KIND, "metadata": {"name": "v1.g", "labels": {
        "olm.owner": "gone", "olm.owner.namespace": "n", "olm.owner.kind": "ClusterServiceVersion",
    }}});
    let tasks = all(&[service].into_iter().collect());
    let expected = (Work::Csv(Name::new("n", "gone")), Urgency::Now);
    assert_eq!(tasks, Tasks::from([expected]));
}
