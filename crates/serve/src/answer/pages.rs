//! The pages for people, over HTTP.

use std::error::Error;

use http::request::Parts;
use http::{Response, StatusCode};

use super::problem::{Refusal, refuse};
use super::query::parameters;
use super::{App, Body, document};
use crate::site::{self, HTML};

impl App {
    /// The first page, with what is searched for.
    pub(super) async fn home(&self, request: &Parts) -> Result<Response<Body>, Refusal> {
        let query = request.uri.query();
        let finds = self.find(query).await?;
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
        let page = site::home(&words.unwrap_or_default(), &rest.join("&"), &finds, catalogs);
        Ok(shown(page.into_string(), request))
    }

    /// The page of a package.
    pub(super) async fn package(
        &self,
        request: &Parts,
        catalog: &str,
        package: &str,
    ) -> Result<Response<Body>, Refusal> {
        let snapshot = self.served(catalog)?;
        let name = package.to_owned();
        let page = self.turns.run(move || {
            let package = site::Package::read(&snapshot, &name)?;
            Ok(package.map(|package| site::package(&package).into_string()))
        });
        match page.await? {
            Ok(Some(page)) => Ok(shown(page, request)),
            Ok(None) => Err(refuse(StatusCode::NOT_FOUND)
                .because(format!("catalog `{catalog}` has no package `{package}`"))),
            Err(error) => Err(super::failed(catalog, &error as &dyn Error)),
        }
    }
}

fn shown(page: String, request: &Parts) -> Response<Body> {
    let mut response = document::of(HTML, page.into_bytes(), &request.headers);
    site::protect(response.headers_mut());
    response
}
