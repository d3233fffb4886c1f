//! Whether all is well with an extension or a catalog, from the objects that live on the cluster. Conditions of ours are
//! never looked at.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use olm_api::names::{self, label, user};
use olm_test::world::World;
use serde_json::Value;

/// Whether an extension of the sample operator is as its spec asks: the exact version that it names runs, the definition is
/// served, every object is controlled by a revision of this extension, and nobody has stopped it.
pub(crate) async fn extension(world: &World, object: Option<&Value>) -> Result<bool> {
    let Some(object) = object else {
        return Ok(false);
    };
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().context("a name")?;
    let is_paused = metadata["annotations"][user::PAUSED] == "true";
    if is_paused || !metadata["deletionTimestamp"].is_null() {
        return Ok(false);
    }
    let wanted = object["spec"]["source"]["catalog"]["version"]
        .as_str()
        .context("a version")?;
    let client = &world.client;
    let deployments = Api::<Deployment>::namespaced(client.clone(), name);
    let Some(deployment) = deployments.get_opt(&format!("{name}-operator")).await? else {
        return Ok(false);
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
    let Some(account) = accounts.get_opt(&format!("{name}-operator")).await? else {
        return Ok(false);
    };
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let Some(definition) = definitions
        .get_opt(&format!("greetings.{name}.olm.example"))
        .await?
    else {
        return Ok(false);
    };
    let is_ours = [&deployment.metadata, &account.metadata, &definition.metadata]
        .iter()
        .all(|metadata| is_controlled(metadata, name));
    Ok(is_ours && runs(&deployment, wanted) && is_established(&definition))
}

fn is_controlled(metadata: &ObjectMeta, extension: &str) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let labels = metadata.labels.as_ref();
    metadata.deletion_timestamp.is_none()
        && controller.is_some_and(|owner| owner.kind == names::CLUSTER_OBJECT_SET)
        && labels
            .and_then(|labels| labels.get(label::OWNER_NAME))
            .map(String::as_str)
            == Some(extension)
}

fn runs(deployment: &Deployment, version: &str) -> bool {
    let containers = deployment
        .spec
        .iter()
        .filter_map(|spec| spec.template.spec.as_ref());
    let mut env = containers
        .flat_map(|pod| &pod.containers)
        .flat_map(|container| container.env.iter().flatten());
    let is_version = env.any(|env| env.name == "OPERATOR_VERSION" && env.value.as_deref() == Some(version));
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let Some(status) = &deployment.status else {
        return false;
    };
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ];
    is_version
        && wanted == Some(1)
        && status.observed_generation == deployment.metadata.generation
        && counts.iter().all(|count| *count == Some(1))
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Whether a catalog is as its spec asks: what is served is the content of the tag that it names, or nothing where it is
/// to be unavailable. The content of a tag `vN` has a package `vN`.
pub(crate) async fn catalog(world: &World, http: &reqwest::Client, object: Option<&Value>) -> Result<bool> {
    let Some(object) = object else {
        return Ok(false);
    };
    let metadata = &object["metadata"];
    let is_paused = metadata["annotations"][user::PAUSED] == "true";
    if is_paused || !metadata["deletionTimestamp"].is_null() {
        return Ok(false);
    }
    let name = metadata["name"].as_str().context("a name")?;
    let address = format!("{}/catalogs/{name}/api/v1/all", world.catalogs);
    let answer = http.get(address).send().await?;
    if object["spec"]["availabilityMode"] == "Unavailable" {
        return Ok(answer.status() == 404);
    }
    let reference = object["spec"]["source"]["image"]["ref"]
        .as_str()
        .context("a reference")?;
    let tag = reference.rsplit(':').next().unwrap_or_default();
    let is_served = answer.status().is_success();
    Ok(is_served && answer.text().await?.contains(&format!("\"{tag}\"")))
}
