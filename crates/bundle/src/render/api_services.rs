//! Aggregated APIs: their registration, and the rights of their servers.

use serde_json::{Value, json};

use super::Options;
use super::certificates::inject_authority;
use crate::bundle::Bundle;
use crate::csv::ApiDescription;
use crate::names::{join_name, service_name};

/// The priority of an API's group when several have the same resource; the value of OLM classic.
const GROUP_PRIORITY: i64 = 2000;
/// The priority of an API's version in its group.
const VERSION_PRIORITY: i64 = 15;
/// The namespace of the role that lets servers read the configuration of client authentication.
const SYSTEM_NAMESPACE: &str = "kube-system";
const RBAC: &str = "rbac.authorization.k8s.io";

fn owned(bundle: &Bundle) -> &[ApiDescription] {
    &bundle.csv.spec.api_service_definitions.owned
}

/// An APIService for each owned API.
#[must_use]
pub(super) fn registrations(bundle: &Bundle, options: &Options) -> Vec<Value> {
    owned(bundle)
        .iter()
        .map(|api| {
            let mut object = json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": api.api_service_name()},
                "spec": {
                    "group": api.group,
                    "version": api.version,
                    "groupPriorityMinimum": GROUP_PRIORITY,
                    "versionPriority": VERSION_PRIORITY,
                    "service": {
                        "namespace": options.install_namespace,
                        "name": service_name(&api.deployment_name),
                        "port": api.service_port(),
                    },
                },
            });
            if let Some(provider) = options.certificates {
                inject_authority(
                    provider,
                    &mut object,
                    &api.deployment_name,
                    &options.install_namespace,
                );
            }
            object
        })
        .collect()
}

/// For each deployment that serves an API, the bindings that let it authenticate and authorize its clients.
#[must_use]
pub(super) fn bindings(bundle: &Bundle, options: &Options) -> Vec<Value> {
    let deployments = bundle.csv.deployments().iter();
    deployments
        .filter(|deployment| {
            owned(bundle)
                .iter()
                .any(|api| api.deployment_name == deployment.name)
        })
        .flat_map(|deployment| {
            let account = deployment.spec.pointer("/template/spec/serviceAccountName");
            let account = account.and_then(Value::as_str).unwrap_or("default");
            let service = service_name(&deployment.name);
            let subjects = json!([{
                "kind": "ServiceAccount", "name": account, "namespace": options.install_namespace,
            }]);
            [
                json!({
                    "apiVersion": format!("{RBAC}/v1"),
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": join_name(&service, "auth-delegator")},
                    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
                    "subjects": subjects,
                }),
                json!({
                    "apiVersion": format!("{RBAC}/v1"),
                    "kind": "RoleBinding",
                    "metadata": {"name": join_name(&service, "auth-reader"), "namespace": SYSTEM_NAMESPACE},
                    "roleRef": {
                        "apiGroup": RBAC, "kind": "Role", "name": "extension-apiserver-authentication-reader",
                    },
                    "subjects": subjects,
                }),
            ]
        })
        .collect()
}
