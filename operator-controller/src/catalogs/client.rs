//! A client of catalogd that reads single packages and caches the answers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use olm_api::serving::{Endpoint, IMAGE_HEADER, MetasQuery};
use olm_resolve::{Package, ReleaseField};
use olm_transport::Proxies;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use tokio::sync::Semaphore;

use super::content::{ContentError, Reader};
use super::trust::{Authorities, TrustError, Trusted};

/// The time for which an answer about unchanged content is used without a request.
const FRESH: Duration = Duration::from_mins(1);
/// The longest line. A bundle with all its manifests is shorter.
const LINE_BYTES: usize = 8 << 20;
/// The most memory of all cached answers, without the last one.
const ANSWERS_BYTES: usize = 48 << 20;
/// Only one answer with more bytes than this is read at a time, because its parsed form is many times larger.
const LIGHT_BYTES: usize = 256 << 10;
/// The longest answer, in bytes.
const ANSWER_BYTES: usize = 2 << 30;

/// The address of a catalog and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatalogAddress<'a> {
    /// The catalog's name.
    pub name: &'a str,
    /// `status.urls.base`.
    pub base: &'a str,
    /// The served content, by digest.
    pub reference: &'a str,
}

/// The reason why a catalog did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogsError {
    /// There is no HTTPS client.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The catalog could not be reached, or the answer broke off.
    #[error("catalogd{}{} {}", at_host(.error), through(.proxy.as_deref()), failure(.error))]
    Unreachable {
        error: reqwest::Error,
        /// The proxy for the request, without credentials.
        proxy: Option<String>,
    },
    /// The status code means an error.
    #[error("received unexpected response status code {status}{}", withheld(.without_token.as_ref()))]
    Status {
        status: u16,
        /// The server that got no token, if that may be the cause.
        without_token: Option<ForeignServer>,
    },
    /// The replica still serves an earlier image.
    #[error("the replica that answered does not serve the current content yet")]
    Behind,
    /// The answer is longer than any catalog.
    #[error("the answer is too long")]
    TooLong,
    /// The token cannot be read.
    #[error("cannot read the token for catalogs from `{file}`")]
    Token { file: PathBuf, source: std::io::Error },
    /// The answer cannot be read.
    #[error(transparent)]
    Content(#[from] ContentError),
}

/// The address of the request, if known.
fn at_host(error: &reqwest::Error) -> String {
    let url = error.url();
    let host = url.and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    host.map_or_else(String::new, |(host, port)| format!(" at {host}:{port}"))
}

/// A server that is not catalogd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignServer {
    /// `status.urls.base`, which names the server.
    base: String,
    /// The address of catalogd, `HOST:PORT`.
    catalogd: String,
}

fn withheld(foreign: Option<&ForeignServer>) -> String {
    foreign.map_or_else(String::new, |ForeignServer { base, catalogd }| {
        format!(
            "; the request had no token, because status.urls.base of the ClusterCatalog is {base:?} and catalogd is at {catalogd}: check who wrote that status, or set --catalogd-address"
        )
    })
}

fn through(proxy: Option<&str>) -> String {
    proxy.map_or_else(String::new, |proxy| format!(" through the proxy `{proxy}`"))
}

/// The cause, with a hint.
fn failure(error: &(dyn std::error::Error + 'static)) -> String {
    let cause = olm_transport::reason(error);
    if olm_transport::is_distrust(error) {
        format!("cannot be reached: {cause}; the controller retries")
    } else {
        format!("does not answer: {cause}; the controller retries; check that its Pods are ready")
    }
}

#[derive(Debug, Clone)]
struct CachedPackage {
    base: String,
    reference: String,
    tag: Option<HeaderValue>,
    at: Instant,
    content: Option<Arc<Package>>,
}

/// The token for requests to catalogd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    file: PathBuf,
    /// `HOST:PORT`.
    address: String,
}

impl Token {
    /// The token in a file, only for the server at `HOST[:PORT]`. Other servers get no token, because anyone who can
    /// write `status.urls` of a ClusterCatalog can name any server. The default port is that of HTTPS.
    pub fn new(file: PathBuf, address: &str) -> Self {
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = if has_port { "" } else { ":443" };
        Self {
            file,
            address: format!("{address}{port}").to_ascii_lowercase(),
        }
    }

    fn is_for(&self, url: &str) -> bool {
        let Ok(url) = reqwest::Url::parse(url) else {
            return false;
        };
        let address = url.host_str().zip(url.port_or_known_default());
        url.scheme() == "https"
            && address.is_some_and(|(host, port)| self.address == format!("{host}:{port}"))
    }

    /// The current token. It is renewed from time to time.
    async fn read(&self) -> Result<String, CatalogsError> {
        let token = tokio::fs::read_to_string(&self.file).await;
        let token = token.map_err(|source| CatalogsError::Token {
            file: self.file.clone(),
            source,
        })?;
        Ok(token.trim().to_owned())
    }
}

type Key = (String, String);

/// Asks catalogs and keeps their answers.
pub(crate) struct Catalogs {
    authorities: Authorities,
    releases: ReleaseField,
    token: Option<Token>,
    client: tokio::sync::Mutex<Option<Trusted>>,
    answers: Mutex<HashMap<Key, CachedPackage>>,
    /// The permit to read an answer of more than [`LIGHT_BYTES`].
    heavy: Semaphore,
    /// The packages that provide something, by content.
    pub(super) searches: Mutex<HashMap<String, Vec<String>>>,
}

impl Catalogs {
    /// A client without cached answers.
    pub(crate) fn new(authorities: Authorities, releases: ReleaseField) -> Self {
        Self {
            authorities,
            releases,
            token: None,
            client: tokio::sync::Mutex::default(),
            answers: Mutex::default(),
            heavy: Semaphore::new(1),
            searches: Mutex::default(),
        }
    }

    /// Sends a token to catalogd.
    #[must_use]
    pub(crate) fn with_token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// The content of a package in a catalog; `None` if the catalog does not have it. Content is identified by its
    /// digest. A cached answer about the same digest is used while the catalog does not answer, and revalidated by its
    /// ETag when it is no longer fresh.
    pub(crate) async fn package(
        &self,
        address: CatalogAddress<'_>,
        package: &str,
    ) -> Result<Option<Arc<Package>>, CatalogsError> {
        let key = (address.name.to_owned(), package.to_owned());
        let kept = self.kept(&key).filter(|answer| answer.base == address.base);
        let current = kept
            .as_ref()
            .filter(|answer| answer.reference == address.reference);
        if let Some(answer) = current.filter(|answer| answer.at.elapsed() < FRESH) {
            return Ok(answer.content.clone());
        }
        match self.ask(address, package, kept.as_ref()).await {
            Ok(answer) => {
                let content = answer.content.clone();
                let mut answers = self.answers.lock();
                keep(&mut answers, key, answer, ANSWERS_BYTES);
                Ok(content)
            }
            Err(error) => {
                // Another connection may reach another replica, or use other authorities.
                if matches!(error, CatalogsError::Unreachable { .. } | CatalogsError::Behind) {
                    *self.client.lock().await = None;
                }
                match current {
                    Some(answer) => {
                        tracing::debug!(
                            catalog = address.name,
                            package,
                            "catalog does not answer; using its last answer"
                        );
                        Ok(answer.content.clone())
                    }
                    None => Err(error),
                }
            }
        }
    }

    /// Drops the answers for which `used` (catalog, package) returns false.
    pub(crate) fn retain(&self, used: impl Fn(&str, &str) -> bool) {
        let mut answers = self.answers.lock();
        answers.retain(|(catalog, package), _| used(catalog, package));
    }

    fn kept(&self, key: &Key) -> Option<CachedPackage> {
        self.answers.lock().get(key).cloned()
    }

    async fn ask(
        &self,
        address: CatalogAddress<'_>,
        package: &str,
        kept: Option<&CachedPackage>,
    ) -> Result<CachedPackage, CatalogsError> {
        let query = MetasQuery {
            package: Some(package),
            ..MetasQuery::default()
        };
        let tag = kept.and_then(|answer| answer.tag.as_ref());
        let response = self.query(address, &query, tag).await?;
        let status = response.status();
        let tag = response.headers().get(ETAG).and_then(copy);
        let content = match (status, kept) {
            (StatusCode::NOT_MODIFIED, Some(answer)) => answer.content.clone(),
            (StatusCode::OK, _) => {
                let reader = Reader::new(package, self.releases);
                self.read(reader, response).await?.map(Arc::new)
            }
            _ => return Err(self.unexpected(address, status)),
        };
        let tag = tag.or_else(|| kept.filter(|_| status == StatusCode::NOT_MODIFIED)?.tag.clone());
        let (base, reference) = (address.base.to_owned(), address.reference.to_owned());
        Ok(CachedPackage {
            base,
            reference,
            tag,
            at: Instant::now(),
            content,
        })
    }

    /// The error of an unexpected status code.
    pub(super) fn unexpected(&self, address: CatalogAddress<'_>, status: StatusCode) -> CatalogsError {
        let is_about_token = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let token = self
            .token
            .as_ref()
            .filter(|token| is_about_token && !token.is_for(address.base));
        CatalogsError::Status {
            status: status.as_u16(),
            without_token: token.map(|token| ForeignServer {
                base: address.base.to_owned(),
                catalogd: token.address.clone(),
            }),
        }
    }

    /// The answer to a query, or the whole content where the catalog serves no answers: the reference implementation
    /// serves `metas` only behind a feature gate.
    pub(super) async fn query(
        &self,
        address: CatalogAddress<'_>,
        query: &MetasQuery<'_>,
        tag: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, CatalogsError> {
        let answer = self.get(address, &query.url(address.base), tag).await?;
        if answer.status() != StatusCode::NOT_FOUND {
            return Ok(answer);
        }
        self.get(address, &Endpoint::All.url(address.base), tag).await
    }

    async fn get(
        &self,
        address: CatalogAddress<'_>,
        url: &str,
        tag: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, CatalogsError> {
        let (client, proxies) = self.client().await?;
        let proxy = url.parse().ok().and_then(|url| proxies.name(&url));
        let mut request = client.get(url);
        if let Some(token) = self.token.as_ref().filter(|token| token.is_for(url)) {
            request = request.bearer_auth(token.read().await?);
        }
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag.clone());
        }
        let response = request
            .send()
            .await
            .map_err(|error| CatalogsError::Unreachable { error, proxy })?;
        if is_of_another_image(response.headers(), address.reference) {
            return Err(CatalogsError::Behind);
        }
        Ok(response)
    }

    async fn read(
        &self,
        mut reader: Reader<'_>,
        response: reqwest::Response,
    ) -> Result<Option<Package>, CatalogsError> {
        lines(response, Some(&self.heavy), |line| reader.line(line)).await?;
        Ok(reader.finish())
    }

    async fn client(&self) -> Result<(reqwest::Client, Proxies), CatalogsError> {
        let mut client = self.client.lock().await;
        if let Some(trusted) = client.as_ref().filter(|trusted| trusted.is_fresh()) {
            return Ok((trusted.client.clone(), trusted.proxies.clone()));
        }
        let trusted = client.insert(self.authorities.client().await?);
        Ok((trusted.client.clone(), trusted.proxies.clone()))
    }
}

/// Caches an answer, and drops the oldest others while all together take more than `limit`.
fn keep(answers: &mut HashMap<Key, CachedPackage>, key: Key, answer: CachedPackage, limit: usize) {
    let bytes = |answer: &CachedPackage| answer.content.as_ref().map_or(0, |content| content.bytes());
    answers.remove(&key);
    let mut total = answers
        .values()
        .map(bytes)
        .fold(bytes(&answer), usize::saturating_add);
    while total > limit {
        let filled = answers.iter().filter(|(_, answer)| answer.content.is_some());
        let oldest = filled
            .min_by_key(|(_, answer)| answer.at)
            .map(|(key, _)| key.clone());
        let Some(forgotten) = oldest.and_then(|key| answers.remove(&key)) else {
            break;
        };
        total = total.saturating_sub(bytes(&forgotten));
    }
    answers.insert(key, answer);
}

/// A copy of the value. A clone would keep the buffer with all headers of the answer, 8 KiB.
fn copy(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

/// Whether the headers name another image than the expected one. The reference implementation sends no such header.
fn is_of_another_image(headers: &HeaderMap, reference: &str) -> bool {
    let image = headers.get(IMAGE_HEADER).map(HeaderValue::as_bytes);
    let wanted = reference.split_once('@').map(|(_, digest)| digest.as_bytes());
    image.is_some() && wanted.is_some() && image != wanted
}

/// Passes every line of an answer on. A large answer waits for its permit.
pub(super) async fn lines(
    response: reqwest::Response,
    heavy: Option<&Semaphore>,
    mut take: impl FnMut(&[u8]) -> Result<(), ContentError>,
) -> Result<(), CatalogsError> {
    let mut chunks = response.bytes_stream();
    let mut line = Vec::new();
    let mut total = 0usize;
    let mut permit = None;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| CatalogsError::Unreachable { error, proxy: None })?;
        total = total.saturating_add(chunk.len());
        if let (Some(heavy), None, true) = (heavy, &permit, total > LIGHT_BYTES) {
            permit = heavy.acquire().await.ok();
        }
        let mut parts = chunk.split(|byte| *byte == b'\n');
        line.extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            take(&line)?;
            line.clear();
            line.extend_from_slice(part);
        }
        if line.len() > LINE_BYTES || total > ANSWER_BYTES {
            return Err(CatalogsError::TooLong);
        }
    }
    Ok(take(&line)?)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    #[tokio::test]
    async fn an_unreachable_catalogd_is_reported_in_one_sentence() {
        let provider = olm_transport::provider();
        let verifier = olm_transport::unverified(&provider);
        let tls = olm_transport::client_config(provider, rustls::DEFAULT_VERSIONS, verifier).unwrap();
        let client = olm_transport::http_client(tls, &Proxies::default())
            .build()
            .unwrap();
        // No server listens there.
        let error = client.get("https://127.0.0.1:1/all").send().await.unwrap_err();
        let text = olm_platform::log::chain(&CatalogsError::Unreachable { error, proxy: None });
        assert!(
            text.starts_with("catalogd at 127.0.0.1:1 does not answer: Connection refused")
                && text.ends_with("; the controller retries; check that its Pods are ready"),
            "{text}"
        );
        assert_eq!(text.matches(": ").count(), 1, "{text}");
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert_eq!(
            failure(&std::io::Error::other(expired)),
            "cannot be reached: invalid peer certificate: Expired; the controller retries"
        );
    }

    #[test]
    fn the_oldest_answers_make_room_and_the_last_one_stays() {
        let channel = r#"{"schema":"olm.channel","package":"p","name":"c","entries":[]}"#;
        let channel = olm_fbc::Blob::from_json("olm.channel", channel).unwrap();
        let package = Arc::new(Package::new([channel], ReleaseField::Counts).unwrap());
        let start = Instant::now();
        let mut answers = HashMap::new();
        let mut insert = |name: &str, second: u64, limit: usize| {
            let answer = CachedPackage {
                base: String::new(),
                reference: String::new(),
                tag: None,
                at: start + Duration::from_secs(second),
                content: Some(Arc::clone(&package)),
            };
            keep(&mut answers, (String::new(), name.to_owned()), answer, limit);
            let mut kept: Vec<String> = answers.keys().map(|(_, package)| package.clone()).collect();
            kept.sort();
            kept.concat()
        };
        let limit = 2 * package.bytes();
        assert_eq!(insert("a", 1, limit), "a");
        assert_eq!(insert("b", 2, limit), "ab");
        assert_eq!(insert("a", 3, limit), "ab");
        assert_eq!(insert("c", 4, limit), "ac");
        assert_eq!(insert("d", 5, 0), "d");
    }

    #[test]
    fn the_token_is_shown_to_catalogd_alone() {
        let check = |address: &str, url: &str, expected: bool| {
            let token = Token::new("token".into(), address);
            assert_eq!(token.is_for(url), expected, "{address} {url}");
        };
        let service = "catalogd-service.olmv1-system.svc";
        check(
            service,
            "https://catalogd-service.olmv1-system.svc/catalogs/a/api/v1/all",
            true,
        );
        check(service, "https://CATALOGD-service.olmv1-system.svc:443/x", true);
        check(service, "http://catalogd-service.olmv1-system.svc/x", false);
        check(service, "https://catalogd-service.olmv1-system.svc:8443/x", false);
        check(
            service,
            "https://catalogd-service.olmv1-system.svc.evil.example/x",
            false,
        );
        check(
            service,
            "https://catalogd-service.olmv1-system.svc@evil.example/x",
            false,
        );
        check(
            service,
            "https://evil.example/catalogd-service.olmv1-system.svc",
            false,
        );
        check("127.0.0.1:8443", "https://127.0.0.1:8443/x", true);
        check("[::1]:8443", "https://[::1]:8443/x", true);
        check("[::1]:8443", "https://[::1]/x", false);
    }

    #[test]
    fn an_answer_of_a_replica_that_lags_behind_is_not_taken_for_the_current_content() {
        let answer = |image: Option<&'static str>| {
            let image = image.map(|image| {
                (
                    HeaderName::from_static(IMAGE_HEADER),
                    HeaderValue::from_static(image),
                )
            });
            HeaderMap::from_iter(image)
        };
        let reference = "registry.example/catalog@sha256:bb";
        assert!(is_of_another_image(&answer(Some("sha256:aa")), reference));
        assert!(!is_of_another_image(&answer(Some("sha256:bb")), reference));
        assert!(!is_of_another_image(&answer(None), reference));
        assert!(!is_of_another_image(
            &answer(Some("sha256:aa")),
            "registry.example/catalog:v1"
        ));
    }
}
