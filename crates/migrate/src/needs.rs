//! The operators of OLM classic that need each other, and the order in which they move. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::facts::{ClassicObjects, annotation, list, name, namespace, text};

/// The annotation of a ClusterServiceVersion with the properties of its bundle.
pub const PROPERTIES: &str = "operatorframework.io/properties";
/// The parts of a constraint that hold further ones.
const NESTED: [&str; 2] = ["all", "any"];

/// A requirement of one operator that another one can meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A package.
    Package(String),
    /// An API: group, version and kind.
    Api([String; 3]),
    /// A CustomResourceDefinition.
    Definition(String),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Package(name) => write!(f, "package {name:?}"),
            Self::Api([group, version, kind]) => write!(f, "{kind} of {group}/{version}"),
            Self::Definition(name) => f.write_str(name),
        }
    }
}

impl Need {
    fn package(value: &Value) -> Option<Self> {
        let names = ["/packageName", "/name"].map(|pointer| text(value, pointer));
        let name = names.into_iter().find(|name| !name.is_empty())?;
        Some(Self::Package(name.to_owned()))
    }

    fn api(value: &Value) -> Option<Self> {
        let parts = ["/group", "/version", "/kind"].map(|pointer| text(value, pointer).to_owned());
        let [_, _, kind] = &parts;
        (!kind.is_empty()).then_some(Self::Api(parts))
    }
}

/// The requirements of an operator on others.
#[derive(Debug, Default)]
pub struct Needs {
    /// Everything that another operator can meet. Of alternatives, all.
    pub all: BTreeSet<Need>,
    /// The packages that have no alternative.
    pub packages: BTreeSet<String>,
    /// Whether a rule (CEL) is among them, which names no operator.
    pub has_rule: bool,
}

impl Needs {
    /// The requirements of a ClusterServiceVersion.
    pub fn of(version: &Value) -> Self {
        let mut needs = Self::default();
        let definitions = list(version, "/spec/customresourcedefinitions/required").iter();
        needs.all.extend(
            definitions
                .map(|entry| text(entry, "/name"))
                .filter(|name| !name.is_empty())
                .map(|name| Need::Definition(name.to_owned())),
        );
        let services = list(version, "/spec/apiservicedefinitions/required").iter();
        needs.all.extend(services.filter_map(Need::api));
        for property in &properties(version) {
            needs.add(property);
        }
        let own = gives(version);
        needs.all.retain(|need| !own.contains(need));
        needs
    }

    /// Adds what a property requires.
    fn add(&mut self, property: &Value) {
        let Some(value) = property.get("value") else {
            return;
        };
        match text(property, "/type") {
            "olm.package.required" => {
                self.packages.insert(text(value, "/packageName").to_owned());
                self.all.extend(Need::package(value));
            }
            "olm.gvk.required" => self.all.extend(Need::api(value)),
            "olm.constraint" => self.add_constraint(value),
            _ => {}
        }
    }

    fn add_constraint(&mut self, constraint: &Value) {
        let mut due = vec![constraint];
        while let Some(constraint) = due.pop() {
            self.all.extend(constraint.get("package").and_then(Need::package));
            self.all.extend(constraint.get("gvk").and_then(Need::api));
            self.has_rule |= constraint.get("cel").is_some();
            for key in NESTED {
                due.extend(list(constraint, &format!("/{key}/constraints")));
            }
        }
    }
}

/// The properties that OLM classic noted on a ClusterServiceVersion.
fn properties(version: &Value) -> Vec<Value> {
    let noted: Value = annotation(version, PROPERTIES)
        .and_then(|noted| serde_json::from_str(noted).ok())
        .unwrap_or_default();
    list(&noted, "/properties").to_vec()
}

/// The CustomResourceDefinitions and APIs that a ClusterServiceVersion owns, and the package that its properties name.
pub fn gives(version: &Value) -> BTreeSet<Need> {
    let mut gives = BTreeSet::new();
    for entry in list(version, "/spec/customresourcedefinitions/owned") {
        let name = text(entry, "/name");
        let group = name.split_once('.').map_or("", |(_, group)| group);
        gives.insert(Need::Definition(name.to_owned()));
        let [version, kind] = ["/version", "/kind"].map(|pointer| text(entry, pointer).to_owned());
        gives.insert(Need::Api([group.to_owned(), version, kind]));
    }
    let services = list(version, "/spec/apiservicedefinitions/owned").iter();
    gives.extend(services.filter_map(Need::api));
    for property in properties(version) {
        let Some(value) = property.get("value") else {
            continue;
        };
        match text(&property, "/type") {
            "olm.package" => gives.extend(Need::package(value)),
            "olm.gvk" => gives.extend(Need::api(value)),
            _ => {}
        }
    }
    gives
}

/// An installed operator of OLM classic.
pub struct Operator<'a> {
    /// The ClusterServiceVersion.
    pub version: &'a Value,
    /// The Subscription that has installed it, if any.
    subscription: Option<&'a Value>,
    gives: BTreeSet<Need>,
    needs: BTreeSet<Need>,
}

impl<'a> Operator<'a> {
    /// All of a cluster.
    pub fn all(facts: &'a ClassicObjects) -> Vec<Self> {
        let of = |version: &'a Value| {
            let mut subscriptions = facts.subscriptions.iter();
            let subscription = subscriptions.find(|found| {
                namespace(found) == namespace(version) && text(found, "/status/installedCSV") == name(version)
            });
            let mut gives = gives(version);
            let package = subscription.map(|found| text(found, "/spec/name").to_owned());
            gives.extend(package.map(Need::Package));
            Self {
                version,
                subscription,
                gives,
                needs: Needs::of(version).all,
            }
        };
        facts.versions.iter().map(of).collect()
    }

    /// `NAMESPACE/NAME` of the Subscription.
    pub fn key(&self) -> Option<String> {
        let found = self.subscription?;
        Some(format!("{}/{}", namespace(found), name(found)))
    }

    /// Whether the operator is this package.
    pub fn is_package(&self, name: &str) -> bool {
        self.gives.contains(&Need::Package(name.to_owned()))
    }

    /// What this operator requires of another one.
    pub fn needs_of(&self, other: &Operator<'_>) -> Option<&Need> {
        let is_same = std::ptr::eq(self.version, other.version);
        let mut needs = self.needs.iter();
        needs.find(|need| other.gives.contains(need)).filter(|_| !is_same)
    }

    fn is_tied_to(&self, other: &Operator<'_>) -> bool {
        self.needs_of(other).is_some() || other.needs_of(self).is_some()
    }
}

/// The Subscriptions whose operators need each other, directly or through others, in groups. In a group each comes
/// after those that it needs, as far as none needs the other in outcome.
pub fn groups(facts: &ClassicObjects) -> Vec<Vec<String>> {
    let operators = Operator::all(facts);
    let mut left: Vec<(String, &Operator<'_>)> = operators
        .iter()
        .filter_map(|operator| Some((operator.key()?, operator)))
        .collect();
    left.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut groups = Vec::new();
    while !left.is_empty() {
        let mut group = vec![left.remove(0)];
        let mut at = 0;
        while let Some((_, operator)) = group.get(at) {
            let operator: &Operator<'_> = operator;
            let (tied, others) = left.drain(..).partition(|(_, other)| operator.is_tied_to(other));
            left = others;
            let tied: Vec<(String, &Operator<'_>)> = tied;
            group.extend(tied);
            at += 1;
        }
        groups.push(ordered(group));
    }
    groups
}

/// The keys of a group in the order of their needs.
fn ordered(mut group: Vec<(String, &Operator<'_>)>) -> Vec<String> {
    group.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut order = Vec::new();
    while !group.is_empty() {
        let is_free = |(_, operator): &(String, &Operator<'_>)| {
            let mut others = group.iter();
            !others.any(|(_, other)| operator.needs_of(other).is_some())
        };
        let first = group.iter().position(is_free).unwrap_or_default();
        order.push(group.remove(first).0);
    }
    order
}

/// The group of a Subscription; that alone if its operator is not tied to others.
pub fn group_of(groups: &[Vec<String>], key: &str) -> Vec<String> {
    let mut groups = groups.iter();
    let found = groups.find(|group| group.iter().any(|member| member == key));
    found.cloned().unwrap_or_else(|| vec![key.to_owned()])
}

/// The Subscriptions in the order in which they move: those of one group together.
pub fn in_order(facts: &ClassicObjects, keys: &[String]) -> Vec<Vec<String>> {
    let mut groups = groups(facts);
    // A ClusterServiceVersion that is gone already is in no group.
    let alone = keys
        .iter()
        .filter(|key| !groups.iter().flatten().any(|known| known == *key));
    let alone: Vec<Vec<String>> = alone.map(|key| vec![key.clone()]).collect();
    groups.splice(0..0, alone);
    for group in &mut groups {
        group.retain(|key| keys.contains(key));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::tests::facts;

    fn operator(facts: &mut ClassicObjects, package: &str, spec: &Value, properties: &Value) {
        let version = format!("{package}.v1");
        let noted = json!({"properties": properties}).to_string();
        facts.versions.push(json!({
            "metadata": {"name": version, "namespace": "databases", "annotations": {PROPERTIES: noted}}, "spec": spec,
        }));
        facts.subscriptions.push(json!({
            "metadata": {"name": package, "namespace": "databases"}, "spec": {"name": package},
            "status": {"installedCSV": version},
        }));
    }

    #[test]
    fn a_group_moves_in_the_order_of_its_needs() {
        let mut facts = facts();
        let needs =
            |package: &str| json!([{"type": "olm.package.required", "value": {"packageName": package}}]);
        operator(&mut facts, "alone", &json!({}), &json!([]));
        operator(&mut facts, "app", &json!({}), &needs("cache"));
        let required = json!({"customresourcedefinitions": {"required": [{"name": "postgres.example"}]}});
        operator(&mut facts, "cache", &required, &json!([]));
        operator(&mut facts, "one", &json!({}), &needs("two"));
        operator(&mut facts, "two", &json!({}), &needs("one"));
        assert_eq!(
            groups(&facts),
            [
                vec!["databases/alone"],
                vec!["databases/postgres", "databases/cache", "databases/app"],
                vec!["databases/one", "databases/two"],
            ]
        );
        assert_eq!(group_of(&groups(&facts), "databases/app").len(), 3);
        assert_eq!(group_of(&groups(&facts), "other/app"), ["other/app"]);
    }

    #[test]
    fn alternatives_of_constraints_count_and_rules_name_no_operator() {
        let constraint = json!({"any": {"constraints": [
            {"package": {"name": "a"}},
            {"all": {"constraints": [{"gvk": {"group": "g", "version": "v1", "kind": "K"}}, {"cel": {"rule": "true"}}]}},
            {"not": {"constraints": [{"package": {"packageName": "b"}}]}},
        ]}});
        let mut facts = facts();
        operator(
            &mut facts,
            "app",
            &json!({}),
            &json!([{"type": "olm.constraint", "value": constraint}]),
        );
        let needs = Needs::of(facts.versions.last().unwrap());
        let api = ["g", "v1", "K"].map(str::to_owned);
        assert_eq!(
            needs.all.into_iter().collect::<Vec<_>>(),
            [Need::Package("a".to_owned()), Need::Api(api)]
        );
        assert!(needs.has_rule);
    }

    #[test]
    fn an_operator_does_not_need_what_it_gives() {
        let spec = json!({"customresourcedefinitions": {
            "owned": [{"name": "as.example", "version": "v1", "kind": "A"}], "required": [{"name": "as.example"}],
        }});
        let mut facts = facts();
        let own = json!([{"type": "olm.gvk.required", "value": {"group": "example", "version": "v1", "kind": "A"}}]);
        operator(&mut facts, "app", &spec, &own);
        assert!(Needs::of(facts.versions.last().unwrap()).all.is_empty());
    }
}
