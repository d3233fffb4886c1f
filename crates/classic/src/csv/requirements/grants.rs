//! The rights that roles and bindings give a service account.

use serde::Deserialize as _;
use serde_json::Value;

use crate::cluster::{Cluster, items, text};
use crate::csv::PolicyRule;

/// Most single requests of a rule that are looked at. A rule with more that no single role covers counts as not
/// satisfied.
const MAX_REQUESTS: usize = 100_000;

/// The rules that bindings give a service account in a namespace, or in the whole cluster.
///
/// Grants to groups do not count, not even to the groups of all service accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grants(Vec<PolicyRule>);

/// A single request, as RBAC decides it. One with a path is about no resource.
struct AccessRequest<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    path: &'a str,
}

impl Grants {
    /// The rules for the service account `name` of `namespace` in the namespace `scope`; empty for the whole cluster.
    pub(super) fn of(namespace: &str, name: &str, scope: &str, cluster: &Cluster) -> Self {
        let is_bound = |binding: &&Value| {
            let scope = text(binding, "/metadata/namespace");
            items(binding, "/subjects").any(|subject| is_account(subject, scope, namespace, name))
        };
        let global = cluster.of_kind("ClusterRoleBinding");
        let local = cluster
            .in_namespace("RoleBinding", scope)
            .filter(|_| !scope.is_empty());
        let rules = global
            .chain(local)
            .filter(is_bound)
            .filter_map(|binding| bound_role(binding, cluster))
            .flat_map(|role| items(role, "/rules"))
            .filter_map(|rule| PolicyRule::deserialize(rule).ok());
        Self(rules.collect())
    }

    /// Whether everything is granted that the rule allows.
    pub(super) fn satisfy(&self, rule: &PolicyRule) -> bool {
        self.0.iter().any(|granted| covers(granted, rule)) || self.satisfy_each(rule)
    }

    /// Several roles may together grant the accesses of a rule.
    fn satisfy_each(&self, rule: &PolicyRule) -> bool {
        let groups = or_empty(&rule.api_groups);
        let resources = or_empty(&rule.resources);
        let names = or_empty(&rule.resource_names);
        let paths = or_empty(&rule.non_resource_urls);
        let count = [&groups, &resources, &names, &paths]
            .iter()
            .try_fold(rule.verbs.len(), |count, values| count.checked_mul(values.len()));
        if count.is_none_or(|count| count > MAX_REQUESTS) {
            return false;
        }
        let each = |verb: &str| {
            let all_of = |group: &str, resource: &str| {
                names.iter().all(|name| {
                    paths.iter().all(|path| {
                        self.allow(&AccessRequest {
                            verb,
                            group,
                            resource,
                            name,
                            path,
                        })
                    })
                })
            };
            groups
                .iter()
                .all(|group| resources.iter().all(|resource| all_of(group, resource)))
        };
        rule.verbs.iter().all(|verb| each(verb))
    }

    fn allow(&self, request: &AccessRequest<'_>) -> bool {
        self.0.iter().any(|granted| allows(granted, request))
    }
}

/// The values, or the one empty value.
fn or_empty(values: &[String]) -> Vec<&str> {
    if values.is_empty() {
        vec![""]
    } else {
        values.iter().map(String::as_str).collect()
    }
}

/// Whether one granted rule has all that another allows.
fn covers(granted: &PolicyRule, rule: &PolicyRule) -> bool {
    let all = |values: &[String], matches: &dyn Fn(&str) -> bool| or_empty(values).into_iter().all(matches);
    let verbs = all(&rule.verbs, &|verb| has(&granted.verbs, verb));
    if !rule.non_resource_urls.is_empty() {
        return verbs && all(&rule.non_resource_urls, &|path| has_path(granted, path));
    }
    verbs
        && all(&rule.api_groups, &|group| has(&granted.api_groups, group))
        && all(&rule.resources, &|resource| has_resource(granted, resource))
        && all(&rule.resource_names, &|name| has_name(granted, name))
}

fn allows(granted: &PolicyRule, request: &AccessRequest<'_>) -> bool {
    if !has(&granted.verbs, request.verb) {
        return false;
    }
    if !request.path.is_empty() {
        return has_path(granted, request.path);
    }
    has(&granted.api_groups, request.group)
        && has_resource(granted, request.resource)
        && has_name(granted, request.name)
}

fn has(granted: &[String], value: &str) -> bool {
    granted.iter().any(|granted| granted == "*" || granted == value)
}

/// Resources are granted by name, all at once, or by subresource: `*/scale`.
fn has_resource(granted: &PolicyRule, resource: &str) -> bool {
    let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
    has(&granted.resources, resource)
        || granted
            .resources
            .iter()
            .any(|granted| subresource.is_some() && granted.strip_prefix("*/") == subresource)
}

fn has_name(granted: &PolicyRule, name: &str) -> bool {
    granted.resource_names.is_empty() || granted.resource_names.iter().any(|granted| granted == name)
}

fn has_path(granted: &PolicyRule, path: &str) -> bool {
    granted.non_resource_urls.iter().any(|granted| {
        granted == path
            || granted
                .strip_suffix('*')
                .is_some_and(|prefix| path.starts_with(prefix))
    })
}

/// Whether a subject of a binding is the service account: by its kind, in its namespace or the binding's, or by its
/// user name.
fn is_account(subject: &Value, binding_namespace: &str, namespace: &str, name: &str) -> bool {
    let named = text(subject, "/name");
    match text(subject, "/kind") {
        "ServiceAccount" => {
            let own = text(subject, "/namespace");
            let own = if own.is_empty() { binding_namespace } else { own };
            own == namespace && named == name
        }
        "User" => named == format!("system:serviceaccount:{namespace}:{name}"),
        _ => false,
    }
}

fn bound_role<'a>(binding: &Value, cluster: &'a Cluster) -> Option<&'a Value> {
    let name = text(binding, "/roleRef/name");
    match text(binding, "/roleRef/kind") {
        "ClusterRole" => cluster.get("ClusterRole", "", name),
        "Role" => cluster.get("Role", text(binding, "/metadata/namespace"), name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(rule: &Value) -> PolicyRule {
        PolicyRule::deserialize(rule).unwrap()
    }

    fn grants(rules: &[Value]) -> Grants {
        Grants(rules.iter().map(rule).collect())
    }

    #[test]
    fn roles_grant_together_what_none_grants_alone() {
        let grants = grants(&[
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "secrets"]}),
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["*"]}),
        ]);
        let wanted = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        assert!(grants.satisfy(&rule(&wanted)));
        let wanted = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]});
        assert!(!grants.satisfy(&rule(&wanted)));
    }

    #[test]
    fn stars_grant_and_are_wanted_literally() {
        let all_verbs = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let some = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["a"], "resources": ["bs"]});
        assert!(grants(std::slice::from_ref(&all_verbs)).satisfy(&rule(&some)));
        assert!(!grants(&[some]).satisfy(&rule(&all_verbs)));
    }

    #[test]
    fn subresources_are_resources_of_their_own() {
        let wanted = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}));
        for (resource, expected) in [
            ("pods/log", true),
            ("*/log", true),
            ("*", true),
            ("pods", false),
            ("pods/*", false),
        ] {
            let granted = json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]});
            assert_eq!(grants(&[granted]).satisfy(&wanted), expected, "{resource}");
        }
    }

    #[test]
    fn paths_end_in_a_star() {
        let wanted = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/a/b"]}));
        for (path, expected) in [
            ("/a/b", true),
            ("/a/*", true),
            ("*", true),
            ("/a", false),
            ("/b*", false),
        ] {
            let granted = json!({"verbs": ["get"], "nonResourceURLs": [path]});
            assert_eq!(grants(&[granted]).satisfy(&wanted), expected, "{path}");
        }
    }

    #[test]
    fn a_rule_of_too_many_requests_must_be_covered_by_one_role() {
        let many: Vec<String> = (0..400).map(|count| format!("x{count}")).collect();
        let wanted = json!({"verbs": many, "apiGroups": many, "resources": many});
        assert!(!grants(&[]).satisfy(&rule(&wanted)));
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        assert!(grants(&[all]).satisfy(&rule(&wanted)));
    }

    #[test]
    fn bindings_count_in_their_namespace_only() {
        let role = json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]});
        let binding = |namespace: &str, subject: Value| {
            json!({
                "kind": "RoleBinding",
                "metadata": {"name": "b", "namespace": namespace},
                "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [subject],
            })
        };
        let account = json!({"kind": "ServiceAccount", "name": "sa"});
        let user = json!({"kind": "User", "name": "system:serviceaccount:n:sa"});
        let group = json!({"kind": "Group", "name": "system:serviceaccounts"});
        for (binding, scope, expected) in [
            (binding("n", account.clone()), "n", 1),
            (binding("n", account.clone()), "", 0),
            (binding("m", account), "n", 0),
            (binding("n", user), "n", 1),
            (binding("n", group), "n", 0),
        ] {
            let cluster: Cluster = [role.clone(), binding].into_iter().collect();
            assert_eq!(Grants::of("n", "sa", scope, &cluster).0.len(), expected);
        }
    }
}
