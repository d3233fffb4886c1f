//! A server in front of the real registry with the behaviour of other registries: it presents any certificate, supports
//! only some versions and protocols, redirects requests for blobs, limits clients, and omits optional features.

use std::collections::{BTreeMap, VecDeque};
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http::header::{AUTHORIZATION, CONTENT_TYPE, LINK, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use olm_platform::listener::{self, Limits, Transport};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::referrers::Referrers;

type Answer = Response<Full<Cursor<Vec<u8>>>>;

/// A certificate and its key.
#[derive(Debug)]
pub struct Issued {
    terms: CertificateParams,
    key: KeyPair,
    certificate: Certificate,
}

impl Issued {
    /// A self-signed certificate.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn alone(terms: CertificateParams, key: KeyPair) -> Result<Self> {
        let certificate = terms.self_signed(&key)?;
        Ok(Self {
            terms,
            key,
            certificate,
        })
    }

    /// A certificate that this one issues.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn issue(&self, terms: CertificateParams, key: KeyPair) -> Result<Self> {
        let issuer = Issuer::from_params(&self.terms, &self.key);
        let certificate = terms.signed_by(&key, &issuer)?;
        Ok(Self {
            terms,
            key,
            certificate,
        })
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key once more.
    ///
    /// # Errors
    /// When it cannot be read back.
    pub fn key(&self) -> Result<KeyPair> {
        Ok(KeyPair::from_pem(&self.key.serialize_pem())?)
    }

    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }
}

/// Parameters of an authority.
///
/// # Errors
/// When rcgen does not accept the name.
pub fn authority(name: &str) -> Result<CertificateParams> {
    let mut terms = named(name, &[])?;
    terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    terms.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(terms)
}

/// Parameters of a server's certificate.
///
/// # Errors
/// When a host is none.
pub fn named(name: &str, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut terms = CertificateParams::new(hosts)?;
    terms.distinguished_name.push(DnType::CommonName, name);
    Ok(terms)
}

/// The certificates and the protocols of TLS of a server.
#[derive(Debug)]
pub struct ServerTls<'a> {
    /// The certificate.
    pub leaf: &'a Issued,
    /// The intermediate certificates that it sends.
    pub intermediates: Vec<&'a Issued>,
    /// The versions of TLS that it speaks.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// The protocols of ALPN that it speaks.
    pub protocols: Vec<&'static str>,
}

impl<'a> ServerTls<'a> {
    /// A server with this certificate that supports all protocols.
    pub fn of(leaf: &'a Issued) -> Self {
        Self {
            leaf,
            intermediates: Vec::new(),
            versions: rustls::DEFAULT_VERSIONS,
            protocols: vec!["h2", "http/1.1"],
        }
    }

    fn config(&self) -> Result<ServerConfig> {
        let chain = std::iter::once(self.leaf).chain(self.intermediates.iter().copied());
        let key = PrivatePkcs8KeyDer::from(self.leaf.key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)?
            .with_no_client_auth()
            .with_single_cert(chain.map(Issued::der).collect(), key.into())?;
        config.alpn_protocols = self
            .protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        Ok(config)
    }
}

/// The differences between the server and the registry behind it.
#[derive(Debug, Default)]
pub struct ProxyBehaviour {
    /// The address of blobs, as `https://HOST:PORT`, to which clients are redirected.
    pub storage: Option<String>,
    /// The header `Docker-Content-Digest` is left out.
    pub hides_digest: bool,
    /// The answers to the next requests: a status, and `Retry-After`.
    pub refusals: VecDeque<(u16, String)>,
    /// The header `WWW-Authenticate` is this one.
    pub challenge: Option<String>,
    /// Every manifest is this one: its media type and its bytes.
    pub manifest: Option<(String, String)>,
    /// The manifests that refer to one are listed, at most so many on a page.
    pub lists_referrers: Option<usize>,
    /// Uploads go on here, and not at the address of the registry behind it.
    pub keeps_uploads: bool,
    /// Answers to paths with these ends: a status, a media type and a body.
    pub answers: BTreeMap<String, (u16, String, String)>,
    /// Paths with this end are never answered.
    pub hangs: Option<String>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The method and the path.
    pub request: String,
    /// The version of HTTP.
    pub version: Version,
    /// Whether the request had a credential.
    pub authorized: bool,
    /// The requested range.
    pub range: Option<String>,
}

/// A server in front of a registry. Dropping it ends it.
#[derive(Debug)]
pub struct RegistryProxy {
    /// The port on the loopback address.
    pub port: u16,
    state: Arc<State>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct State {
    upstream: String,
    client: reqwest::Client,
    behaviour: Mutex<ProxyBehaviour>,
    seen: Mutex<Vec<RecordedRequest>>,
    referrers: Referrers,
}

impl RegistryProxy {
    /// Starts a server in front of `upstream`, `http://HOST:PORT` or `https://HOST:PORT`, whose authority is `ca`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(
        upstream: &str,
        ca: &Path,
        tls: &ServerTls<'_>,
        behaviour: ProxyBehaviour,
    ) -> Result<Self> {
        let transport = Transport::Tls(Arc::new(tls.config()?));
        Self::serve(upstream, ca, transport, behaviour).await
    }

    /// The same without TLS.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn plain(upstream: &str, ca: &Path, behaviour: ProxyBehaviour) -> Result<Self> {
        Self::serve(upstream, ca, Transport::Plain, behaviour).await
    }

    async fn serve(
        upstream: &str,
        ca: &Path,
        transport: Transport,
        behaviour: ProxyBehaviour,
    ) -> Result<Self> {
        let authority = reqwest::Certificate::from_pem(&std::fs::read(ca)?)?;
        let client = reqwest::Client::builder()
            .tls_certs_merge([authority])
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let state = Arc::new(State {
            upstream: upstream.to_owned(),
            client,
            behaviour: Mutex::new(behaviour),
            seen: Mutex::default(),
            referrers: Referrers::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let stop = CancellationToken::new();
        let serving = Arc::clone(&state);
        tokio::spawn(listener::serve(
            listener,
            transport,
            Limits::default(),
            stop.clone(),
            move |request, _| {
                let state = Arc::clone(&serving);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
                    let request = Request::from_parts(head, body.unwrap_or_default().to_vec());
                    state
                        .answer(request)
                        .await
                        .unwrap_or_else(|error| response(StatusCode::BAD_GATEWAY, &[], error.to_string()))
                }
            },
        ));
        Ok(Self {
            port,
            state,
            _stop: stop.drop_guard(),
        })
    }

    /// The requests since the last call.
    pub fn seen(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *lock(&self.state.seen))
    }

    /// Changes its behavior.
    pub fn behave(&self, change: impl FnOnce(&mut ProxyBehaviour)) {
        change(&mut lock(&self.state.behaviour));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn response(status: StatusCode, headers: &[(HeaderName, String)], body: impl Into<Vec<u8>>) -> Answer {
    let mut response = Response::new(Full::new(Cursor::new(body.into())));
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name.clone(), value);
        }
    }
    response
}

impl State {
    /// The answer to a path that does not come from the registry behind.
    fn own_answer(&self, path: &str) -> Result<Option<Answer>> {
        let mut behaviour = lock(&self.behaviour);
        if let Some((status, wait)) = behaviour.refusals.pop_front() {
            let status = StatusCode::from_u16(status)?;
            return Ok(Some(response(status, &[(RETRY_AFTER, wait)], "")));
        }
        let typed = |status: u16, kind: &str, text: &str| {
            let headers = [(CONTENT_TYPE, kind.to_owned())];
            Ok(Some(response(StatusCode::from_u16(status)?, &headers, text)))
        };
        if let Some((kind, text)) = behaviour
            .manifest
            .as_ref()
            .filter(|_| path.contains("/manifests/"))
        {
            return typed(200, kind, text);
        }
        let mut answers = behaviour.answers.iter();
        if let Some((_, (status, kind, text))) = answers.find(|(end, _)| path.ends_with(*end)) {
            return typed(*status, kind, text);
        }
        let page = behaviour
            .lists_referrers
            .and_then(|size| self.referrers.page(path, size));
        Ok(page.map(|(index, next)| {
            let kind = "application/vnd.oci.image.index.v1+json".to_owned();
            let next = next.map(|next| (LINK, format!("<{next}>; rel=\"next\"")));
            let headers: Vec<_> = std::iter::once((CONTENT_TYPE, kind)).chain(next).collect();
            response(StatusCode::OK, &headers, index)
        }))
    }

    async fn answer(&self, request: Request<Vec<u8>>) -> Result<Answer> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let range = head.headers.get(RANGE).and_then(|range| range.to_str().ok());
        lock(&self.seen).push(RecordedRequest {
            request: format!("{} {path}", head.method),
            version: head.version,
            authorized: head.headers.contains_key(AUTHORIZATION),
            range: range.map(str::to_owned),
        });
        let is_reading = matches!(head.method, Method::GET | Method::HEAD);
        if lock(&self.behaviour)
            .hangs
            .as_deref()
            .is_some_and(|end| path.ends_with(end))
        {
            std::future::pending::<()>().await;
        }
        if let Some(answer) = self.own_answer(path)? {
            return Ok(answer);
        }
        let (hides_digest, challenge, lists_referrers, keeps_uploads) = {
            let behaviour = lock(&self.behaviour);
            (
                behaviour.hides_digest,
                behaviour.challenge.clone(),
                behaviour.lists_referrers,
                behaviour.keeps_uploads,
            )
        };
        if lists_referrers.is_some() && head.method == Method::DELETE && self.referrers.forget(path) {
            return Ok(response(StatusCode::ACCEPTED, &[], ""));
        }
        let subject = if lists_referrers.is_some() && head.method == Method::PUT {
            self.referrers.note(path, &body)
        } else {
            None
        };
        let forwarded = self
            .client
            .request(head.method.clone(), format!("{}{path}", self.upstream))
            .headers(head.headers.clone())
            .body(body)
            .send()
            .await
            .context("the registry behind does not answer")?;
        let storage = lock(&self.behaviour).storage.clone();
        if let Some(storage) = storage
            .filter(|_| is_reading && path.contains("/blobs/sha256:") && forwarded.status().is_success())
        {
            let location = format!("{storage}{path}?X-Amz-Signature=secret");
            return Ok(response(
                StatusCode::TEMPORARY_REDIRECT,
                &[(LOCATION, location)],
                "",
            ));
        }
        let (status, headers) = (forwarded.status(), forwarded.headers().clone());
        let mut answer = response(status, &[], forwarded.bytes().await?.to_vec());
        *answer.headers_mut() = headers;
        if head.version == Version::HTTP_2 {
            for name in [http::header::CONNECTION, http::header::TRANSFER_ENCODING] {
                answer.headers_mut().remove(name);
            }
        }
        if let Some(subject) = subject {
            answer.headers_mut().insert("oci-subject", subject.parse()?);
        }
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|location| location.to_str().ok());
        let here = location.and_then(|location| location.strip_prefix(self.upstream.as_str()));
        if let Some(here) = here.filter(|_| keeps_uploads) {
            let here = here.parse()?;
            answer.headers_mut().insert(LOCATION, here);
        }
        if hides_digest {
            answer.headers_mut().remove("docker-content-digest");
        }
        if let Some(challenge) = challenge.filter(|_| status == StatusCode::UNAUTHORIZED) {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse()?);
        }
        Ok(answer)
    }
}

/// A relay to a server that is slow and breaks: every connection ends after a number of bytes from the server.
#[derive(Debug)]
pub struct BreakingRelay {
    /// The port on the loopback address.
    pub port: u16,
    connections: Arc<std::sync::atomic::AtomicUsize>,
    _stop: DropGuard,
}

impl BreakingRelay {
    /// Starts a relay to `target`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(target: String, bytes: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let stop = CancellationToken::new();
        let ended = stop.clone();
        let connections = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::spawn(relay(stream, target.clone(), bytes));
            }
        }));
        Ok(Self {
            port,
            connections,
            _stop: stop.drop_guard(),
        })
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.connections.load(std::sync::atomic::Ordering::SeqCst)
    }
}

async fn relay(client: TcpStream, target: String, bytes: usize) -> Result<()> {
    let server = TcpStream::connect(target).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut left = bytes;
    let mut buffer = vec![0; 16 << 10];
    while left > 0 {
        let room = buffer.len().min(left);
        let read = from_server.read(&mut buffer[..room]).await?;
        if read == 0 {
            break;
        }
        to_client.write_all(&buffer[..read]).await?;
        left -= read;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    up.abort();
    Ok(())
}
