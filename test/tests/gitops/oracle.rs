//! The health of an extension, a revision or a catalog, computed from live objects without our conditions.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use olm_api::names::{self, annotation, label, user};
use olm_test::world::World;
use serde_json::Value;

/// Whether an extension of the sample operator matches its spec: the exact version runs, the definition is served, a
/// revision of this extension controls every object, and the extension is not paused.
pub(crate) async fn extension(world: &World, object: &Value) -> Result<bool> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().context("a name")?;
    let is_paused = metadata["annotations"][user::PAUSED] == "true";
    if is_paused || !metadata["deletionTimestamp"].is_null() {
        return Ok(false);
    }
    let wanted = object["spec"]["source"]["catalog"]["version"]
        .as_str()
        .context("a version")?;
    let live = Live::of(world, name).await?;
    let are_ours = live.all(|metadata| is_controlled(metadata, name));
    Ok(are_ours && live.works(wanted))
}

/// Whether a revision of the sample operator matches its spec. An active one runs its version, its definition is
/// served, and it controls every object. An archived one controls none.
pub(crate) async fn object_set(world: &World, object: &Value) -> Result<bool> {
    let metadata = &object["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return Ok(false);
    }
    let extension = metadata["labels"][label::OWNER_NAME]
        .as_str()
        .context("an extension")?;
    let version = metadata["annotations"][annotation::BUNDLE_VERSION]
        .as_str()
        .context("a version")?;
    let uid = metadata["uid"].as_str().context("a UID")?;
    let live = Live::of(world, extension).await?;
    if object["spec"]["lifecycleState"] == "Archived" {
        return Ok(!live.any(|metadata| controller(metadata).is_some_and(|owner| owner.uid == uid)));
    }
    let is_its_own = |metadata: &ObjectMeta| {
        metadata.deletion_timestamp.is_none() && controller(metadata).is_some_and(|owner| owner.uid == uid)
    };
    Ok(live.all(is_its_own) && live.works(version))
}

/// The objects of the sample operator on the cluster.
struct Live {
    deployment: Option<Deployment>,
    account: Option<ServiceAccount>,
    definition: Option<CustomResourceDefinition>,
}

impl Live {
    async fn of(world: &World, name: &str) -> Result<Self> {
        let client = &world.client;
        let operator = format!("{name}-operator");
        Ok(Self {
            deployment: Api::namespaced(client.clone(), name).get_opt(&operator).await?,
            account: Api::namespaced(client.clone(), name).get_opt(&operator).await?,
            definition: Api::all(client.clone())
                .get_opt(&format!("greetings.{name}.olm.example"))
                .await?,
        })
    }

    fn metadata(&self) -> [Option<&ObjectMeta>; 3] {
        [
            self.deployment.as_ref().map(|object| &object.metadata),
            self.account.as_ref().map(|object| &object.metadata),
            self.definition.as_ref().map(|object| &object.metadata),
        ]
    }

    /// Whether all objects exist and meet a condition.
    fn all(&self, is: impl Fn(&ObjectMeta) -> bool) -> bool {
        self.metadata()
            .into_iter()
            .all(|metadata| metadata.is_some_and(&is))
    }

    /// Whether any existing object meets a condition.
    fn any(&self, is: impl Fn(&ObjectMeta) -> bool) -> bool {
        self.metadata().into_iter().flatten().any(is)
    }

    /// Whether this version runs and the definition is served.
    fn works(&self, version: &str) -> bool {
        self.deployment
            .as_ref()
            .is_some_and(|deployment| runs(deployment, version))
            && self.definition.as_ref().is_some_and(is_established)
    }
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

fn is_controlled(metadata: &ObjectMeta, extension: &str) -> bool {
    let labels = metadata.labels.as_ref();
    metadata.deletion_timestamp.is_none()
        && controller(metadata).is_some_and(|owner| owner.kind == names::CLUSTER_OBJECT_SET)
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

/// Whether a catalog matches its spec: it serves the content of its tag, or nothing if it is unavailable. The content
/// of a tag `vN` has a package `vN`.
pub(crate) async fn catalog(world: &World, http: &reqwest::Client, object: &Value) -> Result<bool> {
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
