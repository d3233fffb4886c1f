//! The OperatorCondition of a bundle, and the Role with which its operator writes it. OLM writes both with its own
//! rights.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, Error};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, annotation, field_manager, label, operator_condition};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_platform::write::{as_seen, created_by, patched_by, unless};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::definition;
use super::owner::{has_made_binding, has_made_role, is_of, was_of};
use crate::extension::failure::{self, RequestError};
use olm_rollout::engine::differences::differences_by;

/// A record for the operator could not be written.
fn failed(kind: &str, namespace: &str, name: &str) -> impl FnOnce(Error) -> RequestError + use<> {
    failure::failed(format!("cannot write {kind} {namespace}/{name} for the operator"))
}

/// The OperatorConditions of a namespace.
pub(crate) fn conditions(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &definition::resource())
}

/// The name of the OperatorCondition in the newest revision.
pub(crate) fn named(latest: Option<&ClusterObjectSet>) -> Option<&str> {
    latest?.annotation(annotation::OPERATOR_CONDITION)
}

/// Whether an OperatorCondition exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// The OperatorCondition exists, or the newest revision already names it.
    Yes,
    /// The OperatorCondition cannot exist.
    No,
}

/// Creates the OperatorCondition with this name if it is missing. `is_named`: the newest revision already names it.
///
/// # Errors
/// The cluster could not be asked.
pub(crate) async fn keep(
    client: &Client,
    extension: &ClusterExtension,
    is_named: bool,
    name: &str,
) -> Result<Record, RequestError> {
    match ensure(client, extension, name).await {
        Ok(()) => Ok(Record::Yes),
        // An OperatorCondition never blocks an installation.
        Err(Error::Api(status)) if is_named || is_final(status.code) => {
            tracing::warn!(
                extension = extension.name(),
                condition = name,
                error = status.message,
                "cannot create or update the OperatorCondition"
            );
            Ok(if is_named { Record::Yes } else { Record::No })
        }
        Err(error) => Err(failed("OperatorCondition", &extension.spec.namespace, name)(
            error,
        )),
    }
}

/// Whether a retry would get the same answer.
fn is_final(code: u16) -> bool {
    matches!(code, 400..=499) && !matches!(code, 401 | 408 | 429)
}

/// The operator or an administrator has written an existing one, so only its owner is changed.
async fn ensure(client: &Client, extension: &ClusterExtension, name: &str) -> Result<(), Error> {
    let conditions = conditions(client, &extension.spec.namespace);
    match conditions.get_metadata_opt(name).await {
        Ok(Some(found)) => return own(&conditions, extension, &found.metadata).await,
        Ok(None) => {}
        Err(error) => return Err(error),
    }
    definition::ensure(client).await?;
    let mut object = DynamicObject::new(name, &definition::resource());
    object.metadata = serde_json::from_value(metadata(extension, name)).map_err(Error::SerdeError)?;
    object.data = json!({"spec": {}});
    match conditions
        .create(&created_by(field_manager::OPERATOR_CONTROLLER), &object)
        .await
    {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        // The CRD was created just now.
        Err(Error::Api(status))
            if status.code == 404
                && status.details.as_ref().is_none_or(|d| d.name.is_empty())
                && definition::serves_ours(client).await? =>
        {
            Err(Error::Api(Box::new(
                kube::core::Status::failure("the kind is not served yet", "ServiceUnavailable")
                    .with_code(503),
            )))
        }
        Err(error) => Err(error),
    }
}

fn metadata(extension: &ClusterExtension, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": extension.spec.namespace,
        "labels": {
            label::OWNER_KIND: CLUSTER_EXTENSION,
            label::OWNER_NAME: extension.name(),
            label::MANAGED_BY: label::MANAGED_BY_OLM,
        },
        "ownerReferences": [{
            "apiVersion": API_VERSION,
            "kind": CLUSTER_EXTENSION,
            "name": extension.name(),
            "uid": extension.metadata.uid,
            "controller": true,
        }],
    })
}

/// The name of the Role and of the RoleBinding for an extension's operator.
fn role_name(extension: &ClusterExtension) -> String {
    format!("olm-operator-condition-{}", extension.name())
}

/// The service accounts of the operator's Deployments.
pub(crate) fn accounts(objects: &[Value]) -> BTreeSet<String> {
    let deployments = objects
        .iter()
        .filter(|object| object.get("kind").and_then(Value::as_str) == Some("Deployment"));
    let account = |object: &Value| {
        let named = object.pointer("/spec/template/spec/serviceAccountName");
        let named = named.and_then(Value::as_str).filter(|name| !name.is_empty());
        named.unwrap_or("default").to_owned()
    };
    deployments.map(account).collect()
}

/// Allows the operator's accounts to write only the OperatorConditions with these names in their namespace.
///
/// # Errors
/// The Role or its binding could not be written.
pub(crate) async fn bind(
    client: &Client,
    extension: &ClusterExtension,
    accounts: &BTreeSet<String>,
    names: &BTreeSet<String>,
) -> Result<(), RequestError> {
    let namespace = &extension.spec.namespace;
    let name = role_name(extension);
    let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    let failed = |kind| failed(kind, namespace, &name);
    let role = roles.get_opt(&name).await.map_err(failed("Role"))?;
    let binding = bindings.get_opt(&name).await.map_err(failed("RoleBinding"))?;
    let is_ours = role.as_ref().is_none_or(|role| has_made_role(role, extension))
        && binding
            .as_ref()
            .is_none_or(|binding| has_made_binding(binding, extension));
    if !is_ours {
        // Another creator owns its content. The installation continues without it.
        tracing::warn!(
            extension = extension.name(),
            binding = format!("{namespace}/{name}"),
            "a Role or RoleBinding of another owner has this name; the operator cannot write its OperatorCondition"
        );
        return Ok(());
    }
    // The role of a binding is immutable, and earlier versions of OLM bound a ClusterRole.
    if let Some(binding) = binding.as_ref().filter(|binding| binding.role_ref.kind != "Role") {
        let deleted = bindings.delete(&name, &as_seen(&binding.metadata)).await;
        unless_gone(deleted).map_err(failed("RoleBinding"))?;
    }
    let params = PatchParams::apply(field_manager::OPERATOR_CONTROLLER).force();
    let (wanted_role, wanted_binding) = role_and_binding(extension, accounts, names);
    if !holds(role.as_ref(), &wanted_role) {
        let written = roles.patch(&name, &params, &Patch::Apply(&wanted_role)).await;
        written.map_err(failed("Role"))?;
    }
    if !holds(binding.as_ref(), &wanted_binding) {
        let written = bindings
            .patch(&name, &params, &Patch::Apply(&wanted_binding))
            .await;
        written.map_err(failed("RoleBinding"))?;
    }
    Ok(())
}

/// Whether an object is as it was applied, so that no write is needed.
fn holds(found: Option<&impl Serialize>, wanted: &Value) -> bool {
    let found = found.and_then(|found| serde_json::to_value(found).ok());
    found.is_some_and(|found| {
        differences_by(field_manager::OPERATOR_CONTROLLER, wanted, &found).fingerprint == 0
    })
}

/// The Role for these OperatorConditions, and the RoleBinding to the accounts.
pub(super) fn role_and_binding(
    extension: &ClusterExtension,
    accounts: &BTreeSet<String>,
    names: &BTreeSet<String>,
) -> (Value, Value) {
    const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
    let (namespace, name) = (&extension.spec.namespace, role_name(extension));
    let subjects: Vec<Value> = accounts
        .iter()
        .map(|account| json!({"kind": "ServiceAccount", "name": account, "namespace": namespace}))
        .collect();
    let role = json!({
        "apiVersion": API_VERSION,
        "kind": "Role",
        "metadata": metadata(extension, &name),
        "rules": [{
            "apiGroups": [operator_condition::GROUP],
            "resources": [operator_condition::PLURAL, format!("{}/status", operator_condition::PLURAL)],
            "resourceNames": names,
            "verbs": ["get", "update", "patch"],
        }],
    });
    let binding = json!({
        "apiVersion": API_VERSION,
        "kind": "RoleBinding",
        "metadata": metadata(extension, &name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": subjects,
    });
    (role, binding)
}

/// Deletes the OperatorConditions of former bundles: all but the needed ones.
///
/// # Errors
/// They could not be listed or removed.
pub(crate) async fn tidy(
    client: &Client,
    extension: &ClusterExtension,
    needed: &BTreeSet<String>,
) -> Result<(), Error> {
    let conditions = conditions(client, &extension.spec.namespace);
    for object in listed(&conditions, extension).await? {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !needed.contains(&name) {
            remove_ours(&conditions, &name, extension).await?;
        }
    }
    Ok(())
}

/// Deletes all records of an extension that is being deleted. Kubernetes collects them later, but nothing may remain
/// when the extension is gone.
///
/// # Errors
/// A record could not be removed.
pub(crate) async fn remove(client: &Client, extension: &ClusterExtension) -> Result<(), Error> {
    let namespace = &extension.spec.namespace;
    let conditions = conditions(client, namespace);
    for object in listed(&conditions, extension).await? {
        let name = object.metadata.name.clone().unwrap_or_default();
        remove_ours(&conditions, &name, extension).await?;
    }
    let name = role_name(extension);
    remove_ours(
        &Api::<RoleBinding>::namespaced(client.clone(), namespace),
        &name,
        extension,
    )
    .await?;
    remove_ours(
        &Api::<Role>::namespaced(client.clone(), namespace),
        &name,
        extension,
    )
    .await
}

/// Deletes the object with this name if it belongs to the extension. Operators write their OperatorCondition at any
/// time. If the object changes in between, the deletion is tried once more.
async fn remove_ours<K>(api: &Api<K>, name: &str, extension: &ClusterExtension) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    match remove_once(api, name, extension).await {
        Err(Error::Api(status)) if status.code == 409 => remove_once(api, name, extension).await,
        result => result,
    }
}

async fn remove_once<K>(api: &Api<K>, name: &str, extension: &ClusterExtension) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let found = unless(&[403], api.get_metadata_opt(name).await)?.flatten();
    let Some(found) = found.filter(|found| is_of(&found.metadata, extension)) else {
        return Ok(());
    };
    unless(&[403, 404], api.delete(name, &as_seen(&found.metadata)).await).map(drop)
}

/// Sets the owner of an OperatorCondition of the extension, so that it is deleted with the extension.
async fn own(
    conditions: &Api<DynamicObject>,
    extension: &ClusterExtension,
    found: &ObjectMeta,
) -> Result<(), Error> {
    let Some(name) = found.name.as_deref().filter(|_| was_of(found, extension)) else {
        return Ok(());
    };
    let wanted = metadata(extension, name);
    let patch = json!({ "metadata": {
        "uid": found.uid, "resourceVersion": found.resource_version,
        "ownerReferences": wanted.get("ownerReferences"),
    } });
    let params = patched_by(field_manager::OPERATOR_CONTROLLER);
    unless_gone(
        conditions
            .patch_metadata(name, &params, &Patch::Merge(&patch))
            .await,
    )
}

/// The OperatorConditions of the extension.
async fn listed(
    conditions: &Api<DynamicObject>,
    extension: &ClusterExtension,
) -> Result<Vec<kube::core::PartialObjectMeta<DynamicObject>>, Error> {
    let Some(labelled) = label::selector(label::OWNER_NAME, extension.name()) else {
        return Ok(Vec::new());
    };
    let labelled = ListParams::default().labels(&labelled);
    let found = unless(&[403, 404], conditions.list_metadata(&labelled).await)?;
    let mut found = found.map(|list| list.items).unwrap_or_default();
    found.retain(|object| is_of(&object.metadata, extension));
    Ok(found)
}

/// An object that is gone, has changed, or is not ours need not be deleted now.
fn unless_gone<T>(result: Result<T, Error>) -> Result<(), Error> {
    unless(&[403, 404, 409], result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_up_to_date_are_not_written_again() {
        let mut extension =
            ClusterExtension::new("e", olm_api::cluster_extension::ClusterExtensionSpec::default());
        extension.metadata.uid = Some("1".to_owned());
        let set = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let (role, _) = role_and_binding(&extension, &set(&["op"]), &set(&["op.v1"]));
        let mut stored = role.clone();
        stored["metadata"]["resourceVersion"] = json!("7");
        stored["metadata"]["managedFields"] = json!([{
            "manager": field_manager::OPERATOR_CONTROLLER,
            "operation": "Apply",
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:rules": {},
                "f:metadata": {
                    "f:labels": {
                        format!("f:{}", label::OWNER_KIND): {},
                        format!("f:{}", label::OWNER_NAME): {},
                        format!("f:{}", label::MANAGED_BY): {},
                    },
                    "f:ownerReferences": {"k:{\"uid\":\"1\"}": {}},
                },
            },
        }]);
        let different = differences_by(field_manager::OPERATOR_CONTROLLER, &role, &stored);
        assert_eq!(different.paths, Vec::<String>::new());
        let (next, _) = role_and_binding(&extension, &set(&["op"]), &set(&["op.v1", "op.v2"]));
        assert!(!holds(Some(&stored), &next));
        assert!(!holds(None::<&Value>, &role));
        stored["rules"][0]["verbs"] = json!(["get", "update", "patch", "delete"]);
        assert!(!holds(Some(&stored), &role), "an added verb is drift");
    }

    #[test]
    fn a_role_covers_the_named_conditions_only() {
        let mut extension =
            ClusterExtension::new("e", olm_api::cluster_extension::ClusterExtensionSpec::default());
        extension.spec.namespace = "ns".to_owned();
        let set = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let (role, binding) = role_and_binding(&extension, &set(&["op"]), &set(&["op.v1", "op.v2"]));
        assert_eq!(
            role["rules"],
            json!([{
                "apiGroups": ["operators.coreos.com"],
                "resources": ["operatorconditions", "operatorconditions/status"],
                "resourceNames": ["op.v1", "op.v2"],
                "verbs": ["get", "update", "patch"],
            }])
        );
        assert_eq!(role["metadata"]["name"], binding["roleRef"]["name"]);
        assert_eq!(binding["roleRef"]["kind"], "Role");
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "op", "namespace": "ns"}])
        );
    }

    #[test]
    fn the_accounts_are_those_of_the_deployments() {
        let deployment = |spec: Value| json!({"kind": "Deployment", "spec": {"template": {"spec": spec}}});
        let objects = [
            json!({"kind": "ServiceAccount", "metadata": {"name": "x"}}),
            deployment(json!({"serviceAccountName": "a"})),
            deployment(json!({})),
            deployment(json!({"serviceAccountName": "a"})),
        ];
        assert_eq!(
            accounts(&objects).into_iter().collect::<Vec<_>>(),
            ["a", "default"]
        );
    }
}
