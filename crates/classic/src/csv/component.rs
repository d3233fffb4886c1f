//! Operators: the objects of one package in one namespace, found by a label that all of them carry.
//!
//! The label begins on a Subscription. Its ClusterServiceVersion and InstallPlan get it, and everything that this
//! ClusterServiceVersion owns. An InstallPlan that another one follows loses it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ClusterServiceVersion;
use crate::cluster::{Cluster, items, label, text};
use crate::{install, names};

/// Kinds whose objects carry the labels of their ClusterServiceVersion.
const OWNED: &[&str] = &[
    names::DEPLOYMENT_KIND,
    "Service",
    names::API_SERVICE_KIND,
    names::OPERATOR_CONDITION_KIND,
    names::SECRET_KIND,
    "ConfigMap",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// Kinds whose objects an Operator refers to.
const REFERRED: &[&str] = &[
    names::DEPLOYMENT_KIND,
    "Service",
    "Namespace",
    names::API_SERVICE_KIND,
    names::CRD_KIND,
    names::SUBSCRIPTION_KIND,
    "InstallPlan",
    names::CSV_KIND,
    names::OPERATOR_CONDITION_KIND,
    names::SECRET_KIND,
    "ConfigMap",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// The longest name in the key of a label.
const MAX_NAME: usize = 63;
const API_VERSION: &str = "operators.coreos.com/v1";
/// The kind of Operators.
pub const KIND: &str = "Operator";

/// The name of the Operator of a package in a namespace: the text after the prefix of its label.
pub fn operator_name(package: &str, namespace: &str) -> String {
    let name = format!("{package}.{namespace}");
    let end = name.floor_char_boundary(MAX_NAME);
    let cut = name.get(..end).unwrap_or(&name);
    cut.trim_end_matches(['.', '_', '-']).to_owned()
}

/// The Operators that the labels of an object name.
pub fn named_by(object: &Value) -> BTreeSet<String> {
    component_labels(object)
        .filter_map(|key| key.strip_prefix(names::COMPONENT_LABEL_PREFIX))
        .map(str::to_owned)
        .collect()
}

fn component_labels(object: &Value) -> impl Iterator<Item = &String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flat_map(Map::keys)
        .filter(|key| key.starts_with(names::COMPONENT_LABEL_PREFIX))
}

/// What an Operator shows of an object, and the Operators that show it. Only another one changes [`decide`].
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// The names of the Operators.
    pub operators: BTreeSet<String>,
    reference: Value,
    is_copy: bool,
}

impl Shown {
    /// What is shown of an object; nothing where no label names an Operator.
    pub fn of(object: &Value) -> Option<Self> {
        let operators = named_by(object);
        (!operators.is_empty()).then(|| Self {
            operators,
            reference: reference(object),
            is_copy: !label(object, names::COPIED_FROM_LABEL).is_empty(),
        })
    }
}

/// Whether an object lacks a label of its ClusterServiceVersion and can get it.
pub fn lacks_label_of(object: &Value, csv: &Value) -> bool {
    let keys = component_labels(csv).cloned().collect();
    lacking(object, &keys).is_some()
}

/// An object that lacks labels, and these.
#[derive(Debug, Clone, PartialEq)]
pub struct Unlabelled<'a> {
    /// The object.
    pub object: &'a Value,
    /// The keys of the labels; their values are empty.
    pub keys: BTreeSet<String>,
}

/// Objects that lack the label of a Subscription: itself, its ClusterServiceVersion, its InstallPlan.
pub fn of_subscription<'a>(subscription: &'a Value, cluster: &'a Cluster) -> Vec<Unlabelled<'a>> {
    let (place, package) = (
        text(subscription, "/metadata/namespace"),
        text(subscription, "/spec/name"),
    );
    if package.is_empty() {
        return Vec::new();
    }
    let key = key_of(package, place);
    let installed = cluster.get(names::CSV_KIND, place, text(subscription, "/status/installedCSV"));
    let plan = cluster.get(names::INSTALL_PLAN_KIND, place, plan_name(subscription));
    [Some(subscription), installed, plan]
        .into_iter()
        .flatten()
        .filter_map(|object| lacking(object, &BTreeSet::from([key.clone()])))
        .collect()
}

/// A former InstallPlan of a Subscription, and the key of the label that it must lose.
#[derive(Debug, Clone, PartialEq)]
pub struct FormerPlan<'a> {
    /// The InstallPlan.
    pub plan: &'a Value,
    /// The key.
    pub key: String,
}

/// InstallPlans that carry the label of a Subscription and are not its present one, nor that of another Subscription to
/// the same package. None while it has no present one.
pub fn former_plans<'a>(subscription: &Value, cluster: &'a Cluster) -> Vec<FormerPlan<'a>> {
    let place = text(subscription, "/metadata/namespace");
    let package = text(subscription, "/spec/name");
    if package.is_empty() || plan_name(subscription).is_empty() {
        return Vec::new();
    }
    let key = key_of(package, place);
    let subscriptions: Vec<&Value> = cluster.of_kind(names::SUBSCRIPTION_KIND).collect();
    let is_present = |plan: &Value| {
        subscriptions.iter().any(|other| {
            text(other, "/metadata/namespace") == place
                && operator_name(text(other, "/spec/name"), place) == operator_name(package, place)
                && plan_name(other) == text(plan, "/metadata/name")
        })
    };
    let plans = cluster.of_kind(names::INSTALL_PLAN_KIND);
    plans
        .filter(|plan| text(plan, "/metadata/namespace") == place)
        .filter(|plan| component_labels(plan).any(|label| *label == key) && !is_present(plan))
        .map(|plan| FormerPlan {
            plan,
            key: key.clone(),
        })
        .collect()
}

fn plan_name(subscription: &Value) -> &str {
    text(subscription, "/status/installPlanRef/name")
}

/// The key of the label of a package in a namespace.
fn key_of(package: &str, namespace: &str) -> String {
    format!(
        "{}{}",
        names::COMPONENT_LABEL_PREFIX,
        operator_name(package, namespace)
    )
}

/// Objects that lack the labels of a ClusterServiceVersion on the wire: those that it owns, and the
/// CustomResourceDefinitions that it brings.
pub fn of_csv<'a>(object: &Value, csv: &ClusterServiceVersion, cluster: &'a Cluster) -> Vec<Unlabelled<'a>> {
    let keys: BTreeSet<String> = component_labels(object).cloned().collect();
    if keys.is_empty() || csv.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let is_owned = |found: &&Value| {
        items(found, "/metadata/ownerReferences").any(|owner| text(owner, "/uid") == csv.metadata.uid)
            || install::is_of(found, csv)
    };
    let owned = OWNED
        .iter()
        .flat_map(|kind| cluster.of_kind(kind))
        .filter(is_owned);
    let definitions = csv.spec.custom_resource_definitions.owned.iter();
    let definitions = definitions.filter_map(|owned| cluster.get(names::CRD_KIND, "", &owned.name));
    owned
        .chain(definitions)
        .filter_map(|object| lacking(object, &keys))
        .collect()
}

fn lacking<'a>(object: &'a Value, keys: &BTreeSet<String>) -> Option<Unlabelled<'a>> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let has = |key: &String| labels.is_some_and(|labels| labels.contains_key(key));
    let keys: BTreeSet<String> = keys.iter().filter(|key| !has(key)).cloned().collect();
    let is_going = !text(object, "/metadata/deletionTimestamp").is_empty();
    (!keys.is_empty() && !is_going).then_some(Unlabelled { object, keys })
}

/// Action for an Operator.
#[derive(Debug, Clone, PartialEq)]
pub enum OperatorDecision {
    /// It is as it should be.
    Keep,
    /// The Operator must be written, whole.
    Write(Value),
    /// The Operator must be deleted.
    Delete,
}

/// Action for the Operator of this name. It is made with its first object. One whose objects are all
/// CustomResourceDefinitions is deleted: these outlive their operator. One without objects stays: somebody has made it,
/// or will delete it.
pub fn decide(name: &str, cluster: &Cluster) -> OperatorDecision {
    let key = format!("{}{name}", names::COMPONENT_LABEL_PREFIX);
    let carries = |object: &&Value| {
        object
            .pointer("/metadata/labels")
            .is_some_and(|labels| labels.get(&key).is_some())
            && label(object, names::COPIED_FROM_LABEL).is_empty()
    };
    let components: Vec<&Value> = REFERRED
        .iter()
        .flat_map(|kind| cluster.of_kind(kind))
        .filter(carries)
        .collect();
    let found = cluster.get(KIND, "", name);
    let outlives = |object: &&Value| text(object, "/kind") == names::CRD_KIND;
    match found {
        None if components.iter().all(outlives) => return OperatorDecision::Keep,
        Some(_) if !components.is_empty() && components.iter().all(outlives) => {
            return OperatorDecision::Delete;
        }
        _ => {}
    }
    let mut references: Vec<Value> = components.into_iter().map(reference).collect();
    references.sort_by_key(|reference| {
        ["/kind", "/apiVersion", "/namespace", "/name"].map(|key| text(reference, key).to_owned())
    });
    let selector = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let components = if references.is_empty() {
        json!({"labelSelector": selector})
    } else {
        json!({"labelSelector": selector, "refs": references})
    };
    if found.is_some_and(|found| found.pointer("/status/components") == Some(&components)) {
        return OperatorDecision::Keep;
    }
    let mut wanted = found.cloned().unwrap_or_else(
        || json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}),
    );
    if let Some(fields) = wanted.as_object_mut() {
        fields.insert("status".to_owned(), json!({"components": components}));
    }
    OperatorDecision::Write(wanted)
}

fn reference(object: &Value) -> Value {
    let mut reference = Map::new();
    for (key, pointer) in [
        ("kind", "/kind"),
        ("apiVersion", "/apiVersion"),
        ("namespace", "/metadata/namespace"),
        ("name", "/metadata/name"),
    ] {
        let value = text(object, pointer);
        if !value.is_empty() {
            reference.insert(key.to_owned(), value.into());
        }
    }
    let conditions = if text(object, "/kind") == names::CSV_KIND {
        vec![phase_condition(object)]
    } else {
        items(object, "/status/conditions")
            .filter_map(condition)
            .collect()
    };
    if !conditions.is_empty() {
        reference.insert("conditions".to_owned(), conditions.into());
    }
    Value::Object(reference)
}

/// The fields of a condition that references have.
fn condition(found: &Value) -> Option<Value> {
    let keys = [
        "type",
        "status",
        "reason",
        "message",
        "lastUpdateTime",
        "lastTransitionTime",
    ];
    let fields = keys
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), found.get(key)?.clone())))
        .filter(|(_, value)| !value.is_null());
    let fields: Map<String, Value> = fields.collect();
    (fields.contains_key("type") && fields.contains_key("status")).then_some(Value::Object(fields))
}

/// The phase of a ClusterServiceVersion as a condition.
fn phase_condition(csv: &Value) -> Value {
    let mut fields = Map::new();
    fields.insert("type".to_owned(), text(csv, "/status/phase").into());
    fields.insert("status".to_owned(), "True".into());
    for key in ["reason", "message", "lastUpdateTime", "lastTransitionTime"] {
        if let Some(value) = csv
            .pointer(&format!("/status/{key}"))
            .filter(|value| !value.is_null())
        {
            fields.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, labels: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "n", "name": name, "labels": labels}})
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(operator_name("p", "n"), "p.n");
        let name = operator_name(&"p".repeat(62), "n");
        assert_eq!(name, "p".repeat(62));
    }

    #[test]
    fn a_subscription_labels_itself_its_version_and_its_plan() {
        let mut subscription = object(names::SUBSCRIPTION_KIND, "s", &json!({}));
        subscription["spec"] = json!({"name": "p"});
        subscription["status"] = json!({"installedCSV": "c.v1", "installPlanRef": {"name": "i"}});
        let cluster: Cluster = [
            object(names::CSV_KIND, "c.v1", &json!({"operators.coreos.com/p.n": ""})),
            object("InstallPlan", "i", &json!({})),
            subscription.clone(),
        ]
        .into_iter()
        .collect();
        let unlabelled = of_subscription(&subscription, &cluster);
        let kinds: Vec<&str> = unlabelled
            .iter()
            .map(|found| text(found.object, "/kind"))
            .collect();
        assert_eq!(kinds, ["Subscription", "InstallPlan"]);
    }

    #[test]
    fn former_plans_lose_the_label_and_those_of_another_subscription_keep_it() {
        let labels = json!({"operators.coreos.com/p.n": ""});
        let subscription = |name: &str, plan: &str| {
            let mut subscription = object(names::SUBSCRIPTION_KIND, name, &json!({}));
            subscription["spec"] = json!({"name": "p"});
            subscription["status"] = json!({"installPlanRef": {"name": plan}});
            subscription
        };
        let plan = |name: &str, labels: &Value| object(names::INSTALL_PLAN_KIND, name, labels);
        let mut elsewhere = plan("old", &labels);
        elsewhere["metadata"]["namespace"] = json!("m");
        let cluster: Cluster = [
            subscription("s", "new"),
            subscription("t", "other"),
            plan("new", &labels),
            plan("old", &labels),
            plan("other", &labels),
            plan("foreign", &json!({})),
            elsewhere,
        ]
        .into_iter()
        .collect();
        let former = |subscription: &Value| -> Vec<(String, String)> {
            let found = former_plans(subscription, &cluster).into_iter();
            found
                .map(|former| (text(former.plan, "/metadata/name").to_owned(), former.key))
                .collect()
        };
        let expected = ("old".to_owned(), "operators.coreos.com/p.n".to_owned());
        assert_eq!(former(&subscription("s", "new")), [expected]);
        assert!(former(&subscription("s", "")).is_empty());
    }

    #[test]
    fn what_a_version_owns_carries_its_labels() {
        let mut csv = object(names::CSV_KIND, "c.v1", &json!({"operators.coreos.com/p.n": ""}));
        csv["metadata"]["uid"] = json!("u");
        csv["spec"] = json!({"customresourcedefinitions": {"owned": [{"name": "as.g"}]}});
        let mut owned = object("Deployment", "d", &json!({}));
        owned["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
        let mut definition = object(names::CRD_KIND, "as.g", &json!({}));
        definition["metadata"]["namespace"] = json!("");
        let cluster: Cluster = [owned, object("Deployment", "e", &json!({})), definition]
            .into_iter()
            .collect();
        let read = ClusterServiceVersion::read(&csv).unwrap();
        let names: Vec<&str> = of_csv(&csv, &read, &cluster)
            .iter()
            .map(|found| text(found.object, "/metadata/name"))
            .collect();
        assert_eq!(names, ["d", "as.g"]);
    }

    #[test]
    fn an_operator_refers_to_its_objects_and_ends_with_them() {
        let labels = json!({"operators.coreos.com/p.n": ""});
        let mut csv = object(names::CSV_KIND, "c.v1", &labels);
        csv["status"] = json!({"phase": "Succeeded", "reason": "R"});
        let definition = object(names::CRD_KIND, "as.g", &labels);
        let cluster: Cluster = [csv.clone(), definition.clone()].into_iter().collect();
        let OperatorDecision::Write(operator) = decide("p.n", &cluster) else {
            panic!("it is missing");
        };
        let refs = &operator["status"]["components"]["refs"];
        assert_eq!(
            refs[0]["conditions"],
            json!([{"type": "Succeeded", "status": "True", "reason": "R"}])
        );
        assert_eq!(refs[1]["kind"], "CustomResourceDefinition");
        let settled: Cluster = [csv, definition.clone(), operator.clone()].into_iter().collect();
        assert_eq!(decide("p.n", &settled), OperatorDecision::Keep);
        let left: Cluster = [definition.clone(), operator.clone()].into_iter().collect();
        assert_eq!(decide("p.n", &left), OperatorDecision::Delete);
        let OperatorDecision::Write(empty) = decide("p.n", &[operator].into_iter().collect()) else {
            panic!("it stays and refers to nothing");
        };
        let selector =
            json!({"matchExpressions": [{"key": "operators.coreos.com/p.n", "operator": "Exists"}]});
        assert_eq!(empty["status"]["components"], json!({"labelSelector": selector}));
        assert_eq!(
            decide("p.n", &[empty].into_iter().collect()),
            OperatorDecision::Keep
        );
        let left: Cluster = [definition].into_iter().collect();
        assert_eq!(decide("p.n", &left), OperatorDecision::Keep);
    }
}
