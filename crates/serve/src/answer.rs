//! From request to response.
//!
//! Statuses, bodies and headers of `all` and `metas` are those that clients of the reference implementation know;
//! entity tags, lengths and ranges over all of it are added.

mod body;
mod coding;
mod conditional;
mod content;
mod date;
mod graphql;
pub(crate) mod name;
mod observe;
mod query;
mod range;
mod route;

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use olm_api::serving::Endpoint;

pub use body::Body;
pub(crate) use body::Part;
pub(crate) use coding::Coding;
pub use observe::{Access, Observer};
pub use query::Filter;

use crate::store::{Lookup, Store};
use observe::Watched;
use route::Route;

/// The body of every response: it tells the [`Observer`] when it ends.
pub type ResponseBody = Watched;

/// Which endpoints answer; one that is off looks as if it did not exist.
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

/// Answers requests out of a store.
pub struct App {
    store: Arc<Store>,
    endpoints: Endpoints,
    observer: Option<Box<dyn Observer>>,
    queries: graphql::Turns,
}

impl App {
    /// Serves what is in the store.
    pub fn new(store: Arc<Store>, endpoints: Endpoints) -> Self {
        Self {
            store,
            endpoints,
            observer: None,
            queries: graphql::Turns::default(),
        }
    }

    /// Has every request reported when its answer ends.
    #[must_use]
    pub fn observed_by(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Answers one request. Its body is read where there is a use for it, up to a limit in bytes and time.
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
        let mut response = self.answer(&parts, body, &route).await;
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

    async fn answer<B>(&self, request: &http::request::Parts, body: B, route: &Route) -> Response<Body>
    where
        B: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (catalog, endpoint) = match route {
            Route::Unclean(clean) => return redirect(request, clean),
            Route::Unknown => return problem(StatusCode::NOT_FOUND, "404 page not found"),
            Route::Catalog { catalog, endpoint } => (catalog, *endpoint),
        };
        if !allowed(endpoint).contains(&request.method) {
            return not_allowed(endpoint);
        }
        let filter = match endpoint {
            Endpoint::Metas => match query::parse(request.uri.query()) {
                Ok(filter) => filter,
                Err(_) => return problem(StatusCode::BAD_REQUEST, "400 Bad Request"),
            },
            _ => Filter::default(),
        };
        let faults = name::faults(catalog);
        if !faults.is_empty() {
            return problem(
                StatusCode::BAD_REQUEST,
                &format!("invalid catalog name: {}", faults.join("; ")),
            );
        }
        let question = match endpoint {
            Endpoint::Graphql => match graphql::read(body).await {
                Ok(question) => Some(question),
                Err(refusal) => return refusal,
            },
            Endpoint::All | Endpoint::Metas => None,
        };
        let snapshot = match self.store.get(catalog) {
            Lookup::Served(snapshot) => snapshot,
            Lookup::Expected => return not_here_yet(),
            Lookup::Unknown => return problem(StatusCode::NOT_FOUND, "404 Not Found"),
        };
        let answer = match (endpoint, question) {
            (Endpoint::Graphql, Some(question)) => {
                self.queries.answer(question, snapshot, &request.headers).await
            }
            (Endpoint::Metas, _) => content::metas(&snapshot, &filter, &request.headers).await,
            _ => Ok(content::all(&snapshot, &request.headers)),
        };
        answer.unwrap_or_else(|error| {
            tracing::error!(catalog, %error, "cannot answer");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        })
    }
}

/// The methods that an endpoint knows.
fn allowed(endpoint: Endpoint) -> &'static [Method] {
    match endpoint {
        Endpoint::All | Endpoint::Metas => &[Method::GET, Method::HEAD],
        Endpoint::Graphql => &[Method::POST],
    }
}

fn not_allowed(endpoint: Endpoint) -> Response<Body> {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    let methods: Vec<&str> = allowed(endpoint).iter().map(Method::as_str).collect();
    if let Ok(methods) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}

/// An answer that says in one line why there is nothing else.
fn problem(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The catalog exists and is on its way to this replica; another one may have it.
fn not_here_yet() -> Response<Body> {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "503 Service Unavailable");
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn redirect(request: &http::request::Parts, clean: &str) -> Response<Body> {
    let target = match request.uri.query() {
        Some(query) => format!("{clean}?{query}"),
        None => clean.to_owned(),
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
