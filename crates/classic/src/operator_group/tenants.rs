//! The rights of a member in the namespaces that its OperatorGroup selects: its roles and bindings are copied there, or lifted to
//! the whole cluster.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::OperatorGroup;
use crate::cluster::{Cluster, text};
use crate::csv::ClusterServiceVersion;
use crate::csv::requirements::is_permitted;
use crate::{install, names};

/// The roles and bindings that a member lacks. `copies` has the UIDs of its copies by namespace: they own what is made there.
/// A namespace without a copy gets nothing yet.
pub fn lacking(
    csv: &ClusterServiceVersion,
    group: &OperatorGroup,
    cluster: &Cluster,
    copies: &BTreeMap<String, String>,
) -> Vec<Value> {
    if csv.spec.install.spec.permissions.is_empty() {
        return Vec::new();
    }
    if group.namespaces() == [""] {
        if is_permitted(csv, "", cluster) {
            return Vec::new();
        }
        return lifted(csv, cluster);
    }
    let own = &csv.metadata.namespace;
    group
        .namespaces()
        .iter()
        .filter(|target| *target != own && !is_permitted(csv, target, cluster))
        .filter_map(|target| Some((target, copies.get(target)?)))
        .flat_map(|(target, uid)| copied(csv, cluster, target, uid))
        .collect()
}

/// The roles or bindings of a member in its own namespace.
fn owned<'a>(
    csv: &'a ClusterServiceVersion,
    cluster: &'a Cluster,
    kind: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let found = cluster.in_namespace(kind, &csv.metadata.namespace);
    found.filter(|found| install::is_of(found, csv))
}

/// The same rights in the whole cluster, with those on namespaces.
fn lifted(csv: &ClusterServiceVersion, cluster: &Cluster) -> Vec<Value> {
    let metadata =
        |object: &Value| json!({"name": object.pointer("/metadata/name"), "labels": labels(object)});
    let roles = owned(csv, cluster, "Role").map(|role| {
        let mut rules = role
            .get("rules")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        rules.push(json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]}));
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "ClusterRole", "metadata": metadata(role), "rules": rules,
        })
    });
    let bindings = owned(csv, cluster, "RoleBinding").map(|binding| {
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "ClusterRoleBinding", "metadata": metadata(binding),
            "subjects": subjects(binding),
            "roleRef": {
                "apiGroup": names::RBAC_GROUP, "kind": "ClusterRole", "name": binding.pointer("/roleRef/name"),
            },
        })
    });
    roles.chain(bindings).collect()
}

/// The same rights in another namespace, owned by the copy there.
fn copied(csv: &ClusterServiceVersion, cluster: &Cluster, target: &str, uid: &str) -> Vec<Value> {
    let owner = json!({
        "apiVersion": names::CSV_API_VERSION, "kind": names::CSV_KIND, "name": csv.metadata.name, "uid": uid,
        "controller": false, "blockOwnerDeletion": false,
    });
    let metadata = |object: &Value| {
        let mut labels = labels(object);
        labels.insert(
            names::COPIED_FROM_LABEL.to_owned(),
            csv.metadata.namespace.as_str().into(),
        );
        json!({
            "name": object.pointer("/metadata/name"), "namespace": target, "labels": labels, "ownerReferences": [owner],
        })
    };
    let roles = owned(csv, cluster, "Role").map(|role| {
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "Role", "metadata": metadata(role), "rules": role.get("rules"),
        })
    });
    let bindings = owned(csv, cluster, "RoleBinding").map(|binding| {
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "RoleBinding", "metadata": metadata(binding),
            "subjects": subjects(binding), "roleRef": binding.get("roleRef"),
        })
    });
    roles.chain(bindings).collect()
}

/// The labels of an object without those of its component, which follow by themselves.
fn labels(object: &Value) -> Map<String, Value> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels
        .filter(|(key, _)| !key.starts_with(names::COMPONENT_LABEL_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .chain([(names::MANAGED_LABEL.to_owned(), "true".into())])
        .collect()
}

/// The subjects of a binding; accounts without a namespace are in that of the binding.
fn subjects(binding: &Value) -> Vec<Value> {
    let place = text(binding, "/metadata/namespace");
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects
        .into_iter()
        .flatten()
        .cloned()
        .map(|mut subject| {
            let is_account =
                text(&subject, "/kind") == "ServiceAccount" && text(&subject, "/namespace").is_empty();
            if let (true, Some(fields)) = (is_account, subject.as_object_mut()) {
                fields.insert("namespace".to_owned(), place.into());
            }
            subject
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> ClusterServiceVersion {
        let csv = json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"install": {"spec": {"permissions": [{
                "serviceAccountName": "sa", "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            }]}}},
        });
        ClusterServiceVersion::read(&csv).unwrap()
    }

    fn objects() -> Vec<Value> {
        let labels = json!({
            "olm.owner": "c", "olm.owner.namespace": "n", "olm.owner.kind": names::CSV_KIND, "olm.managed": "true",
        });
        let metadata = json!({"name": "r", "namespace": "n", "labels": labels});
        vec![
            json!({
                "kind": "Role", "metadata": metadata,
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            }),
            json!({
                "kind": "RoleBinding", "metadata": metadata, "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "sa"}],
            }),
        ]
    }

    fn group(namespaces: &[&str]) -> OperatorGroup {
        OperatorGroup::read(&json!({"status": {"namespaces": namespaces}})).unwrap()
    }

    fn check(namespaces: &[&str], copies: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
        let mut objects = objects();
        let cluster: Cluster = objects.iter().cloned().collect();
        let written = lacking(&member(), &group(namespaces), &cluster, copies);
        let made: Vec<(&str, &str)> = written
            .iter()
            .map(|object| (text(object, "/kind"), text(object, "/metadata/namespace")))
            .collect();
        assert_eq!(made, expected);
        objects.extend(written.clone());
        let cluster: Cluster = objects.into_iter().collect();
        assert_eq!(
            lacking(&member(), &group(namespaces), &cluster, copies),
            Vec::<Value>::new()
        );
    }

    #[test]
    fn rights_are_copied_where_copies_are() {
        let copies = BTreeMap::from([("x".to_owned(), "u".to_owned())]);
        check(&["n"], &copies, &[]);
        check(&["n", "x"], &copies, &[("Role", "x"), ("RoleBinding", "x")]);
        let cluster: Cluster = objects().into_iter().collect();
        let without = lacking(&member(), &group(&["y"]), &cluster, &copies);
        assert!(without.is_empty());
    }

    #[test]
    fn rights_are_lifted_for_all_namespaces() {
        let none = BTreeMap::new();
        check(&[""], &none, &[("ClusterRole", ""), ("ClusterRoleBinding", "")]);
    }
}
