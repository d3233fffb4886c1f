//! Answers requests.
//!
//! Statuses, bodies and headers of `all`, `metas` and `graphql` are those of the reference implementation. Entity tags,
//! lengths, ranges, pages and problem details (RFC 9457) are additions, and so are the other endpoints.

mod catalogs;
mod coding;
mod conditional;
mod content;
mod date;
mod document;
mod graphql;
mod observe;
mod pages;
mod problem;
mod query;
mod range;
mod route;
mod search;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use olm_api::serving::{DIGEST_HEADER, Endpoint, IMAGE_HEADER};

pub use observe::{Access, Observer};

use crate::body::Body;
use crate::store::{Lookup, Snapshot, Store};
use observe::ObservedBody;
use problem::{ErrorResponse, not_here_yet};
use route::Route;

/// The body of every response; it notifies the [`Observer`] at its end.
pub type ResponseBody = ObservedBody;

/// The optional endpoints; a disabled one answers 404.
#[derive(Debug, Clone, Copy)]
pub struct Endpoints {
    /// `metas`.
    pub metas: bool,
    /// `graphql`.
    pub graphql: bool,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            metas: true,
            graphql: true,
        }
    }
}

/// The timeout for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the priority of a catalog, if it has one.
type Priorities = Box<dyn Fn(&str) -> Option<i32> + Send + Sync>;
/// Returns the names of all catalogs that should be served.
type Names = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Answers requests from a store.
pub struct App {
    store: Arc<Store>,
    endpoints: Endpoints,
    observer: Option<Box<dyn Observer>>,
    priorities: Priorities,
    names: Names,
    body_timeout: Duration,
    workers: graphql::Workers,
}

impl App {
    /// Serves the catalogs of the store.
    pub fn new(store: Arc<Store>, endpoints: Endpoints) -> Self {
        Self {
            store,
            endpoints,
            observer: None,
            priorities: Box::new(|_| None),
            names: Box::new(Vec::new),
            body_timeout: BODY_TIMEOUT,
            workers: graphql::Workers::default(),
        }
    }

    /// Calls the observer at the end of every response.
    #[must_use]
    pub fn observed_by(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the source of catalog priorities; without one a catalog has priority 0.
    #[must_use]
    pub fn with_priorities(mut self, of: impl Fn(&str) -> Option<i32> + Send + Sync + 'static) -> Self {
        self.priorities = Box::new(of);
        self
    }

    /// Sets the source of catalog names: the list also shows catalogs without content.
    #[must_use]
    pub fn with_names(mut self, names: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        self.names = Box::new(names);
        self
    }

    /// Limits the time that a client may take to send the body of a request.
    #[must_use]
    pub fn with_body_timeout(mut self, body_timeout: Duration) -> Self {
        self.body_timeout = body_timeout;
        self
    }

    /// Answers one request. Reads its body only for GraphQL, up to a limit in bytes and time.
    pub async fn respond<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (parts, body) = request.into_parts();
        let route = route::find(parts.uri.path(), self.endpoints);
        let access = Access::begin(&parts, route.label(), peer);
        let answer = self.answer(&parts, body, &route).await;
        self.finish(&parts, &route, access, answer.unwrap_or_else(Response::from))
    }

    /// Answers a request that the caller rejects, in the form of all errors, and reports it to the observer.
    pub fn reject<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
        status: StatusCode,
        why: &str,
    ) -> Response<ResponseBody> {
        let (parts, _) = request.into_parts();
        let route = route::find(parts.uri.path(), self.endpoints);
        let access = Access::begin(&parts, route.label(), peer);
        self.finish(&parts, &route, access, ErrorResponse::new(status, why).into())
    }

    fn finish(
        self: &Arc<Self>,
        parts: &Parts,
        route: &Route,
        access: Access,
        mut response: Response<Body>,
    ) -> Response<ResponseBody> {
        if route.is_for_people() {
            problem::page(&mut response, &parts.headers, route.package());
        }
        problem::detail(&mut response, &parts.headers, route.detail());
        response
            .headers_mut()
            .append(VARY, HeaderValue::from_static("Accept-Encoding"));
        if parts.method == Method::HEAD {
            if response.status() != StatusCode::NOT_MODIFIED
                && !response.headers().contains_key(CONTENT_LENGTH)
            {
                let length = HeaderValue::from(response.body().remaining());
                response.headers_mut().insert(CONTENT_LENGTH, length);
            }
            *response.body_mut() = Body::default();
        }
        access.watch(response, Arc::clone(self))
    }

    async fn answer<B>(
        &self,
        request: &Parts,
        body: B,
        route: &Route,
    ) -> Result<Response<Body>, ErrorResponse>
    where
        B: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        match route {
            Route::Elsewhere(target) => return Ok(redirect(request, target)),
            Route::Unknown => return Err(ErrorResponse::new(StatusCode::NOT_FOUND, "404 page not found")),
            _ => {}
        }
        if !route.methods().contains(&request.method) {
            let methods: Vec<&str> = route.methods().iter().map(Method::as_str).collect();
            let refused = ErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
            return Err(refused.with(ALLOW, &methods.join(", ")));
        }
        match route {
            Route::Catalog { catalog, endpoint } => {
                let answer = match endpoint {
                    Endpoint::All => self.all(request, catalog),
                    Endpoint::Metas => self.metas(request, catalog).await,
                    Endpoint::Graphql => self.graphql(request, body, catalog).await,
                };
                answer.map(|(snapshot, mut response)| {
                    let digest = format!("sha256:{}", snapshot.record().digest);
                    let headers = response.headers_mut();
                    problem::set(headers, HeaderName::from_static(DIGEST_HEADER), &digest);
                    // Content of a directory has no image.
                    if let Some((_, image)) = snapshot.record().origin.resolved.split_once('@') {
                        problem::set(headers, HeaderName::from_static(IMAGE_HEADER), image);
                    }
                    response
                })
            }
            Route::Catalogs => Ok(self.catalogs(&request.headers)),
            Route::Search => self.search(request).await,
            Route::Home => self.home(request).await,
            Route::Package {
                catalog,
                package,
                page,
            } => self.package(request, catalog, package, page).await,
            Route::Favicon => Ok(document::fixed(&document::FAVICON, &request.headers)),
            Route::Style => Ok(document::fixed(&document::STYLE, &request.headers)),
            Route::OpenApi => Ok(document::fixed(&document::OPENAPI, &request.headers)),
            Route::FbcSchema => Ok(document::fixed(&document::FBC_SCHEMA, &request.headers)),
            Route::Elsewhere(_) | Route::Unknown => Err(ErrorResponse::of(StatusCode::NOT_FOUND)),
        }
    }

    fn all(&self, request: &Parts, catalog: &str) -> Result<(Arc<Snapshot>, Response<Body>), ErrorResponse> {
        let snapshot = self.served(catalog)?;
        let response = content::all(&snapshot, &request.headers);
        Ok((snapshot, response))
    }

    async fn metas(
        &self,
        request: &Parts,
        catalog: &str,
    ) -> Result<(Arc<Snapshot>, Response<Body>), ErrorResponse> {
        let metas = query::parse(request.uri.query())?;
        let snapshot = self.served(catalog)?;
        let response = content::metas(&snapshot, &metas, &request.headers)
            .await
            .map_err(|error| failed(catalog, &error))?;
        Ok((snapshot, response))
    }

    async fn graphql<B>(
        &self,
        request: &Parts,
        body: B,
        catalog: &str,
    ) -> Result<(Arc<Snapshot>, Response<Body>), ErrorResponse>
    where
        B: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        check_name(catalog)?;
        let graphql = graphql::read(body, self.body_timeout).await?;
        let snapshot = self.served(catalog)?;
        let headers = &request.headers;
        let response = self
            .workers
            .answer(graphql, Arc::clone(&snapshot), headers)
            .await?
            .map_err(|error| failed(catalog, &error))?;
        Ok((snapshot, response))
    }

    fn served(&self, catalog: &str) -> Result<Arc<Snapshot>, ErrorResponse> {
        check_name(catalog)?;
        match self.store.get(catalog) {
            Lookup::Served(snapshot) => Ok(snapshot),
            Lookup::Expected => Err(not_here_yet()),
            Lookup::Unknown => Err(ErrorResponse::of(StatusCode::NOT_FOUND)
                .because(format!("no catalog is served as `{catalog}`"))),
        }
    }
}

fn check_name(catalog: &str) -> Result<(), ErrorResponse> {
    let faults = olm_text::names::subdomain_faults(catalog);
    if faults.is_empty() {
        return Ok(());
    }
    let text = format!("invalid catalog name: {}", faults.join("; "));
    Err(ErrorResponse::new(StatusCode::BAD_REQUEST, text))
}

fn failed(what: &str, error: &dyn std::error::Error) -> ErrorResponse {
    tracing::error!(what, %error, "cannot answer a request");
    ErrorResponse::of(StatusCode::INTERNAL_SERVER_ERROR)
        .because("the server cannot read its stored content; see its log")
}

fn redirect(request: &Parts, target: &str) -> Response<Body> {
    let target = match request.uri.query() {
        Some(query) if target.contains('?') => format!("{target}&{query}"),
        Some(query) => format!("{target}?{query}"),
        None => target.to_owned(),
    };
    let mut headers = HeaderMap::new();
    if let Ok(location) = HeaderValue::from_str(&target) {
        headers.insert(LOCATION, location);
    }
    let mut body = Body::default();
    if matches!(request.method, Method::GET | Method::HEAD) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        body = Body::from(format!(
            "<a href=\"{}\">Temporary Redirect</a>.\n\n",
            route::escape_html(&target)
        ));
    }
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    *response.headers_mut() = headers;
    response
}
