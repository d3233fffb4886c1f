//! Package summaries for the search: a few facts of each package, from its blobs.

mod collector;
mod metadata;
mod relevance;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub(crate) use collector::{Collector, first_paragraph};
pub(crate) use metadata::CsvMetadata;
pub use relevance::SearchPlace;

/// A package in short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageSummary {
    /// The name.
    pub name: String,
    /// The display name in its newest bundle.
    pub display_name: String,
    /// A summary of one or two sentences.
    pub summary: String,
    /// The provider's name.
    pub provider: String,
    /// Keywords for the search.
    pub keywords: Vec<String>,
    /// The categories.
    pub categories: Vec<String>,
    /// APIs that any of its bundles provides.
    pub provided_apis: BTreeSet<Api>,
    /// The channels.
    pub channels: BTreeSet<String>,
    /// The channel that is meant when none is named.
    pub default_channel: String,
    /// The highest version of its bundles.
    pub latest_version: String,
    /// The number of its bundles.
    pub bundles: u64,
    /// The reason why the package as a whole is deprecated; empty if it is not.
    pub deprecated: String,
    /// The install modes of its newest bundle: `OwnNamespace`, `AllNamespaces` and so on.
    pub install_modes: Vec<String>,
    /// The capability level of its newest bundle, in the publisher's words, such as `Deep Insights`; often empty.
    pub capability: String,
    /// The day on which its newest bundle was made, such as `2026-01-21`; empty if the bundle does not say.
    pub created: String,
    /// Whether the catalog has a picture of it that browsers can show.
    pub icon: bool,
}

/// An API that a bundle provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Api {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl PackageSummary {
    /// The packages of a catalog, by name.
    pub fn of_catalog(catalog: &olm_fbc::Catalog) -> Vec<Self> {
        Collector::summaries(catalog)
    }
}
