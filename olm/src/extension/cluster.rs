//! A cluster, its ClusterExtensions, and the facts on which the rendering of a bundle depends.

pub(crate) mod catalogs;

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Client, Config};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{CLUSTER_EXTENSION, annotation, cert_manager, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use olm_cluster::image_policies::{ReadPolicies, own_rules};
use tokio::runtime::Runtime;

use super::access::ClusterArguments;
use super::lookup::others;
use crate::output::note;

/// A cluster, and the runtime of its requests.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    pub(crate) config: Config,
    pub(crate) client: Client,
}

impl Cluster {
    /// Reaches the cluster that is meant.
    pub(crate) fn reach(access: &ClusterArguments) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let config = runtime.block_on(access.config())?;
        let client = {
            let _inside = runtime.enter();
            Client::try_from(config.clone())?
        };
        Ok(Self {
            runtime,
            config,
            client,
        })
    }

    /// The ClusterExtension of that name, if there is one.
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<Option<ClusterExtension>> {
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let found = self.runtime.block_on(extensions.get_opt(name));
        found.with_context(|| format!("cannot read ClusterExtension {name:?}"))
    }

    /// The ClusterExtension of that name.
    pub(crate) fn extension(&self, name: &str) -> anyhow::Result<ClusterExtension> {
        if let Some(extension) = self.find(name)? {
            return Ok(extension);
        }
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let error = anyhow!("ClusterExtension {name:?} not found");
        Err(error.context(self.runtime.block_on(others(&extensions, name))))
    }

    /// The signature policies for images of a namespace, and for all, as far as the user may read them.
    pub(crate) fn image_policies(&self, namespace: Option<&str>) -> ReadPolicies {
        self.runtime.block_on(ReadPolicies::read(&self.client, namespace))
    }

    /// The rules for the images of an extension: its own, and the signature policies as far as the user may read them.
    ///
    /// # Errors
    /// The annotation with its own rules has an invalid value.
    pub(crate) fn image_rules(&self, extension: &ClusterExtension) -> anyhow::Result<ReadPolicies> {
        let text = extension.annotation(user::SIGNATURE_POLICY);
        let own = own_rules(CLUSTER_EXTENSION, extension.name(), text)
            .map_err(|fault| anyhow!("annotation {}: {fault}", user::SIGNATURE_POLICY))?;
        let mut policies = self.image_policies(Some(&extension.spec.namespace));
        policies.rules = own.and(&policies.rules);
        Ok(policies)
    }

    /// The provider of certificates, chosen as in operator-controller.
    pub(crate) fn provider(&self, newest: Option<&ClusterObjectSet>) -> anyhow::Result<CertificateProvider> {
        if let Some(provider) = recorded(newest) {
            return Ok(provider);
        }
        let groups = self.runtime.block_on(self.client.list_api_groups());
        let groups = groups
            .context("cannot list the API groups of the cluster")?
            .groups;
        let has = |name: &str| groups.iter().any(|group| group.name == name);
        Ok(if has(cert_manager::GROUP) {
            CertificateProvider::CertManager
        } else if has("config.openshift.io") {
            CertificateProvider::OpenShiftServiceCa
        } else {
            CertificateProvider::SelfSigned
        })
    }

    /// The custom resource definition of that name, if the cluster has it.
    pub(crate) fn definition(&self, name: &str) -> anyhow::Result<Option<serde_json::Value>> {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = self.runtime.block_on(api.get_opt(name));
        let found = found.with_context(|| format!("cannot read CustomResourceDefinition {name:?}"))?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }
}

/// Notes the signature policies that the user may not read.
pub(crate) fn note_unread(policies: &ReadPolicies) {
    for why in &policies.unread {
        note(&format!("note: {why}"));
    }
}

/// The provider of certificates that a revision records.
pub(crate) fn recorded(set: Option<&ClusterObjectSet>) -> Option<CertificateProvider> {
    set?.annotation(annotation::CERTIFICATE_PROVIDER)?.parse().ok()
}

/// The newest revision that is wanted.
pub(crate) fn newest_active(sets: &[ClusterObjectSet]) -> Option<&ClusterObjectSet> {
    active(sets).max_by_key(|set| set.spec.revision)
}

/// The revisions that are wanted.
pub(crate) fn active(sets: &[ClusterObjectSet]) -> impl Iterator<Item = &ClusterObjectSet> {
    let is_active =
        |set: &&ClusterObjectSet| set.spec.lifecycle_state == LifecycleState::Active && !set.is_deleting();
    sets.iter().filter(is_active)
}
