//! The rights that a bundle grants to its operator and to others, and how a change widens or narrows them.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::object::text;
use olm_preflight::permissions::{Missing, Right, granted_rules};
use olm_preflight::rules::{Access, PolicyRule};
use serde::Serialize;
use serde_json::Value;

/// The maximum number of accesses that are compared one by one. Beyond it, a new rule counts as a whole.
const MAX_ACCESSES: usize = 50_000;
/// The most comparisons of an access with a rule.
const MAX_CHECKS: usize = 2_000_000;
/// The prefix of the label with which Kubernetes aggregates a ClusterRole into another.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The rules of a subject in a namespace or in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// The subject: `ServiceAccount NAMESPACE/NAME`, `Group NAME`, `User NAME`, or `everyone with ClusterRole NAME`.
    pub subject: String,
    /// The namespace; none for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRule>,
    /// Roles that the bundle binds and does not contain, `ClusterRole NAME`. Their rules are unknown here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// Rights that a change adds and removes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RightsChange {
    /// Rights that only the new revision grants.
    pub gained: Vec<Grant>,
    /// Rights that only the old revision grants.
    pub lost: Vec<Grant>,
}

/// Compares the rights that the roles and bindings of two revisions grant.
pub fn rights_change(before: &[&Value], after: &[&Value]) -> RightsChange {
    let (before, after) = (RightsBySubject::of(before), RightsBySubject::of(after));
    RightsChange {
        gained: after.not_covered_by(&before),
        lost: before.not_covered_by(&after),
    }
}

/// Compares the rights that an account needs to apply the objects of two revisions.
pub fn needed(account: &str, before: &Missing, after: &Missing) -> RightsChange {
    let (before, after) = (
        RightsBySubject::needed(account, before),
        RightsBySubject::needed(account, after),
    );
    RightsChange {
        gained: after.not_covered_by(&before),
        lost: before.not_covered_by(&after),
    }
}

/// The rights that an account lacks, as grants.
pub fn lacking(account: &str, missing: &Missing) -> Vec<Grant> {
    RightsBySubject::needed(account, missing).not_covered_by(&RightsBySubject::default())
}

/// A subject, and the namespace in which it has rights; `None` for the whole cluster.
type SubjectScope = (String, Option<String>);

#[derive(Debug, Default)]
struct HeldRights {
    rules: Vec<PolicyRule>,
    roles: BTreeSet<String>,
}

/// The rights of all subjects.
#[derive(Debug, Default)]
struct RightsBySubject(BTreeMap<SubjectScope, HeldRights>);

impl RightsBySubject {
    fn of(objects: &[&Value]) -> Self {
        let roles: BTreeMap<(&str, &str, &str), &Value> = objects
            .iter()
            .filter(|object| matches!(text(object, "/kind"), "Role" | "ClusterRole"))
            .map(|role| {
                let kind = text(role, "/kind");
                let namespace = if kind == "Role" {
                    text(role, "/metadata/namespace")
                } else {
                    ""
                };
                ((kind, namespace, text(role, "/metadata/name")), *role)
            })
            .collect();
        let mut found = Self::default();
        for object in objects {
            let namespace = match text(object, "/kind") {
                "RoleBinding" => Some(text(object, "/metadata/namespace").to_owned()),
                "ClusterRoleBinding" => None,
                "ClusterRole" => {
                    found.aggregated(object);
                    continue;
                }
                _ => continue,
            };
            let (kind, name) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
            let within = if kind == "Role" {
                namespace.as_deref().unwrap_or_default()
            } else {
                ""
            };
            let role = roles.get(&(kind, within, name));
            let subjects = object.get("subjects").and_then(Value::as_array);
            for subject in subjects.into_iter().flatten() {
                let holder = (subject_name(subject, namespace.as_deref()), namespace.clone());
                let held = found.0.entry(holder).or_default();
                match role {
                    Some(role) => held.rules.extend(granted_rules(role)),
                    None => drop(held.roles.insert(format!("{kind} {name}"))),
                }
            }
        }
        found
    }

    /// Adds the rules of a role that aggregates into roles of the cluster.
    fn aggregated(&mut self, role: &Value) {
        let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            if let Some(target) = key.strip_prefix(AGGREGATE)
                && value.as_str() == Some("true")
            {
                let holder = (format!("everyone with ClusterRole {target}"), None);
                self.0
                    .entry(holder)
                    .or_default()
                    .rules
                    .extend(granted_rules(role));
            }
        }
    }

    fn needed(account: &str, missing: &Missing) -> Self {
        let holder =
            |namespace: Option<&str>| (format!("ServiceAccount {account}"), namespace.map(str::to_owned));
        let held = |rules| HeldRights {
            rules,
            roles: BTreeSet::new(),
        };
        Self(
            missing
                .rules()
                .map(|(namespace, rules)| (holder(namespace), held(rules)))
                .collect(),
        )
    }

    /// The rights of all subjects that they do not have in `other`.
    fn not_covered_by(&self, other: &Self) -> Vec<Grant> {
        let mut budget = Budget {
            accesses: MAX_ACCESSES,
            checks: MAX_CHECKS,
        };
        let mut grants = Vec::new();
        for ((subject, namespace), held) in &self.0 {
            // A right in the whole cluster includes the namespace.
            let places = [namespace.clone(), None];
            let known: Vec<&HeldRights> = places
                .iter()
                .filter_map(|place| other.0.get(&(subject.clone(), place.clone())))
                .collect();
            let is_bound = |role: &&String| known.iter().any(|held| held.roles.contains(*role));
            let roles = held
                .roles
                .iter()
                .filter(|role| !is_bound(role))
                .cloned()
                .collect();
            let known: Vec<&PolicyRule> = known.iter().flat_map(|held| &held.rules).collect();
            let new = uncovered_rules(&held.rules, &known, namespace.as_deref(), &mut budget);
            let grant = Grant {
                subject: subject.clone(),
                namespace: namespace.clone(),
                rules: new,
                roles,
            };
            if !grant.rules.is_empty() || !grant.roles.is_empty() {
                grants.push(grant);
            }
        }
        grants
    }
}

/// The comparisons that are left.
struct Budget {
    accesses: usize,
    checks: usize,
}

impl Budget {
    /// The budget that remains after a comparison of accesses with rules.
    fn less(&self, accesses: usize, rules: usize) -> Option<Self> {
        Some(Self {
            accesses: self.accesses.checked_sub(accesses)?,
            checks: self.checks.checked_sub(accesses.saturating_mul(rules))?,
        })
    }
}

/// The rules that `known` does not cover, compacted.
fn uncovered_rules(
    rules: &[PolicyRule],
    known: &[&PolicyRule],
    namespace: Option<&str>,
    budget: &mut Budget,
) -> Vec<PolicyRule> {
    let (mut rights, mut whole) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.iter().filter(|rule| !known.contains(rule)) {
        match budget.less(rule.access_count(), known.len()) {
            Some(left) => {
                *budget = left;
                let is_new = |access: &Access| !known.iter().any(|rule| rule.allows(access));
                rights.extend(rule.accesses().filter(is_new).map(|access| Right {
                    namespace: namespace.map(str::to_owned),
                    access,
                }));
            }
            None => drop(whole.insert(rule.clone())),
        }
    }
    let few = Missing::default().with_granted(rights);
    let few: Vec<PolicyRule> = few.rules().flat_map(|(_, rules)| rules).collect();
    few.into_iter().chain(whole).collect()
}

fn subject_name(subject: &Value, namespace: Option<&str>) -> String {
    let (kind, name) = (text(subject, "/kind"), text(subject, "/name"));
    if kind != "ServiceAccount" {
        return format!("{kind} {name}");
    }
    match text(subject, "/namespace") {
        "" => format!("{kind} {}/{name}", namespace.unwrap_or_default()),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(kind: &str, name: &str, rules: &Value) -> Value {
        json!({"kind": kind, "metadata": {"name": name, "namespace": "n"}, "rules": rules})
    }

    fn binding(kind: &str, role_kind: &str, role: &str) -> Value {
        json!({
            "kind": kind, "metadata": {"name": role, "namespace": "n"},
            "roleRef": {"kind": role_kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "op", "namespace": "n"}],
        })
    }

    fn rule(resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
    }

    #[track_caller]
    fn check(before: &[Value], after: &[Value], gained: &Value, lost: &Value) {
        let (before, after): (Vec<&Value>, Vec<&Value>) = (before.iter().collect(), after.iter().collect());
        let found = rights_change(&before, &after);
        assert_eq!(json!(found.gained), *gained);
        assert_eq!(json!(found.lost), *lost);
    }

    #[test]
    fn only_rights_that_no_rule_covered_before_are_gained() {
        let old = [
            role("Role", "a", &json!([rule(&["pods"], &["get", "list"])])),
            binding("RoleBinding", "Role", "a"),
        ];
        // The same rules under another name, and split.
        let new = [
            role(
                "Role",
                "b",
                &json!([rule(&["pods"], &["get"]), rule(&["pods", "secrets"], &["list"])]),
            ),
            binding("RoleBinding", "Role", "b"),
        ];
        let grant =
            |rule: Value| json!([{"subject": "ServiceAccount n/op", "namespace": "n", "rules": [rule]}]);
        check(&old, &new, &grant(rule(&["secrets"], &["list"])), &json!([]));
        check(&new, &old, &json!([]), &grant(rule(&["secrets"], &["list"])));
    }

    #[test]
    fn a_right_in_all_of_the_cluster_covers_the_one_in_a_namespace() {
        let rules = json!([rule(&["pods"], &["get"])]);
        let narrow = [role("Role", "a", &rules), binding("RoleBinding", "Role", "a")];
        let wide = [
            role("ClusterRole", "a", &rules),
            binding("ClusterRoleBinding", "ClusterRole", "a"),
        ];
        let everywhere = json!([{"subject": "ServiceAccount n/op", "rules": [rule(&["pods"], &["get"])]}]);
        check(&narrow, &wide, &everywhere, &json!([]));
        check(&wide, &narrow, &json!([]), &everywhere);
    }

    #[test]
    fn roles_of_others_and_their_additions_count() {
        let mut aggregated = role("ClusterRole", "x", &json!([rule(&["greetings"], &["*"])]));
        aggregated["metadata"]["labels"] =
            json!({format!("{AGGREGATE}edit"): "true", format!("{AGGREGATE}view"): "false"});
        let admin = binding("ClusterRoleBinding", "ClusterRole", "cluster-admin");
        check(
            &[],
            &[aggregated, admin.clone()],
            &json!([
                {"subject": "ServiceAccount n/op", "roles": ["ClusterRole cluster-admin"]},
                {"subject": "everyone with ClusterRole edit", "rules": [rule(&["greetings"], &["*"])]},
            ]),
            &json!([]),
        );
        check(
            std::slice::from_ref(&admin),
            std::slice::from_ref(&admin),
            &json!([]),
            &json!([]),
        );
    }

    #[test]
    fn rules_that_are_too_many_to_compare_count_as_a_whole() {
        let names: Vec<String> = (0..60_000).map(|number| format!("n{number}")).collect();
        let wide =
            json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"]}]);
        let new = [role("Role", "a", &wide), binding("RoleBinding", "Role", "a")];
        let new: Vec<&Value> = new.iter().collect();
        let found = rights_change(&[], &new);
        assert_eq!(json!(found.gained[0].rules), wide);
        assert_eq!(rights_change(&new, &new), RightsChange::default());
    }
}
