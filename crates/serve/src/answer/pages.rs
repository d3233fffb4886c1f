//! The HTML pages, over HTTP.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};

use olm_api::text::escape_lines;

use super::conditional::{self, Precondition};
use super::problem::{ErrorResponse, accepts, set};
use super::query::parameters;
use super::route::PackagePage;
use super::search::PARAMETERS;
use super::{App, document};
use crate::body::Body;
use crate::site::{self, ATOM, HTML, Package, QueryParameters};
use crate::store::Snapshot;

impl App {
    /// The start page, with the results of a search.
    pub(super) async fn home(&self, request: &Parts) -> Result<Response<Body>, ErrorResponse> {
        let query = request.uri.query();
        let found = self.find_for_people(query).await?;
        // The search has accepted the query, so it can be read.
        let given = parameters(query, PARAMETERS).unwrap_or_default();
        let given = PARAMETERS.into_iter().zip(given);
        let parameters = QueryParameters::new(given.filter_map(|(key, value)| Some((key, value?))));
        let catalogs = self.store.snapshots().len();
        let page = site::home(&parameters, &found, catalogs);
        Ok(shown(HTML, &page.into_string(), request))
    }

    /// A page of a package.
    pub(super) async fn package(
        &self,
        request: &Parts,
        catalog: &str,
        package: &str,
        page: &PackagePage,
    ) -> Result<Response<Body>, ErrorResponse> {
        let snapshot = self.served(catalog)?;
        let missing = || match page {
            PackagePage::Version(bundle) => {
                format!("package `{package}` of catalog `{catalog}` has no bundle `{bundle}`")
            }
            _ => format!("catalog `{catalog}` has no package `{package}`"),
        };
        let name = package.to_owned();
        let (media, render): (_, fn(&Package) -> String) = match page {
            PackagePage::About => (HTML, |of| site::package(of).into_string()),
            PackagePage::Versions => (HTML, |of| site::versions(of).into_string()),
            PackagePage::Version(_) => (HTML, |of| site::version(of).into_string()),
            PackagePage::Feed => (ATOM, site::feed),
            PackagePage::Icon => return self.icon(request, snapshot, name, missing()).await,
        };
        let bundle = match page {
            PackagePage::Version(bundle) => Some(bundle.clone()),
            _ => None,
        };
        let text = self.workers.run(move || {
            let package = Package::read(&snapshot, &name, bundle.as_deref())?;
            Ok(package.as_ref().map(render))
        });
        match text.await? {
            Ok(Some(text)) => Ok(shown(media, &text, request)),
            Ok(None) => {
                let near = match page {
                    PackagePage::About | PackagePage::Versions if accepts(&request.headers, "text/html") => {
                        self.near(package).await
                    }
                    _ => Vec::new(),
                };
                Err(ErrorResponse::of(StatusCode::NOT_FOUND)
                    .because(missing())
                    .near(near))
            }
            Err(error) => Err(super::failed(catalog, &error as &dyn Error)),
        }
    }

    /// The icon of a package.
    async fn icon(
        &self,
        request: &Parts,
        snapshot: Arc<Snapshot>,
        package: String,
        missing: String,
    ) -> Result<Response<Body>, ErrorResponse> {
        let etag = format!("\"{}-icon\"", snapshot.record().digest);
        let catalog = snapshot.record().catalog.clone();
        let mut response =
            if conditional::evaluate_tag(&request.headers, &etag) == Precondition::NotModified {
                let mut response = Response::new(Body::default());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            } else {
                let icon = self.workers.run(move || Ok(site::icon(&snapshot, &package)?));
                match icon.await? {
                    Ok(Some((media, bytes))) => {
                        let mut response = Response::new(Body::from(Bytes::from(bytes)));
                        response
                            .headers_mut()
                            .insert(CONTENT_TYPE, HeaderValue::from_static(media));
                        response
                    }
                    Ok(None) => {
                        return Err(ErrorResponse::of(StatusCode::NOT_FOUND)
                            .because(format!("{missing} with an icon")));
                    }
                    Err(error) => return Err(super::failed(&catalog, &error as &dyn Error)),
                }
            };
        let headers = response.headers_mut();
        set(headers, ETAG, &etag);
        set(headers, CACHE_CONTROL, "max-age=300");
        site::protect_icon(headers);
        Ok(response)
    }
}

/// The response with a page. No template writes control, bidirectional or invisible characters itself: those in the
/// text of the page come from a catalog or a request.
fn shown(media: &'static str, page: &str, request: &Parts) -> Response<Body> {
    let mut response = document::of(
        media,
        escape_lines(page).into_owned().into_bytes(),
        &request.headers,
    );
    site::protect(response.headers_mut());
    response
}
