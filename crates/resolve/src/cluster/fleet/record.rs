//! A cluster as one document: exactly the facts that affect the choice of bundles.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_api::names::{CLUSTER_INVENTORY, INVENTORY_API_VERSION, annotation, label, user};
use olm_api::object::text;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_constraint::Gvk;
use olm_fbc::Property;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::compatibility::{Dependents, InstalledExtension};
use crate::cluster::inventory::{DependentsError, declared, dependents};

/// The record of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRecord {
    /// [`INVENTORY_API_VERSION`].
    pub api_version: String,
    /// [`CLUSTER_INVENTORY`].
    pub kind: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The version of Kubernetes, as the API server reports it.
    pub kubernetes: String,
    /// The architectures of the nodes; empty if unknown.
    pub architectures: Vec<String>,
    /// The catalogs for extensions without a selector: the flag `--default-catalogs` of operator-controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_catalogs: Vec<String>,
    /// The ClusterCatalogs, by name.
    pub catalogs: Vec<CatalogRecord>,
    /// The ClusterExtensions, by name.
    pub extensions: Vec<ExtensionRecord>,
    /// The kinds that the cluster serves, by group and version: `apps/v1`, for the core `v1`.
    pub apis: BTreeMap<String, BTreeSet<String>>,
}

/// A ClusterCatalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogRecord {
    /// The name.
    pub name: String,
    /// The image in the spec.
    pub image: String,
    /// The served image by digest; none while nothing is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// `spec.priority`; higher wins.
    pub priority: i32,
    /// Whether `spec.availabilityMode` switches it off.
    #[serde(skip_serializing_if = "is_false")]
    pub unavailable: bool,
    /// The labels, including the one with its name.
    pub labels: BTreeMap<String, String>,
}

/// A ClusterExtension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionRecord {
    /// The name.
    pub name: String,
    /// The namespace of the bundle.
    pub namespace: String,
    /// The catalog filter: package, version, channels, selector and policy.
    pub catalog: CatalogFilter,
    /// Whether an annotation pauses it.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Whether an annotation allows it to break its dependents.
    #[serde(skip_serializing_if = "is_false")]
    pub may_break_dependents: bool,
    /// The installed bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<InstalledRecord>,
}

/// An installed bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstalledRecord {
    /// Name, version and release.
    #[serde(flatten)]
    pub bundle: BundleMetadata,
    /// The image.
    pub image: String,
    /// The catalog of the bundle; none if an earlier version of OLM did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// The properties with which it provides and requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<PropertyRecord>,
}

/// A property of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PropertyRecord {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value.
    pub value: Value,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The reason why a document is not the record of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The document has another `apiVersion` or `kind`.
    #[error(
        "apiVersion {api_version:?} and kind {kind:?} are not those of a {CLUSTER_INVENTORY} of {INVENTORY_API_VERSION}"
    )]
    Kind {
        /// The `apiVersion`.
        api_version: String,
        /// The `kind`.
        kind: String,
    },
    /// The document does not name the cluster.
    #[error("the field cluster is empty")]
    NoName,
    /// The fields have other types.
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
}

impl ClusterRecord {
    /// The record in a document.
    ///
    /// # Errors
    /// The document is not a valid record.
    pub fn read(document: Value) -> Result<Self, RecordError> {
        let (api_version, kind) = (text(&document, "/apiVersion"), text(&document, "/kind"));
        if api_version != INVENTORY_API_VERSION || kind != CLUSTER_INVENTORY {
            let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
            return Err(RecordError::Kind { api_version, kind });
        }
        let record: Self = serde_json::from_value(document)?;
        if record.cluster.is_empty() {
            return Err(RecordError::NoName);
        }
        Ok(record)
    }

    /// Whether the cluster serves a kind.
    pub(super) fn serves(&self, api: &Gvk) -> bool {
        let group_version = if api.group.is_empty() {
            api.version.clone()
        } else {
            format!("{}/{}", api.group, api.version)
        };
        self.apis
            .get(&group_version)
            .is_some_and(|kinds| kinds.contains(&api.kind))
    }
}

impl CatalogRecord {
    /// The record of a ClusterCatalog.
    pub fn of(catalog: &ClusterCatalog) -> Self {
        let name = catalog.name().to_owned();
        let mut labels = catalog.metadata.labels.clone().unwrap_or_default();
        labels.insert(label::METADATA_NAME.to_owned(), name.clone());
        let resolved = catalog.status.as_ref();
        let resolved = resolved.and_then(|status| status.resolved_source.as_ref()?.image.as_ref());
        let image = catalog.spec.source.image.as_ref();
        Self {
            name,
            image: image.map(|image| image.reference.clone()).unwrap_or_default(),
            resolved: resolved.map(|image| image.reference.clone()),
            priority: catalog.spec.priority,
            unavailable: catalog.spec.availability_mode == AvailabilityMode::Unavailable,
            labels,
        }
    }
}

impl ExtensionRecord {
    /// The record of a ClusterExtension and its newest revision; `None` if it names no package.
    ///
    /// # Errors
    /// An annotation has an invalid value.
    pub fn of(
        extension: &ClusterExtension,
        newest: Option<&ClusterObjectSet>,
    ) -> Result<Option<Self>, DependentsError> {
        let Some(filter) = &extension.spec.source.catalog else {
            return Ok(None);
        };
        let install = extension.status.as_ref();
        let install = install.and_then(|status| status.install.as_ref());
        let installed = install.map(|install| {
            let properties = newest.map(declared).unwrap_or_default().into_iter();
            let annotated = |key| newest.and_then(|set| set.annotation(key));
            InstalledRecord {
                bundle: install.bundle.clone(),
                image: annotated(annotation::BUNDLE_REFERENCE)
                    .unwrap_or_default()
                    .to_owned(),
                catalog: annotated(annotation::CATALOG).map(str::to_owned),
                properties: properties
                    .map(|(kind, value)| PropertyRecord { kind, value })
                    .collect(),
            }
        });
        Ok(Some(Self {
            name: extension.name().to_owned(),
            namespace: extension.spec.namespace.clone(),
            catalog: filter.clone(),
            paused: extension.annotation(user::PAUSED) == Some("true"),
            may_break_dependents: dependents(extension)? == Dependents::MayBreak,
            installed,
        }))
    }

    /// The extension in the view of other extensions; `None` if nothing is installed.
    pub(super) fn installed_extension(&self) -> Option<InstalledExtension> {
        let installed = self.installed.as_ref()?;
        let properties = installed.properties.iter();
        let properties = properties.map(|one| Property::new(one.kind.clone(), one.value.to_string()));
        let (package, version) = (&self.catalog.package_name, &installed.bundle.version);
        Some(InstalledExtension::new(
            &self.name,
            package,
            version,
            properties.collect(),
        ))
    }
}
