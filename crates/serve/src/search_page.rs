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

/// A page of results.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SearchPage {
    pub(crate) items: Vec<SearchResult>,
    /// The number of results on all pages.
    pub(crate) total: usize,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The number of results on the pages before.
    #[serde(skip)]
    pub(crate) start: usize,
    /// The maximum number of results on a page.
    #[serde(skip)]
    pub(crate) limit: usize,
    /// If nothing was found: catalogs and packages in them with similar names.
    #[serde(skip)]
    pub(crate) near: Vec<(String, String)>,
    /// The number of packages for other values of each filter.
    #[serde(skip)]
    pub(crate) facets: Facets,
}
