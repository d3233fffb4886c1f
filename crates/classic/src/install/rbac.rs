//! The accounts, roles and bindings of a ClusterServiceVersion.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::owner_reference;
use crate::cluster::{items, text};
use crate::operator_group::copies::{PERMISSIONS, RULE};
use crate::wire::{Field, Shape, write};
use crate::{hash, names};

/// The longest name of a role, in bytes.
const MAX_NAME: usize = 63;
const RULES: Shape = Shape::List(&RULE);
const NAMESPACED: Shape = Shape::Struct(&[
    Field::always("name", "\"\"", Shape::Plain),
    Field::always("permission", "{}", PERMISSIONS),
]);
const CLUSTER_WIDE: Shape = Shape::Struct(&[
    Field::always("name", "\"\"", Shape::Plain),
    Field::always("namespace", "\"\"", Shape::Plain),
    Field::always("permission", "{}", PERMISSIONS),
]);

/// Roles and bindings of one service account.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccountRights {
    /// The account.
    pub account: Value,
    /// Its roles in the namespace.
    pub roles: Vec<Value>,
    /// The bindings of these roles.
    pub role_bindings: Vec<Value>,
    /// Its roles in the whole cluster.
    pub cluster_roles: Vec<Value>,
    /// The bindings of these roles.
    pub cluster_role_bindings: Vec<Value>,
}

/// The install strategy is not `deployment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized install strategy")]
pub struct UnknownStrategyError;

/// Roles and bindings of each service account, by name. Names of roles are made of their content.
///
/// # Errors
/// When the install strategy is unknown.
pub fn rbac(csv: &Value) -> Result<BTreeMap<String, AccountRights>, UnknownStrategyError> {
    if text(csv, "/spec/install/strategy") != "deployment" {
        return Err(UnknownStrategyError);
    }
    let mut accounts: BTreeMap<String, AccountRights> = BTreeMap::new();
    for permission in items(csv, "/spec/install/spec/permissions") {
        let account = text(permission, "/serviceAccountName");
        let hashed = json!({"name": text(csv, "/metadata/name"), "permission": permission});
        let base = format!("{}-{account}", text(csv, "/metadata/name"));
        let name = named(&base, &write(&hashed, NAMESPACED));
        let rights = accounts
            .entry(account.to_owned())
            .or_insert_with(|| AccountRights {
                account: service_account(csv, account, text(csv, "/metadata/namespace")),
                ..AccountRights::default()
            });
        let (role, binding) = role(csv, permission, &name, "Role");
        rights.roles.push(role);
        rights.role_bindings.push(binding);
    }
    for permission in items(csv, "/spec/install/spec/clusterPermissions") {
        let account = text(permission, "/serviceAccountName");
        let hashed = json!({
            "name": text(csv, "/metadata/name"), "namespace": text(csv, "/metadata/namespace"), "permission": permission,
        });
        let name = named(text(csv, "/metadata/name"), &write(&hashed, CLUSTER_WIDE));
        let rights = accounts
            .entry(account.to_owned())
            .or_insert_with(|| AccountRights {
                account: service_account(csv, account, ""),
                ..AccountRights::default()
            });
        let (role, binding) = role(csv, permission, &name, "ClusterRole");
        rights.cluster_roles.push(role);
        rights.cluster_role_bindings.push(binding);
    }
    Ok(accounts)
}

/// The name of a role: the base, cut where the whole is too long, and the hash of the content. A whole of 64 bytes is
/// not cut, as clients know the names.
fn named(base: &str, content: &str) -> String {
    let hash = hash::text(&format!("{content}\n"));
    let mut base = base;
    if base.len() + hash.len() > MAX_NAME {
        let mut end = MAX_NAME.saturating_sub(hash.len() + 1).min(base.len());
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        base = base.get(..end).unwrap_or_default();
    }
    format!("{base}-{hash}")
}

/// The account; one that has rights in the whole cluster only is written without its namespace.
fn service_account(csv: &Value, name: &str, namespace: &str) -> Value {
    let mut metadata = Map::new();
    for (key, value) in [("name", name), ("namespace", namespace)] {
        if !value.is_empty() {
            metadata.insert(key.to_owned(), value.into());
        }
    }
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(csv)]));
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
}

/// A role and its binding. Those in the namespace are owned, those in the whole cluster are found by their labels.
fn role(csv: &Value, permission: &Value, name: &str, kind: &str) -> (Value, Value) {
    let (own, namespace) = (text(csv, "/metadata/name"), text(csv, "/metadata/namespace"));
    let no_rules = Value::Null;
    let rules = permission.get("rules").unwrap_or(&no_rules);
    let role_ref = json!({"apiGroup": names::RBAC_GROUP, "kind": kind, "name": name});
    let subjects = json!([{
        "kind": "ServiceAccount", "name": text(permission, "/serviceAccountName"), "namespace": namespace,
    }]);
    let metadata = |hash: String, is_placed: bool| {
        let mut metadata = json!({
            "name": name,
            "labels": {
                names::OWNER_LABEL: own,
                names::OWNER_NAMESPACE_LABEL: namespace,
                names::OWNER_KIND_LABEL: names::CSV_KIND,
                names::PERMISSIONS_HASH_LABEL: hash,
            },
        });
        if let Some(metadata) = metadata.as_object_mut() {
            if is_placed {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
            if kind == "Role" {
                metadata.insert("ownerReferences".to_owned(), json!([owner_reference(csv)]));
            }
        }
        metadata
    };
    let rules_text = match rules {
        Value::Null => "null".to_owned(),
        rules => write(rules, RULES),
    };
    let role = json!({
        "apiVersion": names::RBAC_API_VERSION,
        "kind": kind,
        "metadata": metadata(hash::text(&rules_text), kind == "Role"),
        "rules": rules,
    });
    let binding_text = write(&json!({"RoleRef": role_ref, "Subjects": subjects}), BINDING);
    let binding = json!({
        "apiVersion": names::RBAC_API_VERSION,
        "kind": format!("{kind}Binding"),
        "metadata": metadata(hash::text(&binding_text), true),
        "subjects": subjects,
        "roleRef": role_ref,
    });
    (role, binding)
}

/// Fields that the hash of a binding covers.
const BINDING: Shape = Shape::Struct(&[
    Field::always("RoleRef", "{}", REFERENCE),
    Field::always("Subjects", "null", Shape::List(&SUBJECT)),
]);
const REFERENCE: Shape = Shape::Struct(&[
    Field::always("apiGroup", "\"\"", Shape::Plain),
    Field::always("kind", "\"\"", Shape::Plain),
    Field::always("name", "\"\"", Shape::Plain),
]);
const SUBJECT: Shape = Shape::Struct(&[
    Field::always("kind", "\"\"", Shape::Plain),
    Field::optional("apiGroup", Shape::Plain),
    Field::always("name", "\"\"", Shape::Plain),
    Field::optional("namespace", Shape::Plain),
]);

#[cfg(test)]
mod tests {
    use super::*;

    fn csv() -> Value {
        let permission = json!([{
            "serviceAccountName": "sa",
            "rules": [{"verbs": ["get"], "apiGroups": ["my.api.group"], "resources": ["apis"]}],
        }]);
        json!({
            "metadata": {"name": "csv1", "namespace": "operator-ns", "uid": "u"},
            "spec": {"install": {"strategy": "deployment", "spec": {
                "permissions": permission, "clusterPermissions": permission,
            }}},
        })
    }

    #[test]
    fn names_and_hashes_are_those_that_clients_predict() {
        let rights = rbac(&csv()).unwrap();
        let rights = &rights["sa"];
        assert_eq!(
            rights.roles[0]["metadata"]["name"],
            "csv1-sa-coMoutJQACRNVC53rHVPWh42X0OLst0aqAef3s"
        );
        assert_eq!(
            rights.cluster_roles[0]["metadata"]["name"],
            "csv1-8UYWyxvFp5okTcB3IZ6ACTngTmKQouGbF0ALJr"
        );
        assert_eq!(
            rights.roles[0]["metadata"]["labels"]["olm.permissions.hash"],
            "at8sRDqcK4AXzI32cbh2c0izxUCkb58RxQIkX2"
        );
        // The garbage collector deletes the objects in the namespace; the rest is found by its labels.
        assert_eq!(rights.roles[0]["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(rights.cluster_roles[0]["metadata"].get("ownerReferences"), None);
    }

    #[test]
    fn long_names_are_cut_between_letters() {
        let name = named(&"ü".repeat(40), "x");
        assert!(name.len() <= MAX_NAME, "{name}");
        assert!(named("short", "x").starts_with("short-"));
    }
}
