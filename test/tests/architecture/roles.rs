//! The rights of the managers themselves, in the rendered manifests.

mod classic;

use std::collections::BTreeSet;
use std::process::Command;

use olm_test::cluster::{Binaries, Mode};
use serde_json::Value;

use crate::root;

const OVERLAYS: &[&str] = &[
    "base",
    "overlays/cert-manager",
    "overlays/default-account",
    "overlays/default-account-guarded",
    "overlays/openshift",
    "overlays/restricted",
];
const ACCOUNTS: &[&str] = &[
    "catalogd-controller-manager",
    "operator-controller-controller-manager",
];
const READS: &[&str] = &["get", "list", "watch"];

/// A write: role, groups, resources (and names), verbs, and the reason why it does not write bundle content.
type Write = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// Every write that a manager may make by itself.
const WRITES: &[Write] = &[
    (
        "catalogd-manager-role",
        "olm.operatorframework.io",
        "clustercatalogs",
        "patch,update",
        "our kind",
    ),
    (
        "catalogd-manager-role",
        "olm.operatorframework.io",
        "clustercatalogs",
        "publish",
        "no write: the admission policy lets it write status and its label",
    ),
    (
        "catalogd-manager-role",
        "olm.operatorframework.io",
        "clustercatalogs/finalizers",
        "update",
        "our kind",
    ),
    (
        "catalogd-manager-role",
        "olm.operatorframework.io",
        "clustercatalogs/status",
        "patch,update",
        "our kind",
    ),
    (
        "catalogd-manager-role",
        "events.k8s.io",
        "events",
        "create,patch",
        "what happened",
    ),
    (
        "catalogd-manager-role",
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "stores nothing",
    ),
    (
        "catalogd-manager-role",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
        "stores nothing",
    ),
    (
        "catalogd-manager-role",
        "",
        "secrets (catalogd-self-signed)",
        "patch,update",
        "its certificate",
    ),
    (
        "catalogd-manager-role",
        "",
        "configmaps (catalogd-ca)",
        "patch,update",
        "its authority",
    ),
    (
        "catalogd-manager-role",
        "coordination.k8s.io",
        "leases",
        "create,delete,patch,update",
        "who leads, in its namespace",
    ),
    (
        "catalogd-manager-role",
        ",events.k8s.io",
        "events",
        "create,patch",
        "what happened",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "clusterextensions",
        "patch,update",
        "our kind",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "clusterobjectsets",
        "create,delete,patch,update",
        "our kind",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "clusterextensions/status,clusterobjectsets/status",
        "patch,update",
        "our kinds",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "clusterextensions/finalizers,clusterobjectsets/finalizers",
        "update",
        "our kinds",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "pendingchanges",
        "create,delete",
        "our kind; an admission policy refuses its decisions",
    ),
    (
        "operator-controller-manager-role",
        "olm.operatorframework.io",
        "changepolicies/status,pendingchanges/status",
        "patch,update",
        "our kinds",
    ),
    (
        "operator-controller-manager-role",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "create",
        "OperatorConditions where OLM classic has not brought them; none that exists is changed",
    ),
    (
        "operator-controller-manager-role",
        "operators.coreos.com",
        "operatorconditions",
        "create,delete,patch,update",
        "how an operator holds its upgrade back",
    ),
    (
        "operator-controller-manager-role",
        "operators.coreos.com",
        "operatorconditions/status",
        "patch,update",
        "how an operator holds its upgrade back",
    ),
    (
        "operator-controller-manager-role",
        "rbac.authorization.k8s.io",
        "roles,rolebindings",
        "create,delete,patch",
        "for OperatorConditions by name; an admission policy refuses others",
    ),
    (
        "operator-controller-manager-role",
        "events.k8s.io",
        "events",
        "create,patch",
        "what happened",
    ),
    (
        "operator-controller-manager-role",
        "identity.olm.operatorframework.io",
        "controllers",
        "act",
        "no API: the admission policies know the controller by it",
    ),
    (
        "operator-controller-manager-role",
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "stores nothing",
    ),
    (
        "operator-controller-manager-role",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
        "stores nothing",
    ),
    (
        "operator-controller-manager-role",
        "config.openshift.io",
        "clusteroperators",
        "create",
        "whether OpenShift may be updated",
    ),
    (
        "operator-controller-manager-role",
        "config.openshift.io",
        "clusteroperators/status",
        "patch,update",
        "whether OpenShift may be updated",
    ),
    (
        "operator-controller-manager-role",
        "",
        "secrets",
        "create,delete,patch,update",
        "content of revisions, in its namespace",
    ),
    (
        "operator-controller-manager-role",
        "",
        "configmaps",
        "create,patch,update",
        "authorities, in its namespace",
    ),
    (
        "operator-controller-manager-role",
        "coordination.k8s.io",
        "leases",
        "create,delete,patch,update",
        "who leads, in its namespace",
    ),
    (
        "operator-controller-manager-role",
        ",events.k8s.io",
        "events",
        "create,patch",
        "what happened",
    ),
];
/// The rights that the overlay `restricted` removes.
const TOKENS: Write = (
    "operator-controller-tokens-role",
    "",
    "serviceaccounts/token",
    "create",
    "acts as the accounts that extensions name",
);
/// The rights that only OpenShift has.
const PRIVILEGED: Write = (
    "olm-privileged-scc",
    "security.openshift.io",
    "securitycontextconstraints (privileged)",
    "use",
    "settings of the host for registries",
);

/// The objects that `kubectl kustomize` makes of a folder.
fn rendered(folder: &str) -> Vec<Value> {
    let kubectl = Binaries::ensure(Mode::ApiServer).unwrap().path("kubectl");
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(root().join("manifests").join(folder))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{folder}: {said}");
    olm_yaml::documents(output.stdout.as_slice(), &olm_yaml::Limits::default())
        .map(|document| document.unwrap().into_value().unwrap())
        .collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn members<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The roles that are bound to one of these accounts, with those that are gathered into one of them.
fn roles_of<'a>(objects: &'a [Value], accounts: &[&str]) -> Vec<&'a Value> {
    let is_role = |object: &&Value| ["Role", "ClusterRole"].contains(&text(object, "/kind"));
    let bound = |role: &Value| {
        objects.iter().any(|binding| {
            let subject = |subject: &Value| accounts.contains(&text(subject, "/name"));
            members(binding, "subjects").any(subject)
                && text(binding, "/roleRef/name") == text(role, "/metadata/name")
                && text(binding, "/roleRef/kind") == text(role, "/kind")
                && text(binding, "/metadata/namespace") == text(role, "/metadata/namespace")
        })
    };
    let gathers = |role: &Value, other: &Value| {
        let selectors = role
            .pointer("/aggregationRule/clusterRoleSelectors")
            .and_then(Value::as_array);
        selectors.into_iter().flatten().any(|selector| {
            let wanted = selector.get("matchLabels").and_then(Value::as_object);
            wanted.is_some_and(|wanted| {
                wanted
                    .iter()
                    .all(|(key, value)| other["metadata"]["labels"].get(key) == Some(value))
            })
        })
    };
    let direct: Vec<&Value> = objects
        .iter()
        .filter(is_role)
        .filter(|role| bound(role))
        .collect();
    let gathered = objects
        .iter()
        .filter(is_role)
        .filter(|other| direct.iter().any(|role| gathers(role, other)));
    direct.iter().copied().chain(gathered).collect()
}

/// Whether a ClusterRole may read Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrets {
    /// The role must not read Secrets.
    Never,
    /// The role may read Secrets.
    Read,
}

/// The accounts may make these writes and no others. They have no rights on kinds that are not named, and no role but
/// those that are rendered here.
fn check<'a>(
    folder: &str,
    objects: &[Value],
    accounts: &[&str],
    secrets: Secrets,
    expected: impl Iterator<Item = &'a Write>,
) {
    let roles = roles_of(objects, accounts);
    let names: BTreeSet<&str> = roles.iter().map(|role| text(role, "/metadata/name")).collect();
    for binding in objects {
        let to_account =
            members(binding, "subjects").any(|subject| accounts.contains(&text(subject, "/name")));
        let role = text(binding, "/roleRef/name");
        assert!(
            !to_account || names.contains(role),
            "{folder}: an account is bound to {role}"
        );
    }
    let mut writes = BTreeSet::new();
    for role in roles {
        let name = text(role, "/metadata/name");
        for rule in members(role, "rules") {
            for field in ["apiGroups", "resources", "verbs"] {
                assert!(!list(rule, field).contains(&"*"), "{folder}: {name} has {rule}");
            }
            let is_cluster_wide = text(role, "/kind") == "ClusterRole";
            let has_secrets =
                list(rule, "apiGroups").contains(&"") && list(rule, "resources").contains(&"secrets");
            assert!(
                secrets == Secrets::Read || !(is_cluster_wide && has_secrets),
                "{folder}: {name} has all Secrets: {rule}"
            );
            let mut verbs = list(rule, "verbs");
            verbs.retain(|verb| !READS.contains(verb));
            verbs.sort_unstable();
            if verbs.is_empty() {
                continue;
            }
            let named = list(rule, "resourceNames");
            let named = if named.is_empty() {
                String::new()
            } else {
                format!(" ({})", named.join(","))
            };
            let resources = format!("{}{named}", list(rule, "resources").join(","));
            writes.insert((
                name,
                list(rule, "apiGroups").join(","),
                resources,
                verbs.join(","),
            ));
        }
    }
    let expected: BTreeSet<_> = expected
        .map(|(role, groups, resources, verbs, _)| {
            (
                *role,
                (*groups).to_owned(),
                (*resources).to_owned(),
                (*verbs).to_owned(),
            )
        })
        .collect();
    let more: Vec<_> = writes.difference(&expected).collect();
    let fewer: Vec<_> = expected.difference(&writes).collect();
    assert!(
        more.is_empty() && fewer.is_empty(),
        "{folder}: unexpected {more:#?}, missing {fewer:#?}"
    );
}

#[test]
fn the_managers_write_nothing_but_their_own_kinds() {
    for overlay in OVERLAYS {
        let objects = rendered(overlay);
        let roles = roles_of(&objects, ACCOUNTS);
        let names: BTreeSet<&str> = roles.iter().map(|role| text(role, "/metadata/name")).collect();
        for role in [
            "catalogd-manager-role",
            "operator-controller-manager-role",
            "operator-controller-drift-watch-base",
        ] {
            assert!(names.contains(role), "{overlay}: {role} is not among {names:?}");
        }
        let tokens = (*overlay != "overlays/restricted").then_some(&TOKENS);
        let privileged = (*overlay == "overlays/openshift").then_some(&PRIVILEGED);
        let expected = WRITES.iter().chain(tokens).chain(privileged);
        check(overlay, &objects, ACCOUNTS, Secrets::Never, expected);
    }
}
