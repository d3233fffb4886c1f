//! Service accounts, roles and bindings.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Options;
use crate::bundle::Bundle;
use crate::csv::{PolicyRule, StrategyPermissions};
use crate::names::permission_name;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const RBAC_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The account that every namespace has.
const DEFAULT_ACCOUNT: &str = "default";

/// A ServiceAccount for each account in the permissions, except `default`.
#[must_use]
pub fn service_accounts(bundle: &Bundle, options: &Options) -> Vec<Value> {
    let install = &bundle.csv.spec.install.spec;
    let accounts: BTreeSet<&str> = install
        .permissions
        .iter()
        .chain(&install.cluster_permissions)
        .map(account)
        .filter(|account| *account != DEFAULT_ACCOUNT)
        .collect();
    accounts
        .into_iter()
        .map(|account| {
            json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": account, "namespace": options.install_namespace},
            })
        })
        .collect()
}

/// A Role and a RoleBinding for each permission in each target namespace; empty when all namespaces are watched.
#[must_use]
pub fn roles(bundle: &Bundle, options: &Options) -> Vec<Value> {
    if options.targets.is_all() {
        return Vec::new();
    }
    let mut objects = Vec::new();
    for namespace in options.targets.as_slice() {
        for permission in &bundle.csv.spec.install.spec.permissions {
            let name = name(bundle, options, permission);
            let metadata = json!({"name": name, "namespace": namespace});
            objects.push(role("Role", &metadata, permission));
            objects.push(binding(
                "RoleBinding",
                "Role",
                &metadata,
                &name,
                permission,
                options,
            ));
        }
    }
    objects
}

/// A ClusterRole and a ClusterRoleBinding for each cluster permission. When all namespaces are watched, also for each
/// permission, together with the right to watch namespaces.
#[must_use]
pub fn cluster_roles(bundle: &Bundle, options: &Options) -> Vec<Value> {
    let install = &bundle.csv.spec.install.spec;
    let mut permissions = install.cluster_permissions.clone();
    if options.targets.is_all() {
        permissions.extend(install.permissions.iter().map(promoted));
    }
    let mut objects = Vec::new();
    for permission in &permissions {
        let name = name(bundle, options, permission);
        let metadata = json!({"name": name});
        objects.push(role("ClusterRole", &metadata, permission));
        objects.push(binding(
            "ClusterRoleBinding",
            "ClusterRole",
            &metadata,
            &name,
            permission,
            options,
        ));
    }
    objects
}

fn promoted(permission: &StrategyPermissions) -> StrategyPermissions {
    let mut promoted = permission.clone();
    promoted.rules.get_or_insert_default().push(PolicyRule {
        verbs: Some(["get", "list", "watch"].map(str::to_owned).to_vec()),
        api_groups: vec![String::new()],
        resources: vec!["namespaces".to_owned()],
        ..PolicyRule::default()
    });
    promoted
}

fn account(permission: &StrategyPermissions) -> &str {
    match permission.service_account_name.as_str() {
        "" => DEFAULT_ACCOUNT,
        name => name,
    }
}

fn name(bundle: &Bundle, options: &Options, permission: &StrategyPermissions) -> String {
    let after = options.roles_named_after.as_deref().unwrap_or(bundle.name());
    permission_name(&format!("{after}-{}", account(permission)), permission)
}

fn role(kind: &str, metadata: &Value, permission: &StrategyPermissions) -> Value {
    let rules: Vec<Value> = permission.rules.iter().flatten().map(rule).collect();
    json!({"apiVersion": RBAC_VERSION, "kind": kind, "metadata": metadata, "rules": rules})
}

fn rule(rule: &PolicyRule) -> Value {
    let mut object = Map::new();
    object.insert("verbs".to_owned(), json!(rule.verbs.clone().unwrap_or_default()));
    for (field, values) in rule.limits() {
        object.insert(field.to_owned(), json!(values));
    }
    Value::Object(object)
}

fn binding(
    kind: &str,
    role_kind: &str,
    metadata: &Value,
    role_name: &str,
    permission: &StrategyPermissions,
    options: &Options,
) -> Value {
    json!({
        "apiVersion": RBAC_VERSION,
        "kind": kind,
        "metadata": metadata,
        "subjects": [{
            "kind": "ServiceAccount",
            "name": account(permission),
            "namespace": options.install_namespace,
        }],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role_name},
    })
}
