//! The server of the pages: access control and routing.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, LOCATION, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use jiff::Timestamp;
use maud::Markup;
use olm_api::text::escape_lines;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::shutdown::Shutdown;
use olm_serve::design::{FAVICON, HTML, STYLE, protect};
use tokio::net::TcpListener;

use super::pages::Origin;
use super::read::Backend;
use super::{pages, read};

/// The bytes of the key.
const KEY_BYTES: usize = 24;
/// The path that accepts the key.
const ENTRANCE: &str = "/enter";

/// The pages of one run of the command.
pub(super) struct Site {
    address: SocketAddr,
    key: String,
    backend: Backend,
}

/// A page, by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Page {
    Extensions(read::Query),
    Extension(String),
    Plan(String),
    Catalogs,
}

type PageResponse = Response<Full<Bytes>>;

impl Site {
    pub(super) fn new(address: SocketAddr, backend: Backend) -> anyhow::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        random
            .fill(&mut bytes)
            .map_err(|_| anyhow!("the system gives no random bytes"))?;
        let key = bytes.iter().fold(String::new(), |mut key, byte| {
            let _ = write!(key, "{byte:02x}");
            key
        });
        Ok(Self {
            address,
            key,
            backend,
        })
    }

    /// The address that lets a browser in.
    pub(super) fn entrance(&self) -> String {
        format!("http://{}{ENTRANCE}?key={}", self.address, self.key)
    }

    /// The name of the cookie: cookies are shared by all ports of a host.
    fn cookie(&self) -> String {
        format!("olm-ui-{}", self.address.port())
    }

    /// Whether the request is addressed to this server: a page of another site, whose name resolves to this address, is
    /// not.
    fn is_meant(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let local = format!("localhost:{}", self.address.port());
        host.is_some_and(|host| host == self.address.to_string() || host == local)
    }

    fn has_key(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie();
        let cookies = headers.get_all(COOKIE).iter();
        cookies
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .any(|(key, value)| key == name && is_same(value, &self.key))
    }

    /// The response to a request.
    async fn respond(self: Arc<Self>, method: &Method, uri: &Uri, headers: &HeaderMap) -> PageResponse {
        if !self.is_meant(headers) {
            return plain(
                StatusCode::FORBIDDEN,
                "This server answers only under its own address.",
            );
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "These pages change nothing.");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if uri.path() == ENTRANCE && is_same(uri.query().unwrap_or_default(), &format!("key={}", self.key)) {
            return self.enter();
        }
        match uri.path() {
            "/style.css" => return asset("text/css; charset=utf-8", STYLE),
            "/icon.svg" => return asset("image/svg+xml", FAVICON),
            _ => {}
        }
        if !self.has_key(headers) {
            return plain(
                StatusCode::FORBIDDEN,
                "Open the address that `olm ui` printed: it holds the key.",
            );
        }
        let Some(page) = route(uri) else {
            let content = pages::missing(self.origin());
            return html(StatusCode::NOT_FOUND, &content);
        };
        // Requests to the cluster block, as in the commands.
        let site = Arc::clone(&self);
        let rendered = tokio::task::spawn_blocking(move || site.render(&page)).await;
        match rendered {
            Ok(Ok((status, content))) => html(status, &content),
            Ok(Err(error)) => html(
                StatusCode::BAD_GATEWAY,
                &pages::failed(self.origin(), &format!("{error:#}")),
            ),
            Err(_) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The page could not be made; try again.",
            ),
        }
    }

    fn enter(&self) -> PageResponse {
        let mut response = plain(StatusCode::SEE_OTHER, "");
        let cookie = format!(
            "{}={}; HttpOnly; SameSite=Strict; Path=/",
            self.cookie(),
            self.key
        );
        let headers = response.headers_mut();
        headers.insert(LOCATION, HeaderValue::from_static("/"));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.insert(SET_COOKIE, cookie);
        }
        response
    }

    /// The source of a page that is made now.
    fn origin(&self) -> Origin<'_> {
        Origin {
            server: &self.backend.server,
            now: Timestamp::now(),
        }
    }

    fn render(&self, page: &Page) -> anyhow::Result<(StatusCode, Markup)> {
        let backend = &self.backend;
        let found = match page {
            Page::Extensions(query) => {
                let all = read::overview(backend)?;
                Some(pages::extensions(self.origin(), query, &all))
            }
            Page::Catalogs => {
                let all = read::catalogs(backend)?;
                Some(pages::catalogs(self.origin(), &all))
            }
            Page::Extension(name) => {
                read::extension(backend, name)?.map(|details| pages::extension(self.origin(), &details))
            }
            Page::Plan(name) => {
                read::plan(backend, name)?.map(|plan| pages::plan(self.origin(), name, &plan))
            }
        };
        Ok(match found {
            Some(page) => (StatusCode::OK, page),
            None => (StatusCode::NOT_FOUND, pages::missing(self.origin())),
        })
    }
}

/// Serves until the command is stopped.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let respond = move |request: Request<_>, _| {
        let site = Arc::clone(&site);
        async move {
            let (head, _) = request.into_parts();
            let mut response = site.respond(&head.method, &head.uri, &head.headers).await;
            if head.method == Method::HEAD {
                *response.body_mut() = Full::default();
            }
            response
        }
    };
    listener::serve(
        listener,
        Transport::Plain,
        Limits::small(),
        shutdown.token(),
        respond,
    )
    .await;
    Ok(())
}

fn route(uri: &Uri) -> Option<Page> {
    let parts: Vec<&str> = uri.path().split('/').skip(1).collect();
    // Names of objects need no escapes.
    let name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        (!name.is_empty() && name.bytes().all(is_plain)).then(|| name.to_owned())
    };
    match parts.as_slice() {
        [""] => Some(Page::Extensions(read::Query::parse(
            uri.query().unwrap_or_default(),
        ))),
        ["catalogs"] => Some(Page::Catalogs),
        ["extensions", one] => Some(Page::Extension(name(one)?)),
        ["extensions", one, "plan"] => Some(Page::Plan(name(one)?)),
        _ => None,
    }
}

/// Compares in constant time.
fn is_same(given: &str, expected: &str) -> bool {
    let differ = given
        .bytes()
        .zip(expected.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == expected.len() && differ == 0
}

/// A page: no template writes control, bidirectional or invisible characters itself.
fn html(status: StatusCode, page: &Markup) -> PageResponse {
    let text = escape_lines(&page.0).into_owned();
    let mut response = response(status, HTML, text.into_bytes());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn asset(media: &'static str, text: &'static str) -> PageResponse {
    response(StatusCode::OK, media, text.as_bytes().to_vec())
}

fn plain(status: StatusCode, text: &str) -> PageResponse {
    response(
        status,
        "text/plain; charset=utf-8",
        format!("{text}\n").into_bytes(),
    )
}

fn response(status: StatusCode, media: &'static str, bytes: Vec<u8>) -> PageResponse {
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    protect(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::access::ClusterArguments;
    use crate::registry::RegistryArguments;

    fn site() -> Arc<Site> {
        let address = "127.0.0.1:4711".parse().unwrap();
        let backend = Backend {
            server: "https://api.example:6443".to_owned(),
            cluster: ClusterArguments::default(),
            registry: RegistryArguments::default(),
        };
        let site = Site::new(address, backend);
        Arc::new(site.unwrap())
    }

    async fn ask(site: &Arc<Site>, method: Method, path: &str, headers: &[(&str, &str)]) -> PageResponse {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let uri: Uri = path.parse().unwrap();
        Arc::clone(site).respond(&method, &uri, &map).await
    }

    #[tokio::test]
    async fn only_requests_with_the_key_and_the_own_host_are_answered() {
        let site = site();
        let host = ("host", "127.0.0.1:4711");
        let status = |response: PageResponse| response.status().as_u16();
        assert_eq!(status(ask(&site, Method::GET, "/", &[host]).await), 403);
        let wrong = ("cookie", "olm-ui-4711=00");
        assert_eq!(status(ask(&site, Method::GET, "/", &[host, wrong]).await), 403);
        assert_eq!(
            status(ask(&site, Method::GET, "/enter?key=00", &[host]).await),
            403
        );
        let entrance = site.entrance();
        let entrance = entrance.strip_prefix("http://127.0.0.1:4711").unwrap();
        assert_eq!(
            status(ask(&site, Method::GET, entrance, &[("host", "evil.example:4711")]).await),
            403
        );
        let entered = ask(&site, Method::GET, entrance, &[host]).await;
        assert_eq!(entered.status(), StatusCode::SEE_OTHER);
        let cookie = entered.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = format!("other=1; {}", cookie.split(';').next().unwrap());
        let cookie = ("cookie", cookie.as_str());
        let found = ask(&site, Method::GET, "/nothing", &[host, cookie]).await;
        assert_eq!(found.status(), StatusCode::NOT_FOUND);
        assert_eq!(status(ask(&site, Method::GET, "/nothing", &[cookie]).await), 403);
        assert_eq!(
            status(ask(&site, Method::POST, "/nothing", &[host, cookie]).await),
            405
        );
        let local = ("host", "localhost:4711");
        assert_eq!(
            status(ask(&site, Method::GET, "/nothing", &[local, cookie]).await),
            404
        );
        assert_eq!(status(ask(&site, Method::GET, "/style.css", &[host]).await), 200);
    }

    #[test]
    fn addresses_lead_to_pages() {
        let at = |path: &str| route(&path.parse().unwrap());
        assert!(matches!(at("/?state=ready"), Some(Page::Extensions(_))));
        assert_eq!(at("/extensions/a.b-1"), Some(Page::Extension("a.b-1".to_owned())));
        assert_eq!(at("/extensions/a/plan"), Some(Page::Plan("a".to_owned())));
        for nothing in [
            "/extensions/",
            "/extensions/a%2Fb",
            "/extensions/a/b",
            "/x",
            "/catalogs/",
        ] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
    }
}
