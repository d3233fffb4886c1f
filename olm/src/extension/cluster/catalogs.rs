//! The catalogs of a cluster, and those that the command line names: ClusterCatalogs by name, and other sources.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow, bail};
use kube::api::{Api, ListParams};
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::{AvailabilityMode, ResolvedImageSource};
use olm_api::names::label;
use olm_fbc::Catalog;
use olm_fbc::similar::nearest;
use olm_image::{PullError, SettingsError};
use olm_resolve::Selector;

use super::Cluster;
use crate::extension::access::ClusterArguments;
use crate::extension::served::{CatalogPart, fetch};
use crate::hint::Hint;
use crate::input::CatalogFiles;
use crate::output::{message, note};
use crate::registry::RegistryArguments;
use crate::resolve::Source;
use crate::source::{MalformedBlobs, NamedCatalog, load_catalog, open_catalog, read_catalog};

/// A catalog with all that it holds.
pub(crate) struct WholeCatalog {
    pub(crate) name: String,
    /// `spec.priority`; 0 for a catalog that the command line names.
    pub(crate) priority: i32,
    pub(crate) catalog: Catalog,
}

impl Cluster {
    /// The content about a package of the catalogs that are selected; without a selector, of all that are available.
    pub(crate) fn catalogs(
        &self,
        registry: &RegistryArguments,
        package: &str,
        selector: Option<&Selector>,
    ) -> anyhow::Result<Vec<Source>> {
        let mut reader = Reader::new(self, registry);
        let mut found = Vec::new();
        for listed in self.cluster_catalogs()? {
            let is_selected = selector.is_none_or(|selector| selector.matches(&labels(&listed)));
            if is_selected && is_available(&listed) {
                found.extend(reader.source(&listed, package)?);
            }
        }
        Ok(found)
    }

    /// The catalogs that are available: those of higher priority first, then by name.
    pub(crate) fn whole_catalogs(&self, registry: &RegistryArguments) -> anyhow::Result<Vec<WholeCatalog>> {
        let mut reader = Reader::new(self, registry);
        let mut found = Vec::new();
        for listed in self.cluster_catalogs()? {
            if is_available(&listed) {
                found.extend(reader.whole(&listed)?);
            }
        }
        found.sort_by(|left, right| {
            (Reverse(left.priority), &left.name).cmp(&(Reverse(right.priority), &right.name))
        });
        Ok(found)
    }

    /// The names of the ClusterCatalogs.
    pub(crate) fn catalog_names(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.cluster_catalogs()?;
        Ok(listed.iter().map(|one| one.name().to_owned()).collect())
    }

    fn cluster_catalogs(&self) -> anyhow::Result<Vec<ClusterCatalog>> {
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let listed = self.runtime.block_on(api.list(&ListParams::default()));
        Ok(listed.context("cannot list the ClusterCatalogs")?.items)
    }

    /// The ClusterCatalog of that name, if it is available.
    fn cluster_catalog(&self, name: &str) -> anyhow::Result<ClusterCatalog> {
        let listed = self.cluster_catalogs()?;
        let Some(found) = listed.iter().find(|one| one.name() == name) else {
            let known: Vec<&str> = listed.iter().map(ClusterCatalog::name).collect();
            let error = anyhow!("{name:?} is neither a file or directory nor a ClusterCatalog");
            return Err(error.context(Hint(unknown(name, &known))));
        };
        if !is_available(found) {
            bail!("ClusterCatalog {name:?} is not available: its availabilityMode is Unavailable");
        }
        Ok(found.clone())
    }
}

/// The hint about an unknown name of a catalog.
fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if known.is_empty() => "the cluster has no ClusterCatalog".to_owned(),
        None => format!("its ClusterCatalogs are {}", known.join(", ")),
    }
}

/// The error that a cluster serves no catalog to choose from.
pub(crate) fn no_catalog() -> anyhow::Error {
    let error = anyhow!("the cluster serves no catalog");
    error.context(Hint("add a ClusterCatalog, or set --catalog".to_owned()))
}

/// Reads catalogs of a cluster: as catalogd serves them through the API server, else from their images.
struct Reader<'c> {
    cluster: &'c Cluster,
    registry: &'c RegistryArguments,
    /// The API server has refused one request to catalogd, as it would the others. Other failures are those of one
    /// catalog.
    is_forbidden: bool,
}

impl<'c> Reader<'c> {
    fn new(cluster: &'c Cluster, registry: &'c RegistryArguments) -> Self {
        Self {
            cluster,
            registry,
            is_forbidden: false,
        }
    }

    /// The part of a catalog as catalogd serves it, else the whole image; `None` if that part is empty.
    fn files(
        &mut self,
        listed: &ClusterCatalog,
        image: &ResolvedImageSource,
        part: CatalogPart<'_>,
    ) -> anyhow::Result<Option<CatalogFiles>> {
        let (runtime, client) = (&self.cluster.runtime, &self.cluster.client);
        let served = if self.is_forbidden {
            None
        } else {
            Some(runtime.block_on(fetch(client, listed, part)))
        };
        match served {
            Some(Ok(files)) => Ok(files),
            served => {
                self.is_forbidden |= matches!(&served, Some(Err(error)) if is_forbidden(error));
                let opened = open_catalog(&image.reference, self.registry);
                let opened = opened.map_err(|error| unreachable(error, served.and_then(Result::err)));
                opened.map(Some)
            }
        }
    }

    /// The content about the package; without it, the names of the packages. `None` if the catalog is not served.
    fn source(&mut self, listed: &ClusterCatalog, package: &str) -> anyhow::Result<Option<Source>> {
        let Some(image) = served_image(listed) else {
            return Ok(None);
        };
        let files = match self.files(listed, image, CatalogPart::Package(package))? {
            Some(files) => Some(files),
            None => self.files(listed, image, CatalogPart::Packages)?,
        };
        let (name, priority) = (listed.name().to_owned(), listed.spec.priority);
        let source = match files {
            Some(files) => Source::read(&files, name, priority, &image.reference, package)?,
            None => Source::empty(name, priority),
        };
        Ok(Some(Source {
            labels: labels(listed),
            ..source
        }))
    }

    /// All that a catalog holds; `None` if it is not served, or empty.
    fn whole(&mut self, listed: &ClusterCatalog) -> anyhow::Result<Option<WholeCatalog>> {
        let Some(files) = self.all(listed)? else {
            return Ok(None);
        };
        Ok(Some(WholeCatalog {
            name: listed.name().to_owned(),
            priority: listed.spec.priority,
            catalog: read_catalog(&files, listed.name())?,
        }))
    }

    fn all(&mut self, listed: &ClusterCatalog) -> anyhow::Result<Option<CatalogFiles>> {
        match served_image(listed) {
            Some(image) => self.files(listed, image, CatalogPart::All),
            None => Ok(None),
        }
    }
}

/// The labels by which extensions select a catalog.
fn labels(listed: &ClusterCatalog) -> BTreeMap<String, String> {
    let mut labels = listed.metadata.labels.clone().unwrap_or_default();
    labels.insert(label::METADATA_NAME.to_owned(), listed.name().to_owned());
    labels
}

fn is_available(listed: &ClusterCatalog) -> bool {
    listed.spec.availability_mode != AvailabilityMode::Unavailable
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

/// Whether the API server refuses to pass a request on to catalogd.
fn is_forbidden(error: &anyhow::Error) -> bool {
    let status = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<kube::Error>());
    matches!(status, Some(kube::Error::Api(status)) if status.code == 403)
}

/// The error that neither catalogd nor the registry gives a catalog.
fn unreachable(error: anyhow::Error, served: Option<anyhow::Error>) -> anyhow::Error {
    let is_forbidden = served.as_ref().is_none_or(is_forbidden);
    let error = match served {
        Some(served) => error.context(format!(
            "catalogd cannot be reached through the API server ({}), nor can the image of the catalog be read",
            message(&served, None)
        )),
        None => error,
    };
    // The registry is not in the way, but what a user set.
    let is_by_policy = error.chain().any(|cause| {
        cause.is::<SettingsError>()
            || cause
                .downcast_ref::<PullError>()
                .is_some_and(|error| error.policy_rejection().is_some())
    });
    let hint = if is_by_policy {
        "see whether catalogd runs; or correct the signature policy, or sign the image"
    } else if is_forbidden {
        "ask for the right to get services/proxy in the namespace of catalogd, or set --catalog to another place of that \
         catalog"
    } else {
        "see whether catalogd runs; to read the image instead, set --ca-dir to the authorities of its registry"
    };
    error.context(Hint(hint.to_owned()))
}

/// Finds the ClusterCatalog of that name on the cluster that is meant.
fn of_cluster(access: &ClusterArguments, name: &str) -> anyhow::Result<(Cluster, ClusterCatalog)> {
    let reached = Cluster::reach(access).and_then(|cluster| {
        let found = cluster.cluster_catalog(name)?;
        Ok((cluster, found))
    });
    reached.with_context(|| format!("cannot read the catalog {name:?}"))
}

/// The error that a ClusterCatalog has no content yet.
fn not_served(name: &str) -> anyhow::Error {
    anyhow!("ClusterCatalog {name:?} is not served").context(Hint(format!(
        "`kubectl get clustercatalog {name} -o yaml` shows why"
    )))
}

/// The content about a package of the catalogs that the command line names.
pub(crate) fn sources_of(
    arguments: &[String],
    registry: &RegistryArguments,
    access: &ClusterArguments,
    package: &str,
) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for catalog in parsed(arguments)? {
        found.push(match catalog {
            NamedCatalog::Source { name, source } => {
                Source::read(&open_catalog(&source, registry)?, name, 0, &source, package)?
            }
            NamedCatalog::OfCluster(name) => {
                let (cluster, listed) = of_cluster(access, &name)?;
                let source = Reader::new(&cluster, registry).source(&listed, package)?;
                source.ok_or_else(|| not_served(&name))?
            }
        });
    }
    Ok(found)
}

/// All that the catalogs hold that the command line names.
pub(crate) fn whole_catalogs_of(
    arguments: &[String],
    registry: &RegistryArguments,
    access: &ClusterArguments,
) -> anyhow::Result<Vec<WholeCatalog>> {
    let mut found = Vec::new();
    for catalog in parsed(arguments)? {
        found.push(match catalog {
            NamedCatalog::Source { name, source } => WholeCatalog {
                name,
                priority: 0,
                catalog: load_catalog(&source, registry, MalformedBlobs::LeftOut)?,
            },
            NamedCatalog::OfCluster(name) => {
                let (cluster, listed) = of_cluster(access, &name)?;
                let whole = Reader::new(&cluster, registry).whole(&listed)?;
                whole.ok_or_else(|| not_served(&name))?
            }
        });
    }
    Ok(found)
}

/// The files of a catalog that the command line names.
pub(crate) struct NamedFiles {
    pub(crate) name: String,
    /// The place of the files, for messages.
    pub(crate) origin: String,
    pub(crate) files: CatalogFiles,
}

/// The files of the catalogs that the command line names.
pub(crate) fn files_of(
    arguments: &[String],
    registry: &RegistryArguments,
    access: &ClusterArguments,
) -> anyhow::Result<Vec<NamedFiles>> {
    let mut found = Vec::new();
    for catalog in parsed(arguments)? {
        found.push(match catalog {
            NamedCatalog::Source { name, source } => NamedFiles {
                files: open_catalog(&source, registry)?,
                name,
                origin: source,
            },
            NamedCatalog::OfCluster(name) => {
                let (cluster, listed) = of_cluster(access, &name)?;
                let files = Reader::new(&cluster, registry).all(&listed)?;
                NamedFiles {
                    files: files.ok_or_else(|| not_served(&name))?,
                    origin: name.clone(),
                    name,
                }
            }
        });
    }
    Ok(found)
}

/// The catalogs that the command line names, each under another name.
fn parsed(arguments: &[String]) -> anyhow::Result<Vec<NamedCatalog>> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for argument in arguments {
        let catalog = NamedCatalog::parse(argument)?;
        let (NamedCatalog::OfCluster(name) | NamedCatalog::Source { name, .. }) = &catalog;
        if !names.insert(name.clone()) {
            bail!("two catalogs are named {name:?}; use NAME=SOURCE to give each its own name");
        }
        found.push(catalog);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_the_nearest_one_or_all() {
        assert_eq!(
            unknown("sampels", &["other", "samples"]),
            "did you mean \"samples\"?"
        );
        assert_eq!(
            unknown("x", &["other", "samples"]),
            "its ClusterCatalogs are other, samples"
        );
        assert_eq!(unknown("x", &[]), "the cluster has no ClusterCatalog");
    }

    #[test]
    fn two_catalogs_of_one_name_are_refused() {
        let arguments = ["./a=b".to_owned(), "one=./x".to_owned(), "one".to_owned()];
        let refused = parsed(&arguments[1..]).unwrap_err().to_string();
        assert!(refused.starts_with("two catalogs are named \"one\""), "{refused}");
    }
}
