//! RBAC rules and the accesses that they allow.

use serde::{Deserialize, Serialize};

/// Matches every verb, group, resource or path.
pub const ALL: &str = "*";

/// One RBAC rule, as in roles and in the answer to a SelfSubjectRulesReview.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// API groups; the core group is the empty text.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub api_groups: Vec<String>,
    /// Resources, with subresources as `pods/log`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub resources: Vec<String>,
    /// Names that the rule is limited to; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub resource_names: Vec<String>,
    /// Paths that are not resources.
    #[serde(
        rename = "nonResourceURLs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "or_default"
    )]
    pub non_resource_urls: Vec<String>,
    /// Verbs.
    #[serde(deserialize_with = "or_default")]
    pub verbs: Vec<String>,
}

fn or_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl PolicyRule {
    /// Everything on every resource.
    #[must_use]
    pub fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self {
                api_groups: all(),
                resources: all(),
                verbs: all(),
                ..Self::default()
            },
            Self {
                non_resource_urls: all(),
                verbs: all(),
                ..Self::default()
            },
        ]
    }

    /// Whether the rule allows one access.
    #[must_use]
    pub fn allows(&self, access: &Access) -> bool {
        if !holds(&self.verbs, &access.verb) {
            return false;
        }
        match &access.object {
            Object::Path(path) => self
                .non_resource_urls
                .iter()
                .any(|pattern| path_matches(pattern, path)),
            Object::Resource {
                group,
                resource,
                name,
            } => {
                holds(&self.api_groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|pattern| resource_matches(pattern, resource))
                    && (self.resource_names.is_empty()
                        || name
                            .as_ref()
                            .is_some_and(|name| self.resource_names.contains(name)))
            }
        }
    }

    /// The number of [`PolicyRule::accesses`].
    #[must_use]
    pub fn access_count(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let resources = self
            .api_groups
            .len()
            .saturating_mul(self.resources.len())
            .saturating_mul(names);
        self.verbs
            .len()
            .saturating_mul(resources.saturating_add(self.non_resource_urls.len()))
    }

    /// The single accesses of the rule. A wildcard is an access of its own.
    pub fn accesses(&self) -> impl Iterator<Item = Access> + '_ {
        let names: Vec<Option<String>> = if self.resource_names.is_empty() {
            vec![None]
        } else {
            self.resource_names.iter().cloned().map(Some).collect()
        };
        self.verbs.iter().flat_map(move |verb| {
            let paths = self.non_resource_urls.iter().map(|path| Access {
                verb: verb.clone(),
                object: Object::Path(path.clone()),
            });
            let names = names.clone();
            let resources = self.api_groups.iter().flat_map(move |group| {
                let names = names.clone();
                self.resources.iter().flat_map(move |resource| {
                    names.clone().into_iter().map(move |name| Access {
                        verb: verb.clone(),
                        object: Object::Resource {
                            group: group.clone(),
                            resource: resource.clone(),
                            name,
                        },
                    })
                })
            });
            paths.chain(resources)
        })
    }
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == ALL || entry == wanted)
}

/// `*` matches everything, `*/log` the subresource `log` of everything.
fn resource_matches(pattern: &str, resource: &str) -> bool {
    if pattern == ALL || pattern == resource {
        return true;
    }
    let subresource = |text: &str| {
        text.split_once('/')
            .map(|(_, subresource)| subresource.to_owned())
    };
    pattern.starts_with("*/") && subresource(pattern) == subresource(resource)
}

/// A path that ends in `*` matches all paths with that prefix.
fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path
        || pattern
            .strip_suffix('*')
            .is_some_and(|prefix| path.starts_with(prefix))
}

/// One verb on one resource or path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The verb; `*` if a rule grants all of them.
    pub verb: String,
    /// The resource or path.
    pub object: Object,
}

impl Access {
    /// Whether an account with this access has the other one, too. `*` covers every verb, group and resource; an access
    /// without a name covers every name.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is = |pattern: &str, value: &str| pattern == ALL || pattern == value;
        if !is(&self.verb, &other.verb) {
            return false;
        }
        match (&self.object, &other.object) {
            (Object::Path(pattern), Object::Path(path)) => path_matches(pattern, path),
            (
                Object::Resource {
                    group,
                    resource,
                    name,
                },
                Object::Resource {
                    group: other_group,
                    resource: other_resource,
                    name: other_name,
                },
            ) => {
                is(group, other_group)
                    && resource_matches(resource, other_resource)
                    && (name.is_none() || name == other_name)
            }
            (Object::Resource { .. }, Object::Path(_)) | (Object::Path(_), Object::Resource { .. }) => false,
        }
    }
}

/// The object of an access.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A resource.
    Resource {
        /// The API group.
        group: String,
        /// The resource, with its subresource as `pods/log`.
        resource: String,
        /// The name of one object; `None` for all.
        name: Option<String>,
    },
    /// A path that is not a resource.
    Path(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> PolicyRule {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        PolicyRule {
            api_groups: owned(groups),
            resources: owned(resources),
            resource_names: owned(names),
            verbs: owned(verbs),
            ..PolicyRule::default()
        }
    }

    fn access(verb: &str, group: &str, resource: &str, name: Option<&str>) -> Access {
        let object = Object::Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.map(str::to_owned),
        };
        Access {
            verb: verb.to_owned(),
            object,
        }
    }

    #[test]
    fn a_rule_allows_exactly_its_verbs_and_resources() {
        let check = |rule: &PolicyRule, access: &Access, expected: bool| {
            assert_eq!(rule.allows(access), expected, "{rule:?} {access:?}");
        };
        let pods = rule(&[""], &["pods"], &[], &["get", "list"]);
        check(&pods, &access("get", "", "pods", None), true);
        check(&pods, &access("get", "", "pods", Some("a")), true);
        check(&pods, &access("get", "", "pods/log", None), false);
        check(&pods, &access("get", "apps", "pods", None), false);
        check(&pods, &access("delete", "", "pods", None), false);
        check(&pods, &access("*", "", "pods", None), false);
        let named = rule(&[""], &["pods"], &["a"], &["get"]);
        check(&named, &access("get", "", "pods", Some("a")), true);
        check(&named, &access("get", "", "pods", Some("b")), false);
        check(&named, &access("get", "", "pods", None), false);
        let all = rule(&["*"], &["*"], &[], &["*"]);
        check(&all, &access("*", "*", "*", None), true);
        check(
            &all,
            &access("escalate", "rbac.authorization.k8s.io", "roles", Some("x")),
            true,
        );
        let logs = rule(&[""], &["*/log"], &[], &["get"]);
        check(&logs, &access("get", "", "pods/log", None), true);
        check(&logs, &access("get", "", "pods/exec", None), false);
        check(&logs, &access("get", "", "pods", None), false);
    }

    #[test]
    fn paths_match_by_prefix_where_the_rule_ends_in_a_star() {
        let paths = |path: &str| PolicyRule {
            non_resource_urls: vec![path.to_owned()],
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        let get = |path: &str| Access {
            verb: "get".to_owned(),
            object: Object::Path(path.to_owned()),
        };
        assert!(paths("/metrics").allows(&get("/metrics")));
        assert!(paths("/healthz/*").allows(&get("/healthz/etcd")));
        assert!(!paths("/healthz").allows(&get("/healthz/etcd")));
        assert!(!paths("/healthz").allows(&get("/healthz/*")));
    }

    #[test]
    fn a_rule_covers_every_access_it_is_made_of() {
        let wide = rule(
            &["", "apps"],
            &["pods", "deployments/scale"],
            &["a", "b"],
            &["get", "*"],
        );
        assert_eq!(wide.accesses().count(), 16);
        assert_eq!(wide.access_count(), 16);
        for access in wide.accesses() {
            assert!(wide.allows(&access), "{access:?}");
        }
    }
}
