//! The rights an account needs, and those that are missing.
//!
//! 1. [`needed`] computes the [`Needs`] from the objects to be applied and from what discovery says of their kinds.
//! 2. [`AccountRights`] is what the account may do: the rules of SelfSubjectRulesReviews and single answers.
//! 3. [`Needs::open_questions`] are the accesses that the rules leave open, to be asked one by one with
//!    SelfSubjectAccessReviews.
//! 4. [`Needs::missing`] is every missing right at once: as text and as a role to apply.
//!
//! An account that writes a role must hold its rules or the verb `escalate`; one that writes a binding, the rules of the role
//! bound or the verb `bind`. Either will do.

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
/// Accesses of roles that are compared one by one. Where there are more, only `escalate` or `bind` will do.
const MAX_ACCESSES: usize = 50_000;
/// Accesses of one role that are asked one by one where rules leave them open. Where there are more, the answer about
/// `escalate` or `bind` has to do.
const MAX_QUESTIONS: usize = 200;
/// The API group of custom resource definitions.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// They do.
    Namespaced,
    /// They do not.
    Cluster,
}

/// What discovery says of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The resource's name, `configmaps`.
    pub plural: String,
    /// Whether its objects live in a namespace.
    pub scope: Scope,
}

/// What discovery says: (API group, kind) to resource.
pub type Discovery = BTreeMap<(String, String), Resource>;

/// An object that will be applied.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// The object.
    pub object: &'a Value,
    /// Whether the cluster has it already.
    pub presence: Presence,
}

/// Whether the cluster has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It has.
    Exists,
    /// It has not, or that is unknown.
    Absent,
}

/// Environment about the cluster on which the needs depend.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// What discovery says of kinds.
    pub discovery: &'a Discovery,
    /// Kinds, by API group, that the account itself watches; those that are watched for it are not among them.
    pub watched: &'a BTreeSet<(String, String)>,
    /// Roles that are on the cluster and that bindings refer to, as far as they could be read.
    pub roles: &'a [Value],
    /// The namespace of namespaced objects that name none.
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

/// A right, or all of several others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Either {
    right: Right,
    /// `None` when the others are not known.
    instead: Option<BTreeSet<Right>>,
}

/// Everything an account needs to apply, watch and remove some objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    rights: BTreeSet<Right>,
    alternatives: Vec<Either>,
    unknown_kinds: BTreeSet<(String, String)>,
}

/// Computes what is needed.
///
/// Custom resource definitions among the objects count as discovered: their kinds will be there.
#[must_use]
pub fn needed(planned: &[Planned<'_>], facts: &Environment<'_>) -> Needs {
    let brought = brought_kinds(planned);
    let roles = Roles::new(planned, facts);
    let mut needs = Needs::default();
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

/// What writing a role or a binding needs beyond the right to write it.
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
    /// Those on the cluster, over them those that are about to be applied.
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

/// The rules of a role. One that gathers those of others may come to hold anything.
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

impl Needs {
    /// Kinds, by API group, that discovery does not know and no object defines. What they need cannot be said.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unknown_kinds
            .iter()
            .map(|(group, kind)| (group.as_str(), kind.as_str()))
    }

    /// The namespaces for which rules should be asked, `None` being those that hold in all of the cluster.
    #[must_use]
    pub fn scopes(&self) -> BTreeSet<Option<&str>> {
        let alternatives = self.alternatives.iter().map(|either| &either.right);
        self.rights
            .iter()
            .chain(alternatives)
            .map(|right| right.namespace.as_deref())
            .collect()
    }

    /// The accesses that must be asked one by one because the rules leave them open, sorted.
    ///
    /// Where the account is known to have one of two alternatives, the other is not asked.
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
    /// Of two alternatives the rules themselves are proposed: an account that writes roles and has the verb `escalate` on it can
    /// get any right. Where they are too many, everything, or nothing that a role of their namespace can hold, that verb is.
    /// An operator that may do everything with roles needs it, too; then the other rules of its roles follow from it. Where the
    /// rules are proposed anyway, because a binding gives them too for example, nothing needs that verb.
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
    /// Whether an account that has it has the other one, too.
    fn covers(&self, other: &Self) -> bool {
        (self.namespace.is_none() || self.namespace == other.namespace) && self.access.covers(&other.access)
    }
}
