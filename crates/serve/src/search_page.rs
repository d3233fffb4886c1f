//! The answer to a search, as JSON and for the pages.

mod facets;

use serde::Serialize;

use crate::package_summary::PackageSummary;
pub(crate) use facets::{Facet, FacetValue, Facets};

/// A package that was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchResult {
    pub(crate) catalog: String,
    pub(crate) catalog_priority: i32,
    #[serde(flatten)]
    pub(crate) facts: PackageSummary,
}

/// A page of what was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SearchPage {
    pub(crate) items: Vec<SearchResult>,
    /// How many there are on all pages.
    pub(crate) total: usize,
    /// What leads to the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// How many are on the pages before.
    #[serde(skip)]
    pub(crate) start: usize,
    /// How many a page holds.
    #[serde(skip)]
    pub(crate) limit: usize,
    /// Where nothing was found, catalogs and packages in them whose names are like what was looked for.
    #[serde(skip)]
    pub(crate) near: Vec<(String, String)>,
    /// How many packages there would be with another value of one filter.
    #[serde(skip)]
    pub(crate) facets: Facets,
}
