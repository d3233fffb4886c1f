//! The CRD of OperatorCondition, created if it is missing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::core::ApiResource;
use kube::{Client, Error};
use olm_api::names::{field_manager, operator_condition as names};
use olm_platform::write::{created_by, unless};

/// The kind for clients.
pub(crate) fn resource() -> ApiResource {
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
pub(crate) async fn ensure(client: &Client) -> Result<(), Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    if definitions.get_metadata_opt(&name()).await?.is_some() {
        return Ok(());
    }
    let definition = serde_json::from_value(olm_api::crd::operator_condition()).map_err(Error::SerdeError)?;
    let created = definitions
        .create(&created_by(field_manager::OPERATOR_CONTROLLER), &definition)
        .await;
    if unless(&[409], created)?.is_some() {
        tracing::info!(definition = name(), "created the CRD of OperatorCondition");
    }
    Ok(())
}

/// Whether the existing CRD, which may belong to another owner, serves the version that OLM writes.
///
/// # Errors
/// The cluster could not be asked.
pub(crate) async fn serves_ours(client: &Client) -> Result<bool, Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get_opt(&name()).await?;
    let mut versions = found.into_iter().flat_map(|definition| definition.spec.versions);
    Ok(versions.any(|version| version.name == names::VERSION && version.served))
}
