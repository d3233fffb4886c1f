//! The needs of an account, and the report of missing rights.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use olm_preflight::permissions::{
    Account, AccountRights, Completeness, Discovery, Environment, Planned, Presence, RequiredRights,
    Resource, Scope, needed,
};
use olm_preflight::rules::PolicyRule;
use serde_json::{Value, json};

const ACCOUNT: Account<'_> = Account {
    namespace: "greeter-system",
    name: "installer",
};

fn discovery() -> Discovery {
    let rbac = "rbac.authorization.k8s.io";
    let known = [
        ("", "ConfigMap", "configmaps", Scope::Namespaced),
        (rbac, "Role", "roles", Scope::Namespaced),
        (rbac, "RoleBinding", "rolebindings", Scope::Namespaced),
        (rbac, "ClusterRole", "clusterroles", Scope::Cluster),
        (rbac, "ClusterRoleBinding", "clusterrolebindings", Scope::Cluster),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            Scope::Cluster,
        ),
    ];
    let entry = |(group, kind, plural, scope): (&str, &str, &str, Scope)| {
        (
            (group.to_owned(), kind.to_owned()),
            Resource {
                plural: plural.to_owned(),
                scope,
            },
        )
    };
    known.into_iter().map(entry).collect()
}

fn needs_watching(objects: &[Value], watched: &[(&str, &str)], roles: &[Value]) -> RequiredRights {
    let discovery = discovery();
    let watched: BTreeSet<(String, String)> = watched
        .iter()
        .map(|(group, kind)| ((*group).to_owned(), (*kind).to_owned()))
        .collect();
    let facts = Environment {
        discovery: &discovery,
        watched: &watched,
        roles,
        namespace: "greeter-system",
    };
    let plan = |object| Planned {
        object,
        presence: Presence::Absent,
    };
    needed(&objects.iter().map(plan).collect::<Vec<_>>(), &facts)
}

fn needs(objects: &[Value]) -> RequiredRights {
    needs_watching(objects, &[], &[])
}

fn rules(list: Value) -> Vec<PolicyRule> {
    serde_json::from_value(list).expect("rules")
}

/// An account with these rules in the cluster and in the namespace `greeter-system`, both known completely.
fn account_rights(cluster: Value, namespaced: Value) -> AccountRights {
    let mut account_rights = AccountRights::new();
    account_rights.add_rules(None, rules(cluster.clone()), Completeness::Complete);
    let mut both = rules(cluster);
    both.extend(rules(namespaced));
    account_rights.add_rules(Some("greeter-system"), both, Completeness::Complete);
    account_rights
}

fn check(needs: &RequiredRights, account_rights: &AccountRights, expected: &[&str]) {
    let missing = needs.missing(account_rights);
    let text = missing.text(ACCOUNT);
    let text = text
        .strip_prefix("service account greeter-system/installer lacks permissions: ")
        .expect("the head");
    let found: Vec<&str> = if missing.is_empty() {
        Vec::new()
    } else {
        text.split("; ").collect()
    };
    assert_eq!(found, expected);
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "greeter-system"}})
}

fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}])
}

#[test]
fn every_missing_right_is_listed_at_once_and_once() {
    let needs = needs(&[config_map("a"), config_map("b"), config_map("b")]);
    check(
        &needs,
        &account_rights(json!([]), json!([])),
        &[
            "create configmaps in namespace greeter-system",
            "delete, get, patch configmaps \"a\", \"b\" in namespace greeter-system",
        ],
    );
    check(&needs, &account_rights(everything(), json!([])), &[]);
    check(&needs, &account_rights(json!([]), everything()), &[]);
    let some = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "create"]}]);
    check(
        &needs,
        &account_rights(json!([]), some),
        &["delete configmaps \"a\", \"b\" in namespace greeter-system"],
    );
}

#[test]
fn an_object_that_exists_needs_no_create_and_watched_kinds_need_list() {
    let discovery = discovery();
    let watched = BTreeSet::from([(String::new(), "ConfigMap".to_owned())]);
    let facts = Environment {
        discovery: &discovery,
        watched: &watched,
        roles: &[],
        namespace: "greeter-system",
    };
    let object = config_map("a");
    let needs = needed(
        &[Planned {
            object: &object,
            presence: Presence::Exists,
        }],
        &facts,
    );
    check(
        &needs,
        &account_rights(json!([]), json!([])),
        &[
            "delete, get, patch configmaps \"a\" in namespace greeter-system",
            "list, watch configmaps in namespace greeter-system",
        ],
    );
}

fn role(kind: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "greeter"},
        "rules": rules,
    })
}

fn writes_roles() -> Value {
    json!([{
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        "verbs": ["get", "create", "patch", "delete"],
    }])
}

fn with(base: &Value, more: &Value) -> Value {
    base.as_array()
        .into_iter()
        .chain(more.as_array())
        .flatten()
        .cloned()
        .collect()
}

#[test]
fn who_writes_a_role_holds_its_rules_or_may_escalate() {
    let granted = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}]);
    let needs = needs(&[role("ClusterRole", &granted)]);
    let expected = ["what the roles among the objects give: get, list deployments.apps"];
    check(&needs, &account_rights(writes_roles(), json!([])), &expected);
    check(
        &needs,
        &account_rights(with(&writes_roles(), &granted), json!([])),
        &[],
    );
    // A right in one namespace does not cover a role for the whole cluster.
    check(&needs, &account_rights(writes_roles(), granted), &expected);
    let half = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]);
    check(
        &needs,
        &account_rights(with(&writes_roles(), &half), json!([])),
        &["what the roles among the objects give: list deployments.apps"],
    );
    let escalate = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": ["greeter"],
        "verbs": ["escalate"],
    }]);
    check(
        &needs,
        &account_rights(with(&writes_roles(), &escalate), json!([])),
        &[],
    );
}

#[test]
fn who_may_do_everything_with_roles_needs_no_other_rule_of_its_roles() {
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let all = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["*"],
    });
    let mut other = role("Role", &json!([pods]));
    other["metadata"]["namespace"] = json!("greeter-system");
    let needs = needs(&[role("ClusterRole", &json!([pods, all])), other]);
    check(
        &needs,
        &account_rights(writes_roles(), json!([])),
        &[
            "what the roles among the objects give: * clusterroles.rbac.authorization.k8s.io",
            "get pods in namespace greeter-system",
        ],
    );
}

#[test]
fn nothing_needs_escalate_on_roles_whose_rules_a_binding_gives_too() {
    let powers = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "roles"], "verbs": ["escalate"],
    }]);
    let given = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let objects = |bound: &[Value]| {
        let roles = [role("ClusterRole", &powers), role("Role", &given)];
        needs(&[&roles, bound].concat())
    };
    let own = account_rights(writes_roles(), json!([]));
    check(
        &objects(&[binding("RoleBinding", "Role")]),
        &own,
        &[
            "what the roles among the objects give: escalate clusterroles.rbac.authorization.k8s.io",
            "get secrets in namespace greeter-system",
        ],
    );
    check(
        &objects(&[]),
        &own,
        &[
            "what the roles among the objects give: escalate clusterroles.rbac.authorization.k8s.io, roles.rbac.authorization.k8s.io",
        ],
    );
}

#[test]
fn a_role_that_gathers_others_needs_everything_or_escalate() {
    let mut gathering = role("ClusterRole", &json!([]));
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": []});
    let needs = needs(&[gathering]);
    check(
        &needs,
        &account_rights(writes_roles(), json!([])),
        &["escalate clusterroles.rbac.authorization.k8s.io \"greeter\""],
    );
    check(&needs, &account_rights(everything(), json!([])), &[]);
}

fn binding(kind: &str, role_kind: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "greeter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": "greeter"},
    })
}

#[test]
fn who_writes_a_binding_holds_the_bound_rules_or_may_bind() {
    let granted = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let bind = ["bind clusterroles.rbac.authorization.k8s.io \"greeter\" in namespace greeter-system"];
    let give = ["what the roles among the objects give: get pods in namespace greeter-system"];
    let bundled = [
        role("ClusterRole", &granted),
        binding("RoleBinding", "ClusterRole"),
    ];
    check(
        &needs(&bundled),
        &account_rights(with(&writes_roles(), &granted), json!([])),
        &[],
    );
    let unbundled = [binding("RoleBinding", "ClusterRole")];
    check(
        &needs(&unbundled),
        &account_rights(with(&writes_roles(), &granted), json!([])),
        &bind,
    );
    let needs = needs_watching(&unbundled, &[], &[role("ClusterRole", &granted)]);
    check(&needs, &account_rights(writes_roles(), granted), &[]);
    check(&needs, &account_rights(writes_roles(), json!([])), &give);
    // A role in a namespace cannot hold a right on a path.
    let path = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let needs = needs_watching(&unbundled, &[], &[role("ClusterRole", &path)]);
    check(&needs, &account_rights(writes_roles(), json!([])), &bind);
}

#[test]
fn a_role_and_its_binding_give_the_same() {
    let names: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    let granted =
        json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"]}]);
    let objects = [
        role("ClusterRole", &granted),
        binding("ClusterRoleBinding", "ClusterRole"),
    ];
    let missing = needs(&objects).missing(&account_rights(writes_roles(), json!([])));
    let verbs: Vec<String> = missing
        .rules()
        .flat_map(|(_, rules)| rules)
        .flat_map(|rule| rule.verbs)
        .collect();
    assert_eq!(verbs, ["get"]);
}

#[test]
fn roles_too_large_to_compare_need_escalate() {
    let many: Vec<String> = (0..300).map(|number| format!("r{number}")).collect();
    let rules = json!([{"apiGroups": many, "resources": many, "verbs": ["get"]}]);
    check(
        &needs(&[role("Role", &rules)]),
        &account_rights(json!([]), with(&writes_roles(), &rules)),
        &["escalate roles.rbac.authorization.k8s.io \"greeter\" in namespace greeter-system"],
    );
}

#[test]
fn kinds_that_the_bundle_brings_are_known_and_others_are_named() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "greetings.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Greeting", "plural": "greetings"}},
    });
    let greeting = json!({"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": {"name": "k"}});
    let backup = json!({"apiVersion": "other.example.com/v1", "kind": "Backup", "metadata": {"name": "c"}});
    let needs = needs(&[definition, greeting, backup]);
    assert_eq!(
        needs.unknown_kinds().collect::<Vec<_>>(),
        [("other.example.com", "Backup")]
    );
    check(
        &needs,
        &account_rights(json!([]), json!([])),
        &[
            "create customresourcedefinitions.apiextensions.k8s.io",
            "delete, get, patch customresourcedefinitions.apiextensions.k8s.io \"greetings.example.com\"",
            "create greetings.example.com",
            "delete, get, patch greetings.example.com \"k\"",
        ],
    );
}

#[test]
fn only_rights_that_the_rules_leave_open_are_asked() {
    let granted = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]);
    let needs = needs(&[config_map("a"), role("ClusterRole", &granted)]);
    // For the whole cluster, the rules of a namespace can prove a missing right, but not a granted one.
    let mut account_rights = AccountRights::new();
    let seen = with(
        &writes_roles(),
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
    );
    account_rights.add_rules(Some("greeter-system"), rules(seen), Completeness::Complete);
    let questions = needs.open_questions(&account_rights);
    let verbs: Vec<&str> = questions.iter().map(|right| right.access.verb.as_str()).collect();
    assert_eq!(verbs, ["create", "delete", "get", "patch"]);
    assert!(questions.iter().all(|right| right.namespace.is_none()));
    for question in questions {
        account_rights.add_answer(question, true);
    }
    assert_eq!(needs.open_questions(&account_rights), []);
    check(
        &needs,
        &account_rights,
        &[
            "create configmaps in namespace greeter-system",
            "delete, patch configmaps \"a\" in namespace greeter-system",
            "what the roles among the objects give: get deployments.apps",
        ],
    );
    // If the rules are incomplete, everything that they do not allow is open.
    let mut unsure = AccountRights::new();
    unsure.add_rules(Some("greeter-system"), Vec::new(), Completeness::Incomplete);
    assert_eq!(needs.open_questions(&unsure).len(), 10);
}

#[test]
fn the_missing_rights_are_a_role_that_can_be_applied() {
    let granted = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"], "verbs": ["create"]}]);
    let objects = [config_map("a"), role("ClusterRole", &granted)];
    let missing = needs(&objects).missing(&account_rights(json!([]), json!([])));
    let expected = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: greeter-installer
rules:
- apiGroups:
  - rbac.authorization.k8s.io
  resources:
  - clusterroles
  verbs:
  - create
- apiGroups:
  - rbac.authorization.k8s.io
  resourceNames:
  - greeter
  resources:
  - clusterroles
  verbs:
  - delete
  - get
  - patch
- apiGroups:
  - apps
  resourceNames:
  - x
  resources:
  - deployments
  verbs:
  - create
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: greeter-installer
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: greeter-installer
subjects:
- kind: ServiceAccount
  name: installer
  namespace: greeter-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: greeter-installer
  namespace: greeter-system
rules:
- apiGroups:
  - \"\"
  resources:
  - configmaps
  verbs:
  - create
- apiGroups:
  - \"\"
  resourceNames:
  - a
  resources:
  - configmaps
  verbs:
  - delete
  - get
  - patch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: greeter-installer
  namespace: greeter-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: greeter-installer
subjects:
- kind: ServiceAccount
  name: installer
  namespace: greeter-system
";
    assert_eq!(missing.yaml("greeter-installer", &[], ACCOUNT), expected);
    // With the printed roles no right is missing.
    let mut mended = AccountRights::new();
    for (namespace, rules) in missing.rules() {
        mended.add_rules(namespace, rules, Completeness::Complete);
    }
    assert!(needs(&objects).missing(&mended).is_empty());
}

#[test]
fn the_text_is_bounded() {
    let objects: Vec<Value> = (0..500)
        .map(|number| {
            let mut object = config_map(&format!("map-{number}"));
            object["metadata"]["namespace"] = json!(format!("namespace-{number}"));
            object
        })
        .collect();
    let text = needs(&objects).missing(&AccountRights::new()).text(ACCOUNT);
    assert!(text.len() < 1200, "{}", text.len());
    assert!(text.ends_with(" more"), "{text}");
    let many: Vec<Value> = (0..500)
        .map(|number| config_map(&format!("map-{number}")))
        .collect();
    let text = needs(&many).missing(&AccountRights::new()).text(ACCOUNT);
    assert!(
        text.ends_with("and 495 more in namespace greeter-system"),
        "{text}"
    );
}
