//! `olm search`, and what it has in common with `olm show`.

mod publisher;
pub(crate) mod show;
mod versions;

use std::collections::{BTreeSet, HashMap};

use anyhow::anyhow;
use clap::Args;
use olm_api::object::{self, list};
use olm_fbc::property::{TYPE_CSV_METADATA, TYPE_GVK};
use olm_fbc::similar::nearest;
use olm_fbc::{Bundle, Catalog, SCHEMA_BUNDLE, SCHEMA_CHANNEL, graph};
use olm_platform::client::ClientError;
use olm_serve::{PackageSummary, SearchPlace};
use olm_version::VersionRelease;
use serde_json::{Value, json};

use self::publisher::Publisher;
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster;
use crate::extension::cluster::catalogs::{WholeCatalog, no_catalog, whole_catalogs_of};
use crate::hint::Hint;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
pub(crate) struct Sources {
    /// Catalog to look into: the name of a ClusterCatalog, or a source as SOURCE or NAME=SOURCE; may be repeated
    /// [default: the catalogs of the cluster, through its API server]
    #[arg(long = "catalog", value_name = "CATALOG")]
    catalogs: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

impl Sources {
    fn load(&self) -> anyhow::Result<Vec<WholeCatalog>> {
        if !self.catalogs.is_empty() {
            return whole_catalogs_of(&self.catalogs, &self.registry, &self.cluster);
        }
        let cluster = Cluster::reach(&self.cluster).map_err(without_cluster)?;
        let found = cluster.whole_catalogs(&self.registry)?;
        if found.is_empty() {
            return Err(no_catalog());
        }
        Ok(found)
    }
}

/// Adds to the error that there is no kubeconfig what needs none.
fn without_cluster(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ClientError::Missing(_)) => error.context(Hint(
            "without a cluster, set --catalog to the image or the directory of a catalog".to_owned(),
        )),
        _ => error,
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  olm search\n  olm search database\n  olm search --catalog registry.example/catalogs/mine:latest database"
)]
pub(crate) struct SearchArguments {
    /// Words to look for in names, summaries, providers, keywords, categories and provided APIs; a package has to have
    /// them all. The most relevant package comes first; of equally relevant ones, that of the catalog with the higher
    /// `spec.priority` [default: all packages]
    words: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
}

/// The metadata of a package: its newest version, the rest from the head of its default channel.
pub(crate) struct PackageMetadata {
    pub(crate) name: String,
    pub(crate) default_channel: String,
    pub(crate) description: String,
    pub(crate) display_name: String,
    publisher: Publisher,
    pub(crate) version: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) apis: Vec<String>,
    pub(crate) channels: Vec<(String, String)>,
    pub(crate) deprecated: Vec<String>,
}

/// The packages of a catalog, by name.
pub(crate) fn packages(catalog: &Catalog) -> Vec<PackageMetadata> {
    let newest = newest_versions(catalog);
    let packages = catalog.packages.iter();
    let mut packages: Vec<PackageMetadata> = packages
        .map(|package| about(catalog, package, newest.get(package.name.as_str())))
        .collect();
    packages.sort_by(|left, right| left.name.cmp(&right.name));
    packages
}

/// The package of that name, if the catalog has it.
fn package(catalog: &Catalog, name: &str) -> Option<PackageMetadata> {
    let found = catalog.packages.iter().find(|package| package.name == name)?;
    Some(about(catalog, found, newest_versions(catalog).get(name)))
}

/// The newest version of each package, of all its channels.
fn newest_versions(catalog: &Catalog) -> HashMap<&str, VersionRelease> {
    let mut newest: HashMap<&str, VersionRelease> = HashMap::new();
    for bundle in &catalog.bundles {
        let Ok(version) = bundle.version_release() else {
            continue;
        };
        let known = newest.get(bundle.package.as_str());
        if known.is_none_or(|known| known.compare(&version).is_lt()) {
            newest.insert(&bundle.package, version);
        }
    }
    newest
}

fn about(catalog: &Catalog, package: &olm_fbc::Package, version: Option<&VersionRelease>) -> PackageMetadata {
    let of_package = |name: &str| {
        catalog
            .bundles
            .iter()
            .find(|bundle| bundle.package == package.name && bundle.name == name)
    };
    let mut channels: Vec<(String, String)> = catalog
        .channels
        .iter()
        .filter(|channel| channel.package == package.name)
        .map(|channel| {
            let head = match graph::head(&channel.entries) {
                Ok(head) => head.name.clone(),
                Err(error) => format!("ERROR: {error}"),
            };
            (channel.name.clone(), head)
        })
        .collect();
    channels.sort();
    let head = channels
        .iter()
        .find(|(name, _)| *name == package.default_channel)
        .and_then(|(_, head)| of_package(head));
    let csv = head.map(described).unwrap_or_default();
    let text = |pointer: &str| object::text(&csv, pointer).to_owned();
    let texts = |pointer: &str| -> Vec<String> {
        let values = list(&csv, pointer).iter().filter_map(Value::as_str);
        values.map(str::to_owned).collect()
    };
    let deprecated = catalog
        .deprecations
        .iter()
        .filter(|deprecations| deprecations.package == package.name)
        .flat_map(|deprecations| &deprecations.entries)
        .map(|entry| match entry.reference.schema.as_str() {
            SCHEMA_CHANNEL => format!("channel {}: {}", entry.reference.name, entry.message),
            SCHEMA_BUNDLE => format!("bundle {}: {}", entry.reference.name, entry.message),
            _ => format!("package: {}", entry.message),
        })
        .collect();
    PackageMetadata {
        name: package.name.clone(),
        default_channel: package.default_channel.clone(),
        description: package.description.clone(),
        display_name: text("/displayName"),
        publisher: Publisher::of(&csv),
        version: version.map(ToString::to_string).unwrap_or_default(),
        keywords: texts("/keywords"),
        categories: text("/annotations/categories")
            .split(',')
            .map(|category| category.trim().to_owned())
            .filter(|category| !category.is_empty())
            .collect(),
        apis: head.map(apis).unwrap_or_default(),
        channels,
        deprecated,
    }
}

/// The APIs that a bundle provides, `GROUP/VERSION/KIND`.
fn apis(bundle: &Bundle) -> Vec<String> {
    let properties = bundle.properties.iter();
    let kinds = properties.filter(|property| property.kind == TYPE_GVK);
    let apis: BTreeSet<String> = kinds
        .filter_map(|property| property.gvk().ok())
        .map(|gvk| format!("{}/{}/{}", gvk.group, gvk.version, gvk.kind))
        .collect();
    apis.into_iter().collect()
}

/// The metadata in the bundle's `ClusterServiceVersion`, in the form of the property.
fn described(bundle: &Bundle) -> Value {
    let mut catalog = Catalog {
        bundles: vec![bundle.clone()],
        ..Catalog::default()
    };
    olm_author::migrate::migrate(
        &mut catalog,
        olm_author::migrate::Level::BundleObjectToCsvMetadata,
    );
    catalog
        .bundles
        .iter()
        .flat_map(|bundle| &bundle.properties)
        .find(|property| property.kind == TYPE_CSV_METADATA)
        .and_then(|property| serde_json::from_str(&property.value).ok())
        .unwrap_or_default()
}

impl PackageMetadata {
    fn json(&self, catalog: &str) -> Value {
        let channels: Vec<Value> = self
            .channels
            .iter()
            .map(|(name, head)| json!({"name": name, "head": head}))
            .collect();
        let mut all = json!({
            "catalog": catalog,
            "package": self.name,
            "displayName": self.display_name,
            "version": self.version,
            "defaultChannel": self.default_channel,
            "channels": channels,
            "keywords": self.keywords,
            "categories": self.categories,
            "apis": self.apis,
            "deprecations": self.deprecated,
            "description": self.description,
        });
        if let Some(all) = all.as_object_mut() {
            all.extend(self.publisher.json());
        }
        all
    }
}

pub(crate) fn search(arguments: &SearchArguments) -> CommandResult {
    let catalogs = arguments.sources.load()?;
    let found = ranked(&arguments.words, &catalogs);
    let packages = found.iter().map(|(_, package)| package.name.clone());
    arguments
        .output
        .print(&values(&found), packages, || match found.as_slice() {
            [] => String::new(),
            found => rows(found),
        })?;
    if found.is_empty() {
        let error = anyhow!(match arguments.words.as_slice() {
            [] => "the catalogs have no package",
            _ => "no package has all of these words",
        });
        let mut words = arguments.words.iter();
        let meant = words.find_map(|word| nearest(word, names(&catalogs)));
        return Err(match meant {
            Some(meant) => error.context(Hint(format!("did you mean {meant:?}?"))),
            None => error,
        });
    }
    Ok(Status::Success)
}

/// The packages that have all words, with the names of their catalogs, in the order of the catalog server's search.
fn ranked(words: &[String], catalogs: &[WholeCatalog]) -> Vec<(String, PackageMetadata)> {
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let words: Vec<&str> = words.iter().flat_map(|words| words.split_whitespace()).collect();
    let mut found = Vec::new();
    for catalog in catalogs {
        let summaries = PackageSummary::of_catalog(&catalog.catalog);
        let ranks: HashMap<&str, u32> = summaries
            .iter()
            .filter_map(|facts| Some((facts.name.as_str(), facts.relevance(words.iter().copied())?)))
            .collect();
        let packages = packages(&catalog.catalog).into_iter();
        found.extend(
            packages.filter_map(|package| Some((*ranks.get(package.name.as_str())?, catalog, package))),
        );
    }
    found.sort_by(|left, right| place(left).cmp(&place(right)));
    let found = found.into_iter();
    found
        .map(|(_, catalog, package)| (catalog.name.clone(), package))
        .collect()
}

fn place<'a>((rank, catalog, package): &'a (u32, &WholeCatalog, PackageMetadata)) -> SearchPlace<'a> {
    SearchPlace::new(*rank, &package.name, &catalog.name, catalog.priority)
}

/// The packages with the names of their catalogs, for programs.
fn values(found: &[(String, PackageMetadata)]) -> Vec<Value> {
    let found = found.iter();
    found.map(|(catalog, package)| package.json(catalog)).collect()
}

/// The packages with the names of their catalogs, as a table.
fn rows(found: &[(String, PackageMetadata)]) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(catalog, package)| {
            vec![
                catalog.clone(),
                package.name.clone(),
                package.display_name.clone(),
                package.version.clone(),
                package.default_channel.clone(),
            ]
        })
        .collect();
    table(
        &["CATALOG", "PACKAGE", "DISPLAY NAME", "VERSION", "DEFAULT CHANNEL"],
        &rows,
    )
}

/// The names of all packages.
fn names(catalogs: &[WholeCatalog]) -> impl Iterator<Item = &str> + Clone {
    let packages = catalogs.iter().flat_map(|catalog| &catalog.catalog.packages);
    packages.map(|package| package.name.as_str())
}
