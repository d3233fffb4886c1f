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
fn a_new_version_wakes_the_one_that_it_replaces_and_not_itself_in_haste() {
    let new = csv("b", &json!({"replaces": "a"}));
    check(
        &change(names::CSV_KIND, new.clone()),
        vec![csv("a", &json!({})), new, csv("c", &json!({}))],
        &[("n/a", Urgency::Now), ("n/b", Urgency::Patient)],
    );
}
