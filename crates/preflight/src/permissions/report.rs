//! What an account lacks, for people: as text, and as roles to apply.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{RBAC, Right};
use crate::rules::{Object, PolicyRule};

/// Characters of the text beyond which further rules are only counted.
const MAX_TEXT: usize = 4096;
/// Names in the text of one rule beyond which further ones are only counted.
const MAX_NAMES: usize = 5;

/// A service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// The rules an account lacks, each once, by namespace; `None` being the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    rules: BTreeMap<Option<String>, Vec<PolicyRule>>,
}

impl Missing {
    /// Of rights that are lacking.
    #[must_use]
    pub fn new(rights: BTreeSet<Right>) -> Self {
        let mut by_scope: BTreeMap<Option<String>, BTreeSet<Right>> = BTreeMap::new();
        for right in rights {
            by_scope.entry(right.namespace.clone()).or_default().insert(right);
        }
        Self {
            rules: by_scope
                .into_iter()
                .map(|(scope, rights)| (scope, compact(rights)))
                .collect(),
        }
    }

    /// The same as far as it is about these verbs.
    #[must_use]
    pub fn limited_to(mut self, verbs: &[&str]) -> Self {
        for rules in self.rules.values_mut() {
            for rule in rules.iter_mut() {
                rule.verbs.retain(|verb| verbs.contains(&verb.as_str()));
            }
            rules.retain(|rule| !rule.verbs.is_empty());
        }
        self.rules.retain(|_, rules| !rules.is_empty());
        self
    }

    /// The same for all objects of the kinds, which takes fewer words. What lets an account gain rights stays with names.
    #[must_use]
    pub fn for_all_objects(mut self) -> Self {
        for rules in self.rules.values_mut() {
            let mut wide: Vec<PolicyRule> = Vec::new();
            for mut rule in std::mem::take(rules) {
                if !rule.verbs.iter().any(|verb| verb == "escalate" || verb == "bind") {
                    rule.resource_names.clear();
                }
                if !wide.contains(&rule) {
                    wide.push(rule);
                }
            }
            *rules = wide;
        }
        self
    }

    /// Whether nothing is lacking.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules, by namespace.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&str>, &[PolicyRule])> {
        self.rules
            .iter()
            .map(|(namespace, rules)| (namespace.as_deref(), rules.as_slice()))
    }

    /// The rules in one line for a condition, at most a few kilobytes.
    #[must_use]
    pub fn text(&self, account: Account<'_>) -> String {
        let mut text = format!(
            "service account {}/{} lacks permissions: ",
            account.namespace, account.name
        );
        let lines = self.rules.iter().flat_map(|(namespace, rules)| {
            rules.iter().map(move |rule| describe(rule, namespace.as_deref()))
        });
        let lines: Vec<String> = lines.collect();
        for (index, line) in lines.iter().enumerate() {
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

    /// Roles with these rules and bindings that give them to the account, all called `name` and with the labels.
    #[must_use]
    pub fn objects(&self, name: &str, labels: &[(&str, &str)], account: Account<'_>) -> Vec<Value> {
        let version = format!("{RBAC}/v1");
        let mut objects = Vec::new();
        for (namespace, rules) in &self.rules {
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
                    metadata.insert("namespace".to_owned(), namespace.as_str().into());
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

    /// [`Missing::objects`] as YAML, ready to be applied.
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

type Verbs = BTreeSet<String>;

/// Few rules with the same meaning: verbs of one object together, then names, then resources.
fn compact(rights: BTreeSet<Right>) -> Vec<PolicyRule> {
    // Rules whose verbs cannot be limited to names keep none: the request that creates an object may not carry its name.
    let unnamed = |verb: &str| verb == "create";
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

/// `get, patch configmaps "a", "b" in namespace kitchen`.
fn describe(rule: &PolicyRule, namespace: Option<&str>) -> String {
    let mut text = rule.verbs.join(", ");
    let group = rule.api_groups.first().filter(|group| !group.is_empty());
    let resources = rule.resources.iter().map(|resource| match group {
        Some(group) => format!("{resource}.{group}"),
        None => resource.clone(),
    });
    let things: Vec<String> = resources.chain(rule.non_resource_urls.iter().cloned()).collect();
    let _ = write!(text, " {}", things.join(", "));
    let named: Vec<String> = rule
        .resource_names
        .iter()
        .take(MAX_NAMES)
        .map(|name| format!("{name:?}"))
        .collect();
    if !named.is_empty() {
        let _ = write!(text, " {}", named.join(", "));
    }
    if rule.resource_names.len() > MAX_NAMES {
        let _ = write!(text, " and {} more", rule.resource_names.len() - MAX_NAMES);
    }
    if let Some(namespace) = namespace {
        let _ = write!(text, " in namespace {namespace}");
    }
    text
}
