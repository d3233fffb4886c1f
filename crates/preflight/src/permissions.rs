//! The rights that an account needs, and the missing ones.
//!
//! 1. [`needed`] computes the [`RequiredRights`] from the objects to apply and from the discovery of their kinds.
//! 2. [`AccountRights`] are the rights of the account: the rules of SelfSubjectRulesReviews and single answers.
//! 3. [`RequiredRights::open_questions`] are the accesses that the rules leave open. SelfSubjectAccessReviews answer
//!    them one by one.
//! 4. [`RequiredRights::missing`] are all missing rights at once: as text and as a role to apply.
//!
//! An account that writes a role must hold the rules of the role or the verb `escalate`. An account that writes a
//! binding must hold the rules of the bound role or the verb `bind`.

mod account;
mod alternatives;
mod missing;
mod proposal;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::Value;

use crate::rules::{Access, Object, PolicyRule};

pub use account::{AccountRights, Completeness, RightStatus};
pub use missing::{Account, Missing, describe};
pub use proposal::roles;

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// The most accesses of roles that are compared one by one. Beyond that, only `escalate` or `bind` counts.
const MAX_ACCESSES: usize = 50_000;
/// The most accesses of one role that are reviewed one by one if rules leave them open. Beyond that, the review of
/// `escalate` or `bind` decides.
const MAX_QUESTIONS: usize = 200;
/// The API group of custom resource definitions.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Objects have a namespace.
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// A resource as discovery reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The resource's name, `configmaps`.
    pub plural: String,
    /// Whether its objects live in a namespace.
    pub scope: Scope,
}

/// The resources that discovery reports, by API group and kind.
pub type Discovery = BTreeMap<(String, String), Resource>;

/// An object that will be applied.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// The object.
    pub object: &'a Value,
    /// Whether the object exists on the cluster.
    pub presence: Presence,
}

/// Whether the cluster has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The object exists.
    Exists,
    /// The object does not exist, or that is unknown.
    Absent,
}

/// The state of the cluster on which the needs depend.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The resources of the cluster.
    pub discovery: &'a Discovery,
    /// Kinds, by API group, that the account itself watches. Kinds that the controller watches for it are left out.
    pub watched: &'a BTreeSet<(String, String)>,
    /// Roles on the cluster to which bindings refer, as far as they could be read.
    pub roles: &'a [Value],
    /// The namespace of namespaced objects without one.
    pub namespace: &'a str,
}

/// One access, in a namespace or in all of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The namespace; `None` for cluster-scoped objects and for all namespaces at once.
    pub namespace: Option<String>,
    /// The access.
    pub access: Access,
}

/// A right, or several others instead of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Either {
    right: Right,
    /// `None` when they are unknown.
    instead: Option<BTreeSet<Right>>,
}

/// The rights that an account needs to apply, watch and remove some objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredRights {
    rights: BTreeSet<Right>,
    alternatives: Vec<Either>,
    unknown_kinds: BTreeSet<(String, String)>,
}

/// Computes the rights that an account needs.
///
/// The kinds of custom resource definitions among the objects count as served.
#[must_use]
pub fn needed(planned: &[Planned<'_>], facts: &Environment<'_>) -> RequiredRights {
    let brought = brought_kinds(planned);
    let roles = Roles::new(planned, facts);
    let mut needs = RequiredRights::default();
    let mut budget = MAX_ACCESSES;
    for plan in planned {
        let (group, kind) = group_kind(plan.object);
        let resource = facts.discovery.get(&(group.clone(), kind.clone()));
        let Some(resource) = resource.or_else(|| brought.get(&(group.clone(), kind.clone()))) else {
            needs.unknown_kinds.insert((group, kind));
            continue;
        };
        let namespace = match resource.scope {
            Scope::Namespaced => Some(
                text(plan.object, "/metadata/namespace")
                    .unwrap_or(facts.namespace)
                    .to_owned(),
            ),
            Scope::Cluster => None,
        };
        let right = |verb: &str, name: Option<&str>| Right {
            namespace: namespace.clone(),
            access: Access {
                verb: verb.to_owned(),
                object: Object::Resource {
                    group: group.clone(),
                    resource: resource.plural.clone(),
                    name: name.map(str::to_owned),
                },
            },
        };
        let name = text(plan.object, "/metadata/name");
        needs
            .rights
            .extend(["get", "patch", "delete"].map(|verb| right(verb, name)));
        if plan.presence == Presence::Absent {
            needs.rights.insert(right("create", name));
        }
        if facts.watched.contains(&(group.clone(), kind.clone())) {
            needs
                .rights
                .extend(["list", "watch"].map(|verb| right(verb, None)));
        }
        if group == RBAC {
            needs.alternatives.extend(grant(
                plan.object,
                &kind,
                namespace.as_deref(),
                &roles,
                &right,
                &mut budget,
            ));
        }
    }
    needs
}

/// The right to grant the rules of a role or binding, beyond the right to write the object.
fn grant(
    object: &Value,
    kind: &str,
    namespace: Option<&str>,
    roles: &Roles,
    right: &impl Fn(&str, Option<&str>) -> Right,
    budget: &mut usize,
) -> Option<Either> {
    let mut instead = |rules: &[PolicyRule]| {
        let count = rules
            .iter()
            .fold(0, |sum: usize, rule| sum.saturating_add(rule.access_count()));
        *budget = budget.checked_sub(count)?;
        let accesses = rules.iter().flat_map(PolicyRule::accesses);
        Some(
            accesses
                .map(|access| Right {
                    namespace: namespace.map(str::to_owned),
                    access,
                })
                .collect(),
        )
    };
    match kind {
        "Role" | "ClusterRole" => Some(Either {
            right: right("escalate", text(object, "/metadata/name")),
            instead: instead(&granted_rules(object)),
        }),
        "RoleBinding" | "ClusterRoleBinding" => {
            let (role_kind, role) = (text(object, "/roleRef/kind")?, text(object, "/roleRef/name")?);
            let resource = if role_kind == "Role" {
                "roles"
            } else {
                "clusterroles"
            };
            let bind = Access {
                verb: "bind".to_owned(),
                object: Object::Resource {
                    group: RBAC.to_owned(),
                    resource: resource.to_owned(),
                    name: Some(role.to_owned()),
                },
            };
            let bound = roles.find(role_kind, namespace, role);
            Some(Either {
                right: Right {
                    namespace: namespace.map(str::to_owned),
                    access: bind,
                },
                instead: bound.and_then(instead),
            })
        }
        _ => None,
    }
}

/// The rules of roles, by kind, namespace and name.
struct Roles(BTreeMap<(String, Option<String>, String), Vec<PolicyRule>>);

impl Roles {
    /// The roles on the cluster, replaced by those that are going to be applied.
    fn new(planned: &[Planned<'_>], facts: &Environment<'_>) -> Self {
        let all = facts.roles.iter().chain(planned.iter().map(|plan| plan.object));
        let roles = all.filter_map(|object| {
            let kind = text(object, "/kind")?;
            let namespace = match kind {
                "Role" => Some(
                    text(object, "/metadata/namespace")
                        .unwrap_or(facts.namespace)
                        .to_owned(),
                ),
                "ClusterRole" => None,
                _ => return None,
            };
            Some((
                (
                    kind.to_owned(),
                    namespace,
                    text(object, "/metadata/name")?.to_owned(),
                ),
                granted_rules(object),
            ))
        });
        Self(roles.collect())
    }

    fn find(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<&[PolicyRule]> {
        let namespace = if kind == "Role" {
            namespace.map(str::to_owned)
        } else {
            None
        };
        self.0
            .get(&(kind.to_owned(), namespace, name.to_owned()))
            .map(Vec::as_slice)
    }
}

/// The rules of a role. A role with an aggregation rule may get any rule.
pub fn granted_rules(role: &Value) -> Vec<PolicyRule> {
    if role.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
        return PolicyRule::everything().to_vec();
    }
    let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
    rules
        .filter_map(|rule| PolicyRule::deserialize(rule).ok())
        .collect()
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

pub(crate) fn group_kind(object: &Value) -> (String, String) {
    let version = text(object, "/apiVersion").unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    (
        group.to_owned(),
        text(object, "/kind").unwrap_or_default().to_owned(),
    )
}

/// The kinds that custom resource definitions among the objects define.
fn brought_kinds(planned: &[Planned<'_>]) -> Discovery {
    let is_definition = |plan: &&Planned<'_>| {
        group_kind(plan.object) == (EXTENSIONS.to_owned(), "CustomResourceDefinition".to_owned())
    };
    let kind = |plan: &Planned<'_>| {
        let field = |pointer: &str| text(plan.object, pointer).map(str::to_owned);
        let scope = match text(plan.object, "/spec/scope")? {
            "Cluster" => Scope::Cluster,
            _ => Scope::Namespaced,
        };
        let resource = Resource {
            plural: field("/spec/names/plural")?,
            scope,
        };
        Some(((field("/spec/group")?, field("/spec/names/kind")?), resource))
    };
    planned.iter().filter(is_definition).filter_map(kind).collect()
}

impl RequiredRights {
    /// Kinds, by API group, that neither discovery nor an object defines. Their needs are unknown.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unknown_kinds
            .iter()
            .map(|(group, kind)| (group.as_str(), kind.as_str()))
    }

    /// The namespaces of which rules are needed; `None` for the rules of the whole cluster.
    #[must_use]
    pub fn scopes(&self) -> BTreeSet<Option<&str>> {
        let alternatives = self.alternatives.iter().map(|either| &either.right);
        self.rights
            .iter()
            .chain(alternatives)
            .map(|right| right.namespace.as_deref())
            .collect()
    }

    /// The accesses that rules leave open, sorted. Each needs a SelfSubjectAccessReview.
    ///
    /// Where the account has one of two alternatives, the other one is not reviewed.
    #[must_use]
    pub fn open_questions(&self, account_rights: &AccountRights) -> Vec<Right> {
        let open = |right: &&Right| account_rights.status(right) == RightStatus::Unknown;
        let mut questions: BTreeSet<Right> = self.rights.iter().filter(open).cloned().collect();
        for either in &self.alternatives {
            let covered = either.instead.as_ref().is_some_and(|all| {
                all.iter()
                    .all(|right| account_rights.status(right) == RightStatus::Granted)
            });
            if covered || account_rights.status(&either.right) == RightStatus::Granted {
                continue;
            }
            questions.extend(std::iter::once(&either.right).filter(open).cloned());
            let instead = either.instead.iter().flatten().filter(open);
            if instead.clone().nth(MAX_QUESTIONS).is_none() {
                questions.extend(instead.cloned());
            }
        }
        questions.into_iter().collect()
    }

    /// The missing rights. A right of unknown status counts as missing.
    ///
    /// Of two alternatives, the rules are proposed rather than the verb: an account that writes roles and has
    /// `escalate` on them can get any right. The verb is proposed if the rules are too many, allow everything, or
    /// cannot be in a role of their namespace. If the operator itself has such a verb, the account needs it anyway, and
    /// then needs no other rule of the roles that it covers. If all these rules are proposed for another reason, for
    /// example for a binding, the verb is not needed.
    #[must_use]
    pub fn missing(&self, account_rights: &AccountRights) -> Missing {
        let lacks = |right: &&Right| account_rights.status(right) != RightStatus::Granted;
        let mut missing: BTreeSet<Right> = self.rights.iter().filter(lacks).cloned().collect();
        let open: Vec<&Either> = self
            .alternatives
            .iter()
            .filter(|either| lacks(&&either.right))
            .collect();
        let (granted, verbs) = alternatives::choose(&open, lacks);
        missing.extend(verbs);
        let granted = granted
            .into_iter()
            .filter(|right| !missing.contains(right))
            .collect();
        Missing::new(missing).with_granted(granted)
    }
}

impl Right {
    /// Whether an account with this right has the other one, too.
    fn covers(&self, other: &Self) -> bool {
        (self.namespace.is_none() || self.namespace == other.namespace) && self.access.covers(&other.access)
    }
}
