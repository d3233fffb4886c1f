//! The answer to a search, as JSON and for the pages.

use serde::Serialize;

use crate::package_summary::PackageSummary;

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
    /// Where nothing was found, catalogs and packages in them whose names are like what was looked for.
    #[serde(skip)]
    pub(crate) near: Vec<(String, String)>,
}
