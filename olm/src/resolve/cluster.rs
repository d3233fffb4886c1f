//! The facts of a cluster about the requirements of a package's bundles, and the extension that installs the package.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, Error};
use olm_api::cluster_extension::{CatalogFilter, controlling_extension};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{self, annotation};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_resolve::cluster::fleet::{CatalogRecord, ClusterRecord, ExtensionRecord};
use olm_resolve::cluster::inventory::{Inventory, Questions, dependents, installed_extension, requires};
use olm_resolve::{Package, Selector};
use olm_version::blang::parse_tolerant;

use crate::extension::access::{ClusterArguments, unlisted};
use crate::output::note;

/// The label with a node's architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// The number of objects on a page.
const PAGE: u32 = 500;

/// The extensions of a cluster, and their revisions.
pub(crate) struct Cluster {
    client: Client,
    extensions: Vec<ClusterExtension>,
    sets: Vec<ClusterObjectSet>,
}

impl Cluster {
    /// Reaches the cluster that is meant.
    pub(crate) async fn reach(access: &ClusterArguments) -> anyhow::Result<Self> {
        let config = access.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config)?;
        let extensions = all(Api::all(client.clone())).await;
        let extensions =
            extensions.map_err(|error| unlisted(error, &format!("the ClusterExtensions of {server}")))?;
        let sets = all(Api::all(client.clone())).await;
        let sets = sets.with_context(|| format!("cannot list the ClusterObjectSets of {server}"))?;
        Ok(Self {
            client,
            extensions,
            sets,
        })
    }

    /// The extensions.
    pub(super) fn extensions(&self) -> &[ClusterExtension] {
        &self.extensions
    }

    /// The ClusterCatalogs.
    pub(super) async fn catalogs(&self) -> anyhow::Result<Vec<ClusterCatalog>> {
        let found = all(Api::all(self.client.clone())).await;
        found.context("cannot list the ClusterCatalogs")
    }

    /// The extension of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&ClusterExtension> {
        self.extensions.iter().find(|extension| extension.name() == name)
    }

    /// The extension that installs a package.
    pub(crate) fn extension(&self, package: &str) -> Option<&ClusterExtension> {
        let asks = |extension: &&ClusterExtension| {
            !extension.is_deleting() && filter(extension).is_some_and(|filter| filter.package_name == package)
        };
        let mut asking: Vec<&ClusterExtension> = self.extensions.iter().filter(asks).collect();
        // Of several, the one with an installed bundle.
        asking.sort_by_key(|extension| (self.present(extension).is_none(), extension.name().to_owned()));
        asking.first().copied()
    }

    /// The catalogs from which an extension may get its bundle: those that it selects, else the one that the installed
    /// bundle came from and the defaults; `None` for all. Without an extension, those of a new one.
    pub(super) fn selector(
        &self,
        extension: Option<&ClusterExtension>,
        defaults: &[String],
    ) -> Option<Selector> {
        let given = extension.and_then(filter);
        let present = extension.and_then(|extension| self.present(extension));
        let home = present.map(|set| set.annotation(annotation::CATALOG));
        Selector::admitted(given.and_then(|filter| filter.selector.as_ref()), home, defaults)
    }

    /// The facts for the requirements of the packages' bundles.
    pub(crate) async fn inventory<'a>(
        &self,
        own: Option<&ClusterExtension>,
        packages: impl Iterator<Item = &'a Package>,
    ) -> anyhow::Result<Inventory> {
        let mut questions = Questions::of_packages(packages);
        let mut inventory = Inventory::default();
        if let Some(own) = own {
            inventory.dependents = dependents(own)?;
        }
        if questions.requires || self.sets.iter().any(requires) {
            let there = |extension: &ClusterExtension| {
                self.present(extension)
                    .map(|set| installed_extension(extension.name(), set))
            };
            let own_name = own.map(ClusterExtension::name);
            let others = self.extensions.iter();
            let others = others.filter(|other| Some(other.name()) != own_name && !other.is_deleting());
            inventory.others = others.filter_map(there).collect();
            inventory.own = own.and_then(there);
            questions.of_installed(&inventory.others);
        }
        self.ask(questions, &mut inventory).await?;
        Ok(inventory)
    }

    /// The revision of an extension that provides its APIs: after a first installation, the newest active one.
    fn present(&self, extension: &ClusterExtension) -> Option<&ClusterObjectSet> {
        extension.status.as_ref()?.install.as_ref()?;
        let uid = extension.metadata.uid.as_deref();
        let wanted = |set: &&ClusterObjectSet| {
            uid.is_some()
                && controlling_extension(&set.metadata) == uid
                && set.spec.lifecycle_state == LifecycleState::Active
                && !set.is_deleting()
        };
        self.sets
            .iter()
            .filter(wanted)
            .max_by_key(|set| set.spec.revision)
    }

    /// All that the choice of bundles on the cluster depends on.
    pub(super) async fn record(&self, name: String, defaults: &[String]) -> anyhow::Result<ClusterRecord> {
        let info = self.client.apiserver_version().await;
        let info = info.context("cannot read the version of the cluster")?;
        let mut catalogs: Vec<CatalogRecord> = self.catalogs().await?.iter().map(CatalogRecord::of).collect();
        catalogs.sort_by(|left, right| left.name.cmp(&right.name));
        let mut extensions = Vec::new();
        for extension in self.extensions.iter().filter(|one| !one.is_deleting()) {
            let record = ExtensionRecord::of(extension, self.present(extension));
            let record = record.with_context(|| format!("ClusterExtension {:?}", extension.name()))?;
            extensions.extend(record);
        }
        extensions.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(ClusterRecord {
            api_version: names::INVENTORY_API_VERSION.to_owned(),
            kind: names::CLUSTER_INVENTORY.to_owned(),
            cluster: name,
            kubernetes: info.git_version,
            architectures: self.architectures().await,
            default_catalogs: defaults.to_vec(),
            catalogs,
            extensions,
            apis: self.apis().await?,
        })
    }

    /// The kinds that the cluster serves, by group and version. One that does not answer is left out with a warning.
    async fn apis(&self) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
        let failed = "cannot discover the kinds that the cluster serves";
        let core = self.client.list_core_api_versions().await.context(failed)?;
        let groups = self.client.list_api_groups().await.context(failed)?.groups;
        let versions = groups.into_iter().flat_map(|group| group.versions);
        let versions = versions.map(|version| version.group_version);
        let mut found = BTreeMap::new();
        for version in core.versions.into_iter().chain(versions) {
            let listed = if version.contains('/') {
                self.client.list_api_group_resources(&version).await
            } else {
                self.client.list_core_api_resources(&version).await
            };
            match listed {
                Ok(listed) => {
                    let kinds = listed.resources.into_iter();
                    let kinds = kinds.filter(|one| !one.name.contains('/')).map(|one| one.kind);
                    found.insert(version, kinds.collect());
                }
                Err(error) => note(&format!("warning: {version} is left out: {error}")),
            }
        }
        Ok(found)
    }

    async fn ask(&self, questions: Questions, inventory: &mut Inventory) -> anyhow::Result<()> {
        let versions: BTreeSet<(&str, &str)> = questions
            .apis
            .iter()
            .map(|api| (api.group.as_str(), api.version.as_str()))
            .collect();
        for (group, version) in versions {
            let found = match group {
                "" => self.client.list_core_api_resources(version).await,
                _ => {
                    self.client
                        .list_api_group_resources(&format!("{group}/{version}"))
                        .await
                }
            };
            let kinds = match found {
                Ok(list) => list.resources,
                Err(Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(error).context("cannot discover the kinds that the cluster serves"),
            };
            let served = questions.apis.iter().filter(|api| {
                (api.group.as_str(), api.version.as_str()) == (group, version)
                    && kinds.iter().any(|resource| resource.kind == api.kind)
            });
            inventory.served.extend(served.cloned());
        }
        if questions.version {
            let info = self.client.apiserver_version().await;
            let info = info.context("cannot read the version of the cluster")?;
            inventory.kubernetes = parse_tolerant(&info.git_version).ok();
        }
        if questions.architectures {
            inventory.architectures = self.architectures().await;
        }
        Ok(())
    }

    /// The architectures of the nodes; none when they are not known.
    async fn architectures(&self) -> Vec<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.list_metadata(&ListParams::default()).await {
            Ok(list) => {
                let labels = list.items.iter().filter_map(|node| node.metadata.labels.as_ref());
                let found: BTreeSet<String> = labels
                    .filter_map(|labels| labels.get(ARCHITECTURE).cloned())
                    .collect();
                found.into_iter().collect()
            }
            Err(error) => {
                note(&format!(
                    "cannot read the nodes: their architectures are not checked: {error}"
                ));
                Vec::new()
            }
        }
    }
}

/// The catalog filter of an extension.
pub(crate) fn filter(extension: &ClusterExtension) -> Option<&CatalogFilter> {
    extension.spec.source.catalog.as_ref()
}

/// All objects of a kind.
async fn all<K>(api: Api<K>) -> Result<Vec<K>, Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut page = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let list = api.list(&page).await?;
        found.extend(list.items);
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(found),
        }
    }
}
