use super::*;

fn group() -> OperatorGroup {
    OperatorGroup::read(&json!({"metadata": {"name": "g", "namespace": "n"}})).unwrap()
}

fn names_of(roles: &[Value]) -> Vec<&str> {
    roles.iter().map(|role| text(role, "/metadata/name")).collect()
}

#[test]
fn the_name_of_a_group_role_is_the_one_that_admins_bind() {
    assert_eq!(
        group_role_name("operators", "global-operators", "view"),
        "olm.og.global-operators.view-6lzJtrbG08ne4wrZHGxP3h1MBUjq5e7nOF4gax"
    );
    let long = "x".repeat(253);
    let name = group_role_name("n", &long, "admin");
    assert_eq!(name.len(), 253);
    assert!(name.contains("x.admin-"));
}

#[test]
fn group_roles_select_the_roles_of_the_apis() {
    let apis = ApiSet::parse("B.v1.g,A.v1.g");
    let roles = group_roles(&group(), &apis, &Cluster::default());
    assert_eq!(roles.len(), 3);
    let selectors: Vec<&Value> = items(&roles[1], "/aggregationRule/clusterRoleSelectors").collect();
    assert_eq!(selectors.len(), 2);
    assert_eq!(roles[1]["metadata"]["labels"]["olm.owner.kind"], "OperatorGroup");
    let current: Cluster = roles.into_iter().collect();
    assert!(group_roles(&group(), &apis, &current).is_empty());
}

#[test]
fn a_group_role_loses_its_selectors_with_the_last_api() {
    let current: Cluster = group_roles(&group(), &ApiSet::parse("A.v1.g"), &Cluster::default())
        .into_iter()
        .collect();
    let roles = group_roles(&group(), &ApiSet::default(), &current);
    assert_eq!(roles.len(), 3);
    assert!(roles.iter().all(|role| role.get("aggregationRule").is_none()));
}

fn cluster() -> Cluster {
    [
        json!({"kind": "CustomResourceDefinition", "metadata": {"name": "as.g.h", "uid": "crd"}}),
        json!({"kind": "APIService", "metadata": {"name": "v2.i", "uid": "service"}}),
    ]
    .into_iter()
    .collect()
}

fn csv() -> ClusterServiceVersion {
    ClusterServiceVersion::read(&json!({"spec": {
        "customresourcedefinitions": {"owned": [{"name": "as.g.h", "version": "v1", "kind": "A"}]},
        "apiservicedefinitions": {"owned": [{"name": "bs", "group": "i", "version": "v2", "kind": "B"}]},
    }}))
    .unwrap()
}

#[test]
fn each_api_has_roles_that_go_with_it() {
    let roles = api_roles(&csv(), &cluster());
    assert_eq!(roles.error, None);
    let expected = [
        "as.g.h-v1-admin",
        "as.g.h-v1-edit",
        "as.g.h-v1-view",
        "as.g.h-v1-crdview",
        "bs-v2-admin",
        "bs-v2-edit",
        "bs-v2-view",
    ];
    assert_eq!(names_of(&roles.written), expected);
    let view = &roles.written[3];
    assert_eq!(
        view["rules"],
        json!([{
            "verbs": ["get"],
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": ["as.g.h"],
        }])
    );
    assert_eq!(
        view["metadata"]["ownerReferences"][0]["kind"],
        "CustomResourceDefinition"
    );
    assert_eq!(
        view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"],
        "true"
    );
}

#[test]
fn roles_that_are_right_are_not_written_again() {
    let roles = api_roles(&csv(), &cluster()).written;
    let mut objects: Vec<Value> = cluster().of_kind("CustomResourceDefinition").cloned().collect();
    objects.extend(cluster().of_kind("APIService").cloned());
    objects.extend(roles);
    objects[2]["metadata"]["labels"]["more"] = json!("");
    let differing = api_roles(&csv(), &objects.into_iter().collect()).written;
    assert_eq!(names_of(&differing), ["as.g.h-v1-admin"]);
}

#[test]
fn a_missing_definition_keeps_the_rest_from_being_written() {
    let roles = api_roles(&csv(), &Cluster::default());
    assert!(roles.written.is_empty());
    assert_eq!(
        roles.error.unwrap().to_string(),
        "crd \"as.g.h\" not found: customresourcedefinition.apiextensions.k8s.io \"as.g.h\" not found"
    );
}
