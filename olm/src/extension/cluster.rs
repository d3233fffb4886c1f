//! A cluster, its ClusterExtensions, and the facts on which the rendering of a bundle depends.

use std::cmp::Reverse;

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Config};
use olm_api::cluster_catalog::{AvailabilityMode, ResolvedImageSource};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{CLUSTER_EXTENSION, annotation, cert_manager, label, user};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use olm_cluster::image_policies::{ReadPolicies, own_rules};
use olm_fbc::Catalog;
use olm_resolve::Selector;
use tokio::runtime::Runtime;

use super::access::ClusterArguments;
use super::lookup::others;
use super::served::{CatalogPart, fetch};
use crate::hint::Hint;
use crate::output::{message, note};
use crate::rbac::bundle::{catalog, from_files};
use crate::registry::RegistryArguments;
use crate::resolve::Source;
use crate::source::{open_catalog, read_catalog};

/// A cluster, and the runtime of its requests.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    pub(crate) config: Config,
    pub(crate) client: Client,
}

/// A catalog with all that it holds.
pub(crate) struct WholeCatalog {
    pub(crate) name: String,
    /// `spec.priority`; 0 for a catalog that the command line names.
    pub(crate) priority: i32,
    pub(crate) catalog: Catalog,
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

    /// The package in the selected catalogs of the cluster: as catalogd serves it through the API server, else from
    /// their images. An installed extension stays with the catalog that it came from.
    pub(crate) fn catalogs(
        &self,
        registry: &RegistryArguments,
        extension: &ClusterExtension,
        home: Option<&str>,
    ) -> anyhow::Result<Vec<Source>> {
        let filter = extension.spec.source.catalog.as_ref();
        let package = filter
            .map(|filter| filter.package_name.as_str())
            .unwrap_or_default();
        let selector = filter.and_then(|filter| filter.selector.as_ref());
        let selector = selector
            .map(Selector::from)
            .filter(|selector| *selector != Selector::default());
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let listed = self.runtime.block_on(api.list(&ListParams::default()));
        let mut found = Vec::new();
        let mut is_proxied = true;
        for listed in listed.context("cannot list the ClusterCatalogs")? {
            let mut labels = listed.metadata.labels.clone().unwrap_or_default();
            labels.insert(label::METADATA_NAME.to_owned(), listed.name().to_owned());
            let is_selected = match &selector {
                Some(selector) => selector.matches(&labels),
                None => home.is_none_or(|home| home == listed.name()),
            };
            if !is_selected || listed.spec.availability_mode == AvailabilityMode::Unavailable {
                continue;
            }
            let Some(image) = served_image(&listed) else {
                continue;
            };
            let (name, priority) = (listed.name().to_owned(), listed.spec.priority);
            let served = is_proxied.then(|| self.served(&listed, package, priority));
            let source = match served {
                Some(Ok(source)) => Ok(source),
                served => {
                    // A failure of one request means that all would fail.
                    is_proxied = false;
                    let source = catalog(registry, name, priority, &image.reference, package);
                    source.map_err(|error| unreachable(error, served.and_then(Result::err)))
                }
            };
            found.push(source?);
        }
        Ok(found)
    }

    /// The content of a catalog about the package, as catalogd serves it; without the package, the names of its
    /// packages.
    fn served(&self, listed: &ClusterCatalog, package: &str, priority: i32) -> anyhow::Result<Source> {
        let name = listed.name();
        let fetch = |part| self.runtime.block_on(fetch(&self.client, listed, part));
        let files = match fetch(CatalogPart::Package(package))? {
            Some(files) => Some(files),
            None => fetch(CatalogPart::Packages)?,
        };
        match files {
            Some(files) => from_files(&files, name.to_owned(), priority, name, package),
            None => Ok(Source::empty(name.to_owned(), priority)),
        }
    }

    /// The catalogs of the cluster: those of higher priority first, then by name.
    pub(crate) fn whole_catalogs(&self, registry: &RegistryArguments) -> anyhow::Result<Vec<WholeCatalog>> {
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let listed = self.runtime.block_on(api.list(&ListParams::default()));
        let mut found = Vec::new();
        for listed in listed.context("cannot list the ClusterCatalogs")? {
            if listed.spec.availability_mode == AvailabilityMode::Unavailable {
                continue;
            }
            let Some(image) = served_image(&listed) else {
                continue;
            };
            let fetched = self
                .runtime
                .block_on(fetch(&self.client, &listed, CatalogPart::All));
            let files = match fetched {
                Ok(Some(files)) => files,
                Ok(None) => continue,
                Err(refused) => open_catalog(&image.reference, registry)
                    .map_err(|error| unreachable(error, Some(refused)))?,
            };
            found.push(WholeCatalog {
                name: listed.name().to_owned(),
                priority: listed.spec.priority,
                catalog: read_catalog(&files, listed.name())?,
            });
        }
        found.sort_by(|left, right| {
            (Reverse(left.priority), &left.name).cmp(&(Reverse(right.priority), &right.name))
        });
        Ok(found)
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

    /// The names of the ClusterCatalogs.
    pub(crate) fn catalog_names(&self) -> anyhow::Result<Vec<String>> {
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let listed = self.runtime.block_on(api.list(&ListParams::default()));
        let listed = listed.context("cannot list the ClusterCatalogs")?;
        Ok(listed.iter().map(|one| one.name().to_owned()).collect())
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

/// The image whose content catalogd serves; prints a warning if there is none.
fn served_image(catalog: &ClusterCatalog) -> Option<&ResolvedImageSource> {
    let status = catalog.status.as_ref();
    let resolved = status.and_then(|status| status.resolved_source.as_ref());
    let image = resolved.and_then(|resolved| resolved.image.as_ref());
    if image.is_none() {
        note(&format!(
            "warning: ClusterCatalog {:?} is not served",
            catalog.name()
        ));
    }
    image
}

/// The error that neither catalogd nor the registry gives a catalog.
fn unreachable(error: anyhow::Error, served: Option<anyhow::Error>) -> anyhow::Error {
    let is_forbidden = served.as_ref().is_none_or(|served| {
        let status = served
            .chain()
            .find_map(|cause| cause.downcast_ref::<kube::Error>());
        matches!(status, Some(kube::Error::Api(status)) if status.code == 403)
    });
    let error = match served {
        Some(served) => error.context(format!(
            "catalogd cannot be reached through the API server ({}), nor can the image of the catalog be read",
            message(&served, None)
        )),
        None => error,
    };
    let hint = if is_forbidden {
        "ask for the right to get services/proxy in the namespace of catalogd, or set --catalog to another place of that \
         catalog"
    } else {
        "see whether catalogd runs; to read the image instead, set --ca-dir to the authorities of its registry"
    };
    error.context(Hint(hint.to_owned()))
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
