//! The HTML pages, over HTTP.

use std::error::Error;

use http::request::Parts;
use http::{Response, StatusCode};

use olm_api::text::escape_lines;

use super::problem::ErrorResponse;
use super::query::parameters;
use super::{App, document};
use crate::body::Body;
use crate::site::{self, HTML};

impl App {
    /// The start page, with the results of a search.
    pub(super) async fn home(&self, request: &Parts) -> Result<Response<Body>, ErrorResponse> {
        let query = request.uri.query();
        let page = self.find(query).await?;
        // The search has accepted the query, so it can be read.
        let known = [
            "q", "name", "keyword", "api", "category", "catalog", "limit", "cursor",
        ];
        let [words, ..] = parameters(query, known).unwrap_or_default();
        let rest: Vec<&str> = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.starts_with("cursor=") && !pair.is_empty())
            .collect();
        let catalogs = self.store.snapshots().len();
        let page = site::home(&words.unwrap_or_default(), &rest.join("&"), &page, catalogs);
        Ok(shown(&page.into_string(), request))
    }

    /// The page of a package.
    pub(super) async fn package(
        &self,
        request: &Parts,
        catalog: &str,
        package: &str,
    ) -> Result<Response<Body>, ErrorResponse> {
        let snapshot = self.served(catalog)?;
        let name = package.to_owned();
        let page = self.workers.run(move || {
            let package = site::Package::read(&snapshot, &name)?;
            Ok(package.map(|package| site::package(&package).into_string()))
        });
        match page.await? {
            Ok(Some(page)) => Ok(shown(&page, request)),
            Ok(None) => Err(ErrorResponse::of(StatusCode::NOT_FOUND)
                .because(format!("catalog `{catalog}` has no package `{package}`"))),
            Err(error) => Err(super::failed(catalog, &error as &dyn Error)),
        }
    }
}

/// The response with a page. No template writes control, bidirectional or invisible characters itself: those in the text
/// of the page come from a catalog or a request.
fn shown(page: &str, request: &Parts) -> Response<Body> {
    let mut response = document::of(
        HTML,
        escape_lines(page).into_owned().into_bytes(),
        &request.headers,
    );
    site::protect(response.headers_mut());
    response
}
