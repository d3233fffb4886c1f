//! ClusterCatalog: an image of file-based catalogs, unpacked and served on the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

crate::kind::kind! {
    /// A catalog image, unpacked and served by catalogd.
    ClusterCatalog, "clustercatalogs", ClusterCatalogSpec, ClusterCatalogStatus
}

/// The image, priority and availability of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCatalogSpec {
    /// The source of the catalog.
    pub source: CatalogSource,
    /// Catalogs of higher priority win when several offer the best bundle.
    pub priority: i32,
    /// Whether the catalog is served.
    pub availability_mode: AvailabilityMode,
}

/// Whether a catalog is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AvailabilityMode {
    /// The catalog is not served and not used for resolution.
    Unavailable,
    /// The catalog is served.
    #[default]
    Available,
}

/// The kinds of source a catalog can come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceType {
    /// An image in a registry.
    #[default]
    Image,
}

/// The source of a catalog: a union over `type`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogSource {
    /// The member that is set.
    #[serde(rename = "type")]
    pub source_type: SourceType,
    /// Present exactly when `type` is `Image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
}

/// A catalog image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSource {
    /// A fully qualified reference by tag or digest.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The minutes between two polls of the tag; absent: one poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_interval_minutes: Option<i64>,
}

/// The state of the catalog.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCatalogStatus {
    /// The generation of the object that the conditions are about; -1, by the schema's default, before the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// See [`crate::conditions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The content that is served, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<ResolvedCatalogSource>,
    /// The addresses of the catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<CatalogUrls>,
    /// The time when that content was unpacked, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_unpacked: Option<Time>,
}

/// The content that is served: a union over `type`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolvedCatalogSource {
    /// The member that is set.
    #[serde(rename = "type")]
    pub source_type: SourceType,
    /// Present exactly when `type` is `Image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ResolvedImageSource>,
}

/// A catalog image pinned to its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolvedImageSource {
    /// A fully qualified reference by digest.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// The addresses of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogUrls {
    /// The address that [`crate::serving`] builds the endpoints on.
    pub base: String,
}
