//! The missing rights of an account, as text and as roles to apply.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use olm_api::text::{escape, first_of};
use serde_json::{Map, Value, json};

use super::{RBAC, Right};
use crate::rules::{ALL, Access, Object, PolicyRule};

/// The longest text, in bytes. Further rules are only counted; the first one is truncated.
const MAX_TEXT: usize = 1024;
/// The verbs that are needed to delete or release objects.
const REMOVAL: [&str; 3] = ["get", "patch", "delete"];
/// The most names in the text of one rule. Further ones are only counted.
const MAX_NAMES: usize = 5;

/// The prefix of rules that the objects grant to others.
const GRANTED: &str = "what the roles among the objects give: ";

/// A service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// The missing rules by namespace, without duplicates; `None` for the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    rules: Scoped,
    /// Rules that the account must hold in order to grant them by a role.
    granted: Scoped,
}

/// Rules by namespace.
type Scoped = BTreeMap<Option<String>, Vec<PolicyRule>>;

impl Missing {
    /// The missing rights as rules.
    #[must_use]
    pub fn new(rights: BTreeSet<Right>) -> Self {
        Self {
            // A request that creates an object may come without a name.
            rules: scoped(rights, |verb| verb == "create"),
            granted: Scoped::new(),
        }
    }

    /// Adds rights that are missing only because roles or bindings among the objects grant them.
    #[must_use]
    pub fn with_granted(mut self, rights: BTreeSet<Right>) -> Self {
        self.granted = scoped(rights, |_| false);
        self
    }

    /// Adds further missing rights.
    #[must_use]
    pub fn with_rights(mut self, rights: BTreeSet<Right>) -> Self {
        for (namespace, rules) in scoped(rights, |_| false) {
            self.rules.entry(namespace).or_default().extend(rules);
        }
        self
    }

    /// The missing rules that are needed to find the objects and take them away.
    #[must_use]
    pub fn for_removal(mut self) -> Self {
        self.granted.clear();
        for rules in self.rules.values_mut() {
            for rule in rules.iter_mut() {
                rule.verbs.retain(|verb| REMOVAL.contains(&verb.as_str()));
            }
            rules.retain(|rule| !rule.verbs.is_empty());
        }
        self.rules.retain(|_, rules| !rules.is_empty());
        self
    }

    /// The missing rules without those that other rules cover, which is frequent for rules that a bundle grants to its
    /// operator. Every verb of every remaining rule is needed.
    #[must_use]
    pub fn without_covered(&self) -> Self {
        let rights: BTreeSet<Right> = self
            .rules()
            .flat_map(|(namespace, rules)| {
                let namespace = namespace.map(str::to_owned);
                rules.into_iter().flat_map(move |rule| {
                    let accesses: Vec<Access> = rule.accesses().collect();
                    let namespace = namespace.clone();
                    accesses.into_iter().map(move |access| Right {
                        namespace: namespace.clone(),
                        access,
                    })
                })
            })
            .collect();
        let wide: Vec<&Right> = rights.iter().filter(|right| right.is_wide()).collect();
        let covered = |right: &&Right| wide.iter().any(|other| other != right && other.covers(right));
        let kept: BTreeSet<Right> = rights.iter().filter(|right| !covered(right)).cloned().collect();
        Self {
            rules: scoped(kept, |_| false),
            granted: Scoped::new(),
        }
    }

    /// Whether nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.granted.is_empty()
    }

    /// The rules, by namespace.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&str>, Vec<PolicyRule>)> {
        let scopes: BTreeSet<&Option<String>> = self.rules.keys().chain(self.granted.keys()).collect();
        scopes.into_iter().map(|scope| {
            let lists = [self.rules.get(scope), self.granted.get(scope)];
            let rules = lists.into_iter().flatten().flatten().cloned().collect();
            (scope.as_deref(), rules)
        })
    }

    /// The rules in one line for a condition: the first ones, and the number of the others.
    #[must_use]
    pub fn text(&self, account: Account<'_>) -> String {
        let mut text = format!(
            "service account {}/{} lacks permissions: ",
            account.namespace, account.name
        );
        let mut lines = described(&self.rules);
        let granted = lines.len();
        lines.extend(described(&self.granted));
        if let Some(first) = lines.get_mut(granted) {
            first.insert_str(0, GRANTED);
        }
        for (index, line) in lines.iter().enumerate() {
            if index == 0 {
                text.push_str(line.get(..line.floor_char_boundary(MAX_TEXT)).unwrap_or_default());
                if line.len() > MAX_TEXT {
                    text.push('…');
                }
                if lines.len() > 1 {
                    text.push_str("; ");
                }
                continue;
            }
            if text.len() + line.len() > MAX_TEXT {
                let _ = write!(text, "and {} more", lines.len() - index);
                return text;
            }
            text.push_str(line);
            if index + 1 < lines.len() {
                text.push_str("; ");
            }
        }
        text
    }

    /// Roles with these rules and bindings to the account, all with this name and these labels.
    #[must_use]
    pub fn objects(&self, name: &str, labels: &[(&str, &str)], account: Account<'_>) -> Vec<Value> {
        let version = format!("{RBAC}/v1");
        let mut objects = Vec::new();
        for (namespace, rules) in self.rules() {
            let mut metadata = Map::from_iter([("name".to_owned(), name.into())]);
            if !labels.is_empty() {
                let labels = labels
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).into()));
                metadata.insert("labels".to_owned(), labels.collect::<Map<_, _>>().into());
            }
            let (role, binding) = match namespace {
                None => ("ClusterRole", "ClusterRoleBinding"),
                Some(namespace) => {
                    metadata.insert("namespace".to_owned(), namespace.into());
                    ("Role", "RoleBinding")
                }
            };
            objects.push(json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": rules}));
            objects.push(json!({
                "apiVersion": version,
                "kind": binding,
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
            }));
        }
        objects
    }

    /// [`Missing::objects`] as YAML.
    #[must_use]
    pub fn yaml(&self, name: &str, labels: &[(&str, &str)], account: Account<'_>) -> String {
        let documents: Vec<String> = self
            .objects(name, labels, account)
            .iter()
            .map(olm_yaml::to_yaml)
            .collect();
        documents.join("---\n")
    }
}

impl Right {
    /// Whether it may cover other rights.
    fn is_wide(&self) -> bool {
        match &self.access.object {
            Object::Resource { resource, name, .. } => {
                name.is_none()
                    || self.namespace.is_none()
                    || self.access.verb == ALL
                    || resource.contains(ALL)
            }
            Object::Path(path) => self.access.verb == ALL || path.ends_with(ALL),
        }
    }
}

type Verbs = BTreeSet<String>;

/// Rules with the same meaning, by namespace.
fn scoped(rights: BTreeSet<Right>, unnamed: impl Fn(&str) -> bool) -> Scoped {
    let mut by_scope: BTreeMap<Option<String>, BTreeSet<Right>> = BTreeMap::new();
    for right in rights {
        by_scope.entry(right.namespace.clone()).or_default().insert(right);
    }
    by_scope
        .into_iter()
        .map(|(scope, rights)| (scope, compact(rights, &unnamed)))
        .collect()
}

/// A short list of rules with the same meaning: groups verbs of one object, then names, then resources. Rules with an
/// `unnamed` verb have no names, because RBAC cannot limit such a verb to names.
fn compact(rights: BTreeSet<Right>, unnamed: &impl Fn(&str) -> bool) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(String, String, Option<String>), BTreeSet<String>> = BTreeMap::new();
    let mut paths: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for right in rights {
        let verb = right.access.verb;
        match right.access.object {
            Object::Path(path) => {
                paths.entry(path).or_default().insert(verb);
            }
            Object::Resource {
                group,
                resource,
                name,
            } => {
                let name = name.filter(|_| !unnamed(&verb));
                verbs.entry((group, resource, name)).or_default().insert(verb);
            }
        }
    }
    let mut names: BTreeMap<(String, String, Verbs, bool), BTreeSet<String>> = BTreeMap::new();
    for ((group, resource, name), verbs) in verbs {
        names
            .entry((group, resource, verbs, name.is_some()))
            .or_default()
            .extend(name);
    }
    let mut resources: BTreeMap<(String, Verbs, BTreeSet<String>), BTreeSet<String>> = BTreeMap::new();
    for ((group, resource, verbs, _), names) in names {
        resources
            .entry((group, verbs, names))
            .or_default()
            .insert(resource);
    }
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
    let mut rules: Vec<PolicyRule> = resources
        .into_iter()
        .map(|((group, verbs, names), resources)| PolicyRule {
            api_groups: vec![group],
            resources: list(resources),
            resource_names: list(names),
            verbs: list(verbs),
            ..PolicyRule::default()
        })
        .collect();
    rules.extend(paths.into_iter().map(|(path, verbs)| PolicyRule {
        non_resource_urls: vec![path],
        verbs: list(verbs),
        ..PolicyRule::default()
    }));
    rules
}

fn described(rules: &Scoped) -> Vec<String> {
    let lines = rules
        .iter()
        .flat_map(|(namespace, rules)| rules.iter().map(|rule| describe(rule, namespace.as_deref())));
    lines.collect()
}

/// A rule in one line: `get, patch configmaps "a", "b" in namespace greeter-system`.
#[must_use]
pub fn describe(rule: &PolicyRule, namespace: Option<&str>) -> String {
    // The verbs and resources of a bundle may contain any text.
    let shown = |text: &String| escape(text).into_owned();
    let verbs: Vec<String> = rule.verbs.iter().map(shown).collect();
    let mut text = verbs.join(", ");
    let group = rule.api_groups.first().filter(|group| !group.is_empty());
    let resources = rule.resources.iter().map(|resource| match group {
        Some(group) => escape(&format!("{resource}.{group}")).into_owned(),
        None => shown(resource),
    });
    let things: Vec<String> = resources
        .chain(rule.non_resource_urls.iter().map(shown))
        .collect();
    let _ = write!(text, " {}", things.join(", "));
    if !rule.resource_names.is_empty() {
        let names = rule.resource_names.iter().map(|name| format!("{name:?}"));
        let _ = write!(text, " {}", first_of(names, MAX_NAMES));
    }
    if let Some(namespace) = namespace {
        let _ = write!(text, " in namespace {}", escape(namespace));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wider_rules_cover_is_left_out() {
        let right = |namespace: Option<&str>, verb: &str, resource: &str, name: Option<&str>| Right {
            namespace: namespace.map(str::to_owned),
            access: Access {
                verb: verb.to_owned(),
                object: Object::Resource {
                    group: String::new(),
                    resource: resource.to_owned(),
                    name: name.map(str::to_owned),
                },
            },
        };
        let own = [
            right(Some("n"), "create", "configmaps", Some("a")),
            right(Some("n"), "get", "configmaps", Some("a")),
            right(Some("n"), "patch", "configmaps", Some("a")),
            right(Some("n"), "get", "secrets", Some("a")),
            right(Some("other"), "get", "configmaps", Some("a")),
        ];
        let given = [
            right(Some("n"), "get", "configmaps", None),
            right(Some("n"), "create", "configmaps", None),
            right(None, "get", "secrets", None),
        ];
        let missing = Missing::new(own.into()).with_granted(given.into());
        let least = missing.without_covered();
        assert_eq!(
            described(&least.rules),
            [
                "get secrets",
                "create, get configmaps in namespace n",
                "patch configmaps \"a\" in namespace n",
                "get configmaps \"a\" in namespace other",
            ]
        );
        assert_eq!(least.without_covered(), least);
    }

    #[test]
    fn a_text_names_something_even_if_the_first_rule_is_long() {
        let right = |resource: String| Right {
            namespace: None,
            access: Access {
                verb: "get".to_owned(),
                object: Object::Resource {
                    group: "apps.example".to_owned(),
                    resource,
                    name: None,
                },
            },
        };
        let account = Account {
            namespace: "n",
            name: "a",
        };
        let many = (0..100).map(|number| right(format!("resources{number:02}")));
        let text = Missing::new(many.collect()).text(account);
        let begin = "service account n/a lacks permissions: get resources00.apps.example, resources01";
        assert!(text.starts_with(begin) && text.ends_with('…'), "{text}");
        assert!(text.len() < 2 * MAX_TEXT, "{text}");
    }

    #[test]
    fn a_removal_needs_no_more_than_to_find_the_objects_and_take_them_away() {
        let right = |verb: &str| Right {
            namespace: Some("n".to_owned()),
            access: Access {
                verb: verb.to_owned(),
                object: Object::Resource {
                    group: String::new(),
                    resource: "configmaps".to_owned(),
                    name: Some("a".to_owned()),
                },
            },
        };
        let all = ["create", "delete", "get", "patch"].map(right);
        let missing = Missing::new(all.into()).with_granted([right("list")].into());
        let removal = missing.for_removal();
        assert_eq!(
            described(&removal.rules),
            ["delete, get, patch configmaps \"a\" in namespace n"]
        );
        assert!(removal.granted.is_empty());
        assert!(Missing::new([right("create")].into()).for_removal().is_empty());
    }

    #[test]
    fn rules_of_a_bundle_are_one_line_of_text_and_exact_data_in_roles() {
        let hostile = "get\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\u{202e}";
        let right = |group: &str, resource: &str| Right {
            namespace: Some(hostile.to_owned()),
            access: crate::rules::Access {
                verb: hostile.to_owned(),
                object: Object::Resource {
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    name: Some(hostile.to_owned()),
                },
            },
        };
        let path = Right {
            namespace: None,
            access: crate::rules::Access {
                verb: hostile.to_owned(),
                object: Object::Path(hostile.to_owned()),
            },
        };
        let missing = Missing::new(BTreeSet::from([right("", hostile), right(hostile, "pods"), path]));
        let account = Account {
            namespace: "n",
            name: "a",
        };
        let text = missing.text(account);
        assert!(!text.contains(['\n', '\u{202e}']), "{text}");
        assert!(text.contains("get\\n---\\napiVersion"), "{text}");
        let yaml = missing.yaml("role", &[], account);
        let documents: Vec<Value> = olm_yaml::documents(yaml.as_bytes(), &olm_yaml::Limits::default())
            .map(|document| document.unwrap().into_value().unwrap())
            .collect();
        assert_eq!(documents, missing.objects("role", &[], account));
    }
}
