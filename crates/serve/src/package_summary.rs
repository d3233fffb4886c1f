//! What people look for in a catalog: a few facts of each package, out of its blobs.

mod collector;
mod metadata;
mod relevance;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub(crate) use collector::Collector;
pub(crate) use metadata::CsvMetadata;
pub use relevance::SearchPlace;

/// A package in short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageSummary {
    /// Its name.
    pub name: String,
    /// What its newest bundle calls it.
    pub display_name: String,
    /// One sentence or two.
    pub summary: String,
    /// The provider's name.
    pub provider: String,
    /// Words under which it is found.
    pub keywords: Vec<String>,
    /// What kind of thing it is.
    pub categories: Vec<String>,
    /// APIs that any of its bundles provides.
    pub provided_apis: BTreeSet<Api>,
    /// Its channels.
    pub channels: BTreeSet<String>,
    /// The channel that is meant when none is named.
    pub default_channel: String,
    /// The highest version of its bundles.
    pub latest_version: String,
    /// How many bundles it has.
    pub bundles: u64,
    /// Why the package as a whole is deprecated; empty when it is not.
    pub deprecated: String,
    /// Where its newest bundle can watch: `OwnNamespace`, `AllNamespaces` and so on.
    pub install_modes: Vec<String>,
    /// How much its newest bundle automates, in the publisher's words, such as `Deep Insights`; often empty.
    pub capability: String,
    /// Whether the catalog has a picture of it that browsers can show.
    pub icon: bool,
}

/// An API that a bundle provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Api {
    /// Its group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
}

impl PackageSummary {
    /// The packages of a catalog, by name.
    pub fn of_catalog(catalog: &olm_fbc::Catalog) -> Vec<Self> {
        Collector::summaries(catalog)
    }
}
