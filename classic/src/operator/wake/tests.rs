//! Tests of what there is to do after a change.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::objects::kinds;

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

const LABEL: &str = "operators.coreos.com/p.n";

/// The meant work of a change from one version to another.
fn works(before: &Value, now: &Value, others: &[Value], is_meant: fn(&Work) -> bool) -> Vec<Work> {
    let kind = kinds::find(text(now, "/kind")).unwrap().kind;
    let cluster: Cluster = others.iter().chain([now]).cloned().collect();
    let change = Change {
        kind,
        before: Some(Arc::new(before.clone())),
        now: Some(Arc::new(now.clone())),
    };
    let tasks = tasks(&change, &cluster).into_iter();
    tasks.map(|(work, _)| work).filter(is_meant).collect()
}

fn with(object: &Value, pointer: &str, value: &Value) -> Value {
    let mut object = object.clone();
    let mut here = &mut object;
    for key in pointer.split('/').skip(1) {
        here = &mut here[key.replace('~', "/")];
    }
    *here = value.clone();
    object
}

#[test]
fn an_operator_waits_for_what_it_shows() {
    let version = with(&csv("a", &json!({})), "/metadata/labels", &json!({LABEL: ""}));
    let is_component = |work: &Work| matches!(work, Work::Component(_));
    let check = |pointer: &str, value: &Value, expected: usize| {
        let now = with(&version, pointer, value);
        let found = works(&version, &now, &[], is_component);
        assert_eq!(
            found,
            vec![Work::Component("p.n".to_owned()); expected],
            "{pointer}"
        );
    };
    check("/metadata/annotations", &json!({"a": "b"}), 0);
    check("/status/requirementStatus", &json!([{"name": "x"}]), 0);
    check("/status/phase", &json!("Failed"), 1);
    check("/status/message", &json!("m"), 1);
    check("/metadata/labels", &json!({}), 1);
}

#[test]
fn notes_on_a_definition_wake_only_those_that_it_came_with() {
    let brings = json!({"customresourcedefinitions": {"owned": [{"name": "as.g"}]}});
    let elsewhere = with(&csv("b", &brings), "/metadata/namespace", &json!("m"));
    let others = [csv("a", &brings), elsewhere, csv("c", &json!({}))];
    let definition = json!({
        "kind": names::CRD_KIND, "metadata": {"name": "as.g"}, "spec": {"scope": "Cluster"},
        "status": {"conditions": []},
    });
    let is_version = |work: &Work| matches!(work, Work::Csv(_));
    let check = |pointer: &str, value: &Value, expected: &[Name]| {
        let now = with(&definition, pointer, value);
        let expected: Vec<Work> = expected.iter().cloned().map(Work::Csv).collect();
        assert_eq!(
            works(&definition, &now, &others, is_version),
            expected,
            "{pointer}"
        );
        assert_eq!(
            works(&now, &definition, &others, is_version),
            expected,
            "{pointer}"
        );
    };
    let all = [Name::new("m", "b"), Name::new("n", "a")];
    let note = format!("{}0a", names::ALONGSIDE_PREFIX);
    check("/metadata/annotations", &json!({note: "n/old"}), &all[1..]);
    check("/metadata/annotations", &json!({"other": "n/old"}), &[]);
    check("/metadata/labels", &json!({"a": "b"}), &[]);
    check("/status/storedVersions", &json!(["v1"]), &[]);
    check("/metadata/uid", &json!("u"), &all);
    check("/metadata/deletionTimestamp", &json!("t"), &all);
    check("/spec/scope", &json!("Namespaced"), &all);
    check("/status/conditions", &json!([{"type": "Established"}]), &all);
}

#[test]
fn what_lacks_a_label_is_labelled() {
    let brings = json!({"customresourcedefinitions": {"owned": [{"name": "as.g"}]}});
    let version = with(&csv("a", &brings), "/metadata/labels", &json!({LABEL: ""}));
    let deployment = json!({"kind": "Deployment", "metadata": {
        "namespace": "n", "name": "d", "ownerReferences": [{"kind": names::CSV_KIND, "name": "a"}],
    }});
    let role = json!({"kind": "ClusterRole", "metadata": {"name": "r", "labels": {
        "olm.owner": "a", "olm.owner.namespace": "n", "olm.owner.kind": names::CSV_KIND,
    }}});
    let definition = json!({"kind": names::CRD_KIND, "metadata": {"name": "as.g"}});
    let is_owned = |work: &Work| matches!(work, Work::Owned(_));
    let wanted = [Work::Owned(Name::new("n", "a"))];
    let none: [Work; 0] = [];
    for object in [deployment, role, definition] {
        let now = with(&object, "/metadata/annotations", &json!({"a": "b"}));
        let found = works(&object, &now, std::slice::from_ref(&version), is_owned);
        assert_eq!(found, wanted, "{object}");
        let key = format!("/metadata/labels/{}", LABEL.replace('/', "~"));
        let [before, now] = [&object, &now].map(|object| with(object, &key, &json!("")));
        let others = std::slice::from_ref(&version);
        assert_eq!(works(&before, &now, others, is_owned), none, "{object}");
        assert_eq!(works(&before, &object, others, is_owned), wanted, "{object}");
        assert_eq!(works(&object, &now, &[], is_owned), none, "{object}");
    }
}

#[test]
fn a_status_of_a_version_wakes_its_group_and_its_labels_only_with_another_phase() {
    let version = with(&csv("a", &json!({})), "/metadata/labels", &json!({LABEL: ""}));
    let group = json!({"kind": names::OPERATOR_GROUP_KIND, "metadata": {"namespace": "n", "name": "g"}});
    let is_meant = |work: &Work| matches!(work, Work::Owned(_) | Work::Group(_));
    let check = |pointer: &str, value: &Value, expected: &[Work]| {
        let now = with(&version, pointer, value);
        let found = works(&version, &now, std::slice::from_ref(&group), is_meant);
        assert_eq!(found, expected, "{pointer}");
    };
    let both = [Work::Group(Name::new("n", "g")), Work::Owned(Name::new("n", "a"))];
    check("/status/message", &json!("m"), &[]);
    check("/status/reason", &json!("R"), &[]);
    check("/status/phase", &json!("Failed"), &both);
    check("/metadata/labels", &json!({}), &both);
    check("/metadata/annotations", &json!({"a": "b"}), &both[..1]);
    check("/metadata/deletionTimestamp", &json!("t"), &both[..1]);
    check(
        "/metadata/annotations",
        &json!({names::PAUSED_ANNOTATION: "true"}),
        &both,
    );
}

#[test]
fn only_settings_of_a_subscription_matter_to_its_version() {
    let subscription = json!({
        "kind": names::SUBSCRIPTION_KIND, "metadata": {"namespace": "n", "name": "s", "generation": 1},
        "status": {"installedCSV": "a"},
    });
    let is_meant = |work: &Work| matches!(work, Work::Csv(_) | Work::Owned(_));
    let check = |pointer: &str, value: &Value, expected: &[&str]| {
        let now = with(&subscription, pointer, value);
        let versions = expected.iter().map(|name| Name::new("n", name));
        let expected: Vec<Work> = versions
            .clone()
            .map(Work::Csv)
            .chain(versions.map(Work::Owned))
            .collect();
        assert_eq!(works(&subscription, &now, &[], is_meant), expected, "{pointer}");
    };
    check("/status/conditions", &json!([{"type": "x"}]), &[]);
    check("/status/currentCSV", &json!("b"), &[]);
    check("/status/installedCSV", &json!("b"), &["a", "b"]);
    check("/metadata/generation", &json!(2), &["a"]);
    check("/metadata/annotations", &json!({"a": "b"}), &["a"]);
}
