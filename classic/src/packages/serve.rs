//! The API `packages.operators.coreos.com`, as the API server forwards it.

mod accept;
mod answer;
mod discovery;
mod read;
mod request;
mod table;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use olm_platform::delegated::{AccessRequest, Delegated, Denied};
use olm_platform::tls::client::ClientCertificates;
use tokio_util::sync::CancellationToken;

use self::accept::{Representation, negotiate};
use self::request::{Options, Path, ask};
use self::table::Include;
use self::watch::WatchOptions;
use super::index::PackageIndex;
use super::scope::Scope;

/// Answers requests.
pub(super) struct Server {
    index: Arc<PackageIndex>,
    /// The namespace whose catalogs every namespace sees.
    global: String,
    clients: Arc<Delegated>,
    is_ready: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Server {
    /// Serves `index` to the clients that `clients` admits; watches end when `stop` is cancelled.
    pub(super) fn new(
        index: Arc<PackageIndex>,
        global: String,
        clients: Arc<Delegated>,
        is_ready: Arc<AtomicBool>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            index,
            global,
            clients,
            is_ready,
            stop,
        }
    }

    /// Answers a request. Its body is not read: nothing is written here.
    pub(super) async fn respond<B>(&self, request: Request<B>) -> Response {
        let (parts, _) = request.into_parts();
        let (path, options) = (Path::read(parts.uri.path()), Options::read(&parts.uri));
        let scope = match &path {
            Path::Packages { namespace } => Scope::new(
                namespace,
                &self.global,
                &options.field_selector,
                &options.label_selector,
            ),
            Path::Package { namespace, .. } | Path::Icon { namespace, .. } => {
                Scope::new(namespace, &self.global, "", "")
            }
            _ => Ok(Scope::default()),
        };
        let named = scope.as_ref().ok().and_then(|scope| scope.name.as_deref());
        let asked = ask(&parts.method, &path, &parts.uri, &options, named);
        if !path.is_open()
            && let Err(refused) = self.admit(&parts, &asked).await
        {
            return answer::denied(&refused, &asked);
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return answer::only_read();
        }
        let scope = match scope {
            Ok(scope) => scope,
            Err(error) => return answer::bad_request(&error.to_string()),
        };
        let response = self.answer(&path, scope, &parts, &options);
        if parts.method == Method::HEAD {
            return response.map(|_| Body::empty());
        }
        response
    }

    async fn admit(&self, parts: &http::request::Parts, asked: &AccessRequest) -> Result<(), Denied> {
        let certificates = parts.extensions.get::<ClientCertificates>();
        let user = self.clients.user(&parts.headers, certificates).await?;
        self.clients.admit(&user, asked).await
    }

    fn answer(&self, path: &Path, scope: Scope, parts: &http::request::Parts, options: &Options) -> Response {
        match path {
            Path::Packages { .. } | Path::Package { .. } => self.packages(path, scope, parts, options),
            Path::Icon { name, .. } => {
                read::picture(&self.index.now(), &scope, name, &parts.headers, options)
            }
            Path::Live => answer::answer(StatusCode::OK, "text/plain", "ok"),
            Path::Ready if self.is_ready.load(Ordering::Acquire) => {
                answer::answer(StatusCode::OK, "text/plain", "ok")
            }
            Path::Ready => {
                let why = "not every catalog was asked yet";
                answer::answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why)
            }
            Path::Unknown => answer::no_path(),
            _ => document(path, parts),
        }
    }

    fn packages(
        &self,
        path: &Path,
        scope: Scope,
        parts: &http::request::Parts,
        options: &Options,
    ) -> Response {
        let offers = [
            Representation::Object,
            Representation::Table,
            Representation::Partial,
        ];
        let Some(representation) = negotiate(&parts.headers, &offers) else {
            return answer::not_acceptable();
        };
        let Some(include) = Include::read(&options.include_object) else {
            let message = format!("includeObject: Invalid value: {:?}", options.include_object);
            return answer::bad_request(&message);
        };
        let now = Timestamp::now();
        match path {
            Path::Package { name, .. } => {
                read::get(&self.index.now(), &scope, name, representation, include, now)
            }
            _ if options.is_watch => {
                let stop = self.stop.clone();
                watch::watch(
                    self.index.subscribe(),
                    scope,
                    options,
                    WatchOptions {
                        representation,
                        include,
                        stop,
                    },
                )
            }
            _ => read::list(&self.index.now(), scope, representation, include, now),
        }
    }
}

/// Documents that do not depend on packages.
fn document(path: &Path, parts: &http::request::Parts) -> Response {
    let Some(representation) = negotiate(
        &parts.headers,
        &[Representation::Object, Representation::Discovery],
    ) else {
        return answer::not_acceptable();
    };
    match (path, representation) {
        (Path::Groups, Representation::Discovery) => discovery::aggregated(),
        (Path::Groups, _) => discovery::groups(),
        (Path::Group, _) => discovery::group(),
        (Path::Resources, _) => discovery::resources(),
        (Path::OpenApi2, _) => discovery::openapi_2(),
        (Path::OpenApi3, _) => discovery::openapi_3(),
        (Path::OpenApi3Group, _) => discovery::openapi_3_group(),
        (Path::Version, _) => discovery::version(),
        _ => answer::no_path(),
    }
}
