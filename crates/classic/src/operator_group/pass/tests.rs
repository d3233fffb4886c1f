use super::*;

const NOW: &str = "2030-01-01T00:00:00Z";

fn group(spec: &Value, status: &Value, apis: &str) -> Value {
    json!({
        "kind": "OperatorGroup",
        "metadata": {"name": "g", "namespace": "n", "uid": "u", "annotations": {"olm.providedAPIs": apis}},
        "spec": spec,
        "status": status,
    })
}

fn csv(name: &str, phase: &str, annotations: &Value) -> Value {
    json!({
        "kind": "ClusterServiceVersion",
        "metadata": {"name": name, "namespace": "n", "annotations": annotations},
        "spec": {"customresourcedefinitions": {"owned": [{"name": "as.g", "version": "v1", "kind": "A"}]}},
        "status": {"phase": phase},
    })
}

fn run(objects: &[Value]) -> OperatorGroupDecision {
    pass("n", "g", &objects.iter().cloned().collect(), NOW.parse().unwrap())
}

fn written<'a>(decision: &'a OperatorGroupDecision, kind: &str) -> Vec<&'a Value> {
    let of_kind = |object: &&Value| object["kind"] == *kind;
    decision.written.iter().filter(of_kind).collect()
}

fn settled() -> Value {
    json!({"namespaces": ["x"]})
}

fn annotated() -> Value {
    json!({"olm.operatorGroup": "g", "olm.operatorNamespace": "n", "olm.targetNamespaces": "x"})
}

#[test]
fn other_namespaces_go_into_the_status_and_end_the_pass() {
    let spec = json!({"targetNamespaces": ["x", "y"]});
    let decision = run(&[group(&spec, &settled(), ""), csv("c.v1", "Succeeded", &json!({}))]);
    assert_eq!(decision.written.len(), 1);
    let status = &decision.written[0]["status"];
    assert_eq!(*status, json!({"namespaces": ["x", "y"], "lastUpdated": NOW}));
    assert_eq!(decision.namespaces, BTreeSet::from(["y".to_owned()]));
}

#[test]
fn a_group_that_loses_its_last_namespace_selects_none_and_not_all() {
    let spec = json!({"selector": {"matchLabels": {"team": "blue"}}});
    let decision = run(&[
        group(&spec, &settled(), ""),
        csv("c.v1", "Succeeded", &annotated()),
    ]);
    assert_eq!(decision.written.len(), 1);
    assert_eq!(decision.written[0]["status"], json!({"lastUpdated": NOW}));
    for status in [json!({}), json!({"namespaces": []})] {
        let decision = run(&[
            group(&spec, &status, "A.v1.g"),
            csv("c.v1", "Succeeded", &annotated()),
        ]);
        assert!(written(&decision, "ClusterServiceVersion").is_empty());
        let decision = run(&[
            group(&spec, &status, "A.v1.g"),
            csv("c.v1", "Succeeded", &json!({})),
        ]);
        let annotations = &written(&decision, "ClusterServiceVersion")[0]["metadata"]["annotations"];
        assert_eq!(
            *annotations,
            json!({"olm.operatorGroup": "g", "olm.operatorNamespace": "n"})
        );
    }
}

#[test]
fn members_learn_their_group_and_copies_do_not() {
    let mut copy = csv("copy", "Succeeded", &json!({}));
    copy["metadata"]["labels"] = json!({"olm.copiedFrom": "m"});
    let spec = json!({"targetNamespaces": ["x"]});
    let decision = run(&[
        group(&spec, &settled(), "A.v1.g"),
        csv("c.v1", "Succeeded", &json!({"own": "1"})),
        copy,
    ]);
    let members = written(&decision, "ClusterServiceVersion");
    assert_eq!(members.len(), 1);
    let mut expected = annotated();
    expected["own"] = json!("1");
    assert_eq!(members[0]["metadata"]["annotations"], expected);
    assert_eq!(written(&decision, "ClusterRole").len(), 3);
    assert_eq!(
        decision.csvs,
        BTreeSet::from([("n".to_owned(), "c.v1".to_owned())])
    );
}

#[test]
fn apis_that_nobody_provides_any_more_are_removed() {
    let spec = json!({"targetNamespaces": ["x"]});
    let decision = run(&[
        group(&spec, &settled(), "A.v1.g,B.v1.g"),
        csv("c.v1", "Succeeded", &annotated()),
    ]);
    let groups = written(&decision, "OperatorGroup");
    assert_eq!(groups[0]["metadata"]["annotations"]["olm.providedAPIs"], "A.v1.g");
}

#[test]
fn apis_stay_while_the_list_is_static_or_a_member_is_new() {
    let fixed = json!({"targetNamespaces": ["x"], "staticProvidedAPIs": true});
    let decision = run(&[
        group(&fixed, &settled(), "B.v1.g"),
        csv("c.v1", "Succeeded", &annotated()),
    ]);
    assert!(written(&decision, "OperatorGroup").is_empty());
    let spec = json!({"targetNamespaces": ["x"]});
    let decision = run(&[
        group(&spec, &settled(), "B.v1.g"),
        csv("c.v1", "Pending", &annotated()),
    ]);
    assert!(written(&decision, "OperatorGroup").is_empty());
}

#[test]
fn a_pass_over_its_own_result_writes_nothing() {
    let spec = json!({"targetNamespaces": ["x"]});
    let mut objects = vec![
        group(&spec, &json!({}), "B.v1.g"),
        csv("c.v1", "Succeeded", &json!({})),
    ];
    for _ in 0..3 {
        let decision = run(&objects);
        let written = decision.written.clone();
        let keep = |object: &Value| {
            !written.iter().any(|new| {
                new["kind"] == object["kind"] && new["metadata"]["name"] == object["metadata"]["name"]
            })
        };
        objects.retain(keep);
        objects.extend(written);
    }
    assert_eq!(run(&objects).written, Vec::<Value>::new());
}

#[test]
fn groups_that_share_a_namespace_say_so() {
    let spec = json!({"targetNamespaces": ["x"]});
    let mut other = group(&spec, &settled(), "");
    other["metadata"]["name"] = json!("h");
    let decision = run(&[group(&spec, &settled(), ""), other]);
    let groups = written(&decision, "OperatorGroup");
    assert_eq!(groups.len(), 2);
    assert!(
        groups
            .iter()
            .all(|group| group["status"]["conditions"][0]["type"] == "MultipleOperatorGroup")
    );
    let alone = run(&[groups[0].clone()]);
    let mut left = settled();
    // The API server wants to know when a status was written.
    left["lastUpdated"] = groups[0]["status"]["lastUpdated"].clone();
    assert_eq!(written(&alone, "OperatorGroup")[0]["status"], left);
}

#[test]
fn a_missing_account_stops_the_pass_and_is_reported_once() {
    let spec = json!({"targetNamespaces": ["y"], "serviceAccountName": "sa"});
    let decision = run(&[group(&spec, &settled(), "")]);
    assert_eq!(decision.error, Some(PassError::Account("sa".to_owned())));
    let missing = &decision.written[0];
    assert_eq!(missing["status"]["namespaces"], json!(["x"]));
    assert_eq!(
        missing["status"]["conditions"][0]["message"],
        "ServiceAccount sa not found"
    );
    let again = pass(
        "n",
        "g",
        &[missing.clone()].into_iter().collect(),
        "2030-02-01T00:00:00Z".parse().unwrap(),
    );
    assert!(again.written.is_empty());
}

#[test]
fn a_new_account_is_kept_with_new_namespaces_and_lets_members_try_again() {
    let spec = json!({"targetNamespaces": ["x", "y"], "serviceAccountName": "sa"});
    let account = json!({"kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "n", "uid": "s"}});
    let mut member = csv("c.v1", "Failed", &annotated());
    member["status"]["reason"] = json!("InstallComponentFailedNoRetry");
    let decision = run(&[group(&spec, &settled(), ""), account, member]);
    let status = &written(&decision, "OperatorGroup")[0]["status"];
    assert_eq!(status["serviceAccountRef"]["uid"], "s");
    assert_eq!(status["namespaces"], json!(["x", "y"]));
    let account = written(&decision, "ServiceAccount")[0];
    assert_eq!(account["metadata"]["labels"]["olm.managed"], "true");
    let member = &written(&decision, "ClusterServiceVersion")[0]["status"];
    assert_eq!(member["phase"], "Pending");
    assert_eq!(member["reason"], "DetectedClusterChange");
}

#[test]
fn members_of_a_group_that_selects_nothing_get_no_namespaces() {
    let spec = json!({"selector": {"matchLabels": {"no": "such"}}});
    let decision = run(&[group(&spec, &json!({}), ""), csv("c.v1", "", &json!({}))]);
    let annotations = &written(&decision, "ClusterServiceVersion")[0]["metadata"]["annotations"];
    assert_eq!(
        *annotations,
        json!({"olm.operatorGroup": "g", "olm.operatorNamespace": "n"})
    );
}

#[test]
fn providers_under_groups_that_share_a_namespace_are_looked_at() {
    let spec = json!({"targetNamespaces": ["x"]});
    let elsewhere = |kind: &Value, place: &str, targets: &Value| {
        let mut object = kind.clone();
        object["metadata"]["namespace"] = json!(place);
        if object["kind"] == "OperatorGroup" {
            object["status"] = json!({"namespaces": targets});
        }
        object
    };
    let group = group(&spec, &settled(), "A.v1.g");
    let csv = csv("c.v1", "Succeeded", &annotated());
    let mut objects = vec![group.clone(), csv.clone()];
    for (place, targets) in [
        ("shares", json!(["x", "y"])),
        ("global", json!([""])),
        ("apart", json!(["z"])),
        ("new", json!([])),
    ] {
        objects.push(elsewhere(&group, place, &targets));
        objects.push(elsewhere(&csv, place, &targets));
    }
    objects.push(elsewhere(&csv, "without", &json!(null)));
    let mut other = elsewhere(&csv, "shares", &json!(null));
    other["metadata"]["name"] = json!("other.v1");
    other["spec"] = json!({});
    objects.push(other);
    let places: Vec<String> = run(&objects)
        .csvs
        .into_iter()
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    assert_eq!(places, ["global/c.v1", "shares/c.v1"]);
}
