//! The CRD of OperatorCondition, created if it is missing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use olm_api::names::{field_manager, operator_condition as names};
use serde_json::{Value, json};

/// The kind for clients.
pub fn resource() -> ApiResource {
    ApiResource {
        group: names::GROUP.to_owned(),
        version: names::VERSION.to_owned(),
        api_version: format!("{}/{}", names::GROUP, names::VERSION),
        kind: names::KIND.to_owned(),
        plural: names::PLURAL.to_owned(),
    }
}

fn name() -> String {
    format!("{}.{}", names::PLURAL, names::GROUP)
}

/// Creates the CRD if the cluster lacks it. An existing one is not changed.
///
/// # Errors
/// The cluster did not answer, or refused it.
pub async fn ensure(client: &Client) -> Result<(), Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    if definitions.get_metadata_opt(&name()).await?.is_some() {
        return Ok(());
    }
    let definition = serde_json::from_value(definition()).map_err(Error::SerdeError)?;
    let params = PostParams {
        field_manager: Some(field_manager::OPERATOR_CONTROLLER.to_owned()),
        ..PostParams::default()
    };
    match definitions.create(&params, &definition).await {
        Ok(_) => {
            tracing::info!(definition = name(), "created the CRD of OperatorCondition");
            Ok(())
        }
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the existing CRD, which may belong to another owner, serves the version that OLM writes.
///
/// # Errors
/// The cluster could not be asked.
pub async fn serves_ours(client: &Client) -> Result<bool, Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get_opt(&name()).await?;
    let mut versions = found.into_iter().flat_map(|definition| definition.spec.versions);
    Ok(versions.any(|version| version.name == names::VERSION && version.served))
}

/// Both versions have the same schema, so no field is lost between them.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name()},
        "spec": {
            "group": names::GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names::KIND,
                "listKind": "OperatorConditionList",
                "plural": names::PLURAL,
                "singular": "operatorcondition",
                "shortNames": ["condition"],
                "categories": ["olm"],
            },
            "versions": [version("v1", Storage::No), version("v2", Storage::Yes)],
        },
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Yes,
    No,
}

fn version(name: &str, storage: Storage) -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "name": name,
        "served": true,
        "storage": storage == Storage::Yes,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "description": "An OperatorCondition reports states of an operator, for example whether it can be upgraded.",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "properties": {
                        "conditions": list("Conditions that the operator sets."),
                        "overrides": list("Conditions that an administrator sets in place of those of the operator."),
                        "deployments": texts,
                        "serviceAccounts": texts,
                    },
                },
                "status": {
                    "type": "object",
                    "properties": {"conditions": list("Conditions that the operator sets, in version v1.")},
                },
            },
        }},
    })
}

fn list(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    })
}
