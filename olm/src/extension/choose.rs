//! The bundle that an extension would get, computed from the catalogs and the state of the cluster as in
//! operator-controller.

use anyhow::{Context as _, bail};
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_api::names::annotation;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_plan::BundleIdentity;
use olm_resolve::cluster::inventory::Inventory;
use olm_resolve::cluster::updates::{EvaluatedBundle, considered};
use olm_resolve::{
    Catalog, Edge, Installed, Refusal, ReleaseField, Request, Resolution, Selector, resolve_in,
    skipped_versions,
};

use super::access::ClusterArguments;
use super::cluster::Cluster;
use super::cluster::catalogs::sources_of;
use crate::registry::RegistryArguments;
use crate::resolve::{self, Source};

/// The source of catalogs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// Catalogs of the command line; those of the cluster when there are none.
    pub(crate) catalogs: &'a [String],
    pub(crate) registry: &'a RegistryArguments,
    pub(crate) access: &'a ClusterArguments,
}

/// The input of a choice.
pub(crate) struct ResolutionInput {
    filter: CatalogFilter,
    installed: Option<BundleMetadata>,
    sources: Vec<Source>,
    inventory: Inventory,
}

/// The bundle that resolution chooses.
#[derive(Debug, Clone)]
pub(crate) struct ChosenBundle {
    pub(crate) bundle: BundleIdentity,
    pub(crate) catalog: String,
    pub(crate) channels: Vec<String>,
    /// The default channel of the package in that catalog.
    pub(crate) default_channel: Option<String>,
    /// The edge by which it follows the installed bundle.
    pub(crate) edge: Option<Edge>,
    /// The versions that are passed over.
    pub(crate) passed: Vec<String>,
    /// Newer bundles that the cluster does not allow, with the reasons.
    pub(crate) held: Option<String>,
}

impl ResolutionInput {
    /// Gathers the input of the choice. `newest` is the newest active revision of the extension.
    pub(crate) fn gather(
        cluster: &Cluster,
        origin: Origin<'_>,
        extension: &ClusterExtension,
        newest: Option<&ClusterObjectSet>,
    ) -> anyhow::Result<Self> {
        let Some(filter) = extension.spec.source.catalog.clone() else {
            bail!(
                "ClusterExtension {:?} has no spec.source.catalog: there is nothing to install",
                extension.name()
            );
        };
        let home = newest.and_then(|set| set.annotation(annotation::CATALOG));
        let sources = if origin.catalogs.is_empty() {
            let selector = Selector::admitted(filter.selector.as_ref(), home.map(Some), &[]);
            cluster.catalogs(origin.registry, &filter.package_name, selector.as_ref())?
        } else {
            sources_of(
                origin.catalogs,
                origin.registry,
                origin.access,
                &filter.package_name,
            )?
        };
        let packages = sources.iter().filter_map(|source| source.package.as_ref());
        let inventory = cluster.runtime.block_on(async {
            let known = resolve::cluster::Cluster::reach(origin.access).await?;
            known.inventory(Some(extension), packages).await
        })?;
        let status = extension.status.as_ref();
        let installed = status.and_then(|status| status.install.as_ref());
        Ok(Self {
            filter,
            installed: installed.map(|install| install.bundle.clone()),
            sources,
            inventory,
        })
    }

    /// The same choice with another version or range, or without any.
    pub(crate) fn with_version(mut self, version: Option<String>) -> Self {
        self.filter.version = version;
        self
    }

    /// The names of the catalogs that were read.
    pub(crate) fn catalogs(&self) -> Vec<&str> {
        self.sources.iter().map(|source| source.name.as_str()).collect()
    }

    /// The chosen bundle, or the reason why there is none.
    pub(crate) fn resolve(&self) -> Result<ChosenBundle, Refusal> {
        let catalogs = self.views();
        let resolution = match self.resolution(&catalogs) {
            Ok(resolution) => resolution,
            Err(mut refusal) => {
                refusal.suggest(self.sources.iter().flat_map(|source| {
                    let names = source.names.iter();
                    names.map(|name| (source.name.as_str(), name.as_str()))
                }));
                return Err(refusal.on_command_line());
            }
        };
        let (request, installed) = (self.request(), self.installed());
        let passed = match &installed {
            Some(installed) => skipped_versions(resolution.package, &request, installed, resolution.bundle)?,
            None => Vec::new(),
        };
        let version = |candidate: &olm_resolve::Candidate| candidate.recorded(ReleaseField::Counts).version;
        Ok(ChosenBundle {
            bundle: BundleIdentity {
                package: self.filter.package_name.clone(),
                metadata: resolution.bundle.recorded(ReleaseField::Counts),
                image: resolution.bundle.image.clone(),
            },
            catalog: resolution.catalog.to_owned(),
            channels: resolution.channels.iter().map(|&name| name.to_owned()).collect(),
            default_channel: resolution.package.default_channel().map(str::to_owned),
            edge: resolution.edge,
            passed: passed.into_iter().map(version).collect(),
            held: resolution.held(),
        })
    }

    /// Passes all bundles of the package, newest first and with their obstacles, to `look`.
    pub(crate) fn consider<T>(&self, look: impl FnOnce(Vec<EvaluatedBundle<'_>>) -> T) -> anyhow::Result<T> {
        let catalogs = self.views();
        let chosen = self.resolution(&catalogs).ok();
        let (request, installed) = (self.request(), self.installed());
        let found = considered(
            &catalogs,
            &request,
            installed.as_ref(),
            &self.inventory.facts(),
            chosen.as_ref(),
        );
        Ok(look(found.context("cannot compare the bundles of the catalogs")?))
    }

    fn views(&self) -> Vec<Catalog<'_>> {
        self.sources.iter().map(Source::view).collect()
    }

    fn resolution<'a>(&self, catalogs: &[Catalog<'a>]) -> Result<Resolution<'a>, Refusal> {
        let facts = self.inventory.facts();
        resolve_in(catalogs, &self.request(), self.installed().as_ref(), &facts)
    }

    /// The catalogs are selected already.
    fn request(&self) -> Request<'_> {
        Request::of(&self.filter, None)
    }

    fn installed(&self) -> Option<Installed<'_>> {
        self.installed.as_ref().map(|bundle| Installed {
            name: &bundle.name,
            version: &bundle.version,
            release: bundle.release.as_deref(),
        })
    }
}
