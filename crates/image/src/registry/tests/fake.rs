//! A registry in this process that misbehaves on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;

use crate::*;

/// Fault that the registry shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RegistryFault {
    #[default]
    None,
    /// Every blob transfer breaks after a few bytes; a resumed one continues with a range or starts again.
    Cut { ranges: bool },
    /// The bytes of a blob are other ones.
    Corrupt,
    /// Blobs have more bytes than the manifest says.
    Longer,
    /// The first requests of each kind are refused with this status.
    Refuse { status: u16, times: usize },
    /// A manifest without end.
    Endless,
    /// Manifests have no digest header, and HEAD is not allowed.
    OldProtocol,
    /// A token that is not allowed in a header.
    HostileToken,
    /// Blobs begin and never end.
    Silent,
}

#[derive(Default)]
pub(super) struct Registry {
    pub(super) fault: RegistryFault,
    /// Whether a token is needed, and for which user.
    pub(super) user: Option<(&'static str, &'static str)>,
    pub(super) blobs: BTreeMap<String, Bytes>,
    pub(super) manifests: BTreeMap<String, Bytes>,
    pub(super) uploads: BTreeMap<String, Vec<u8>>,
    /// The answer to a request for the list of tags.
    pub(super) tags: Option<(u16, &'static str)>,
    pub(super) log: Vec<String>,
    pub(super) refused: usize,
}

pub(super) type Shared = Arc<Mutex<Registry>>;

pub(super) struct Server {
    pub(super) address: String,
    pub(super) registry: Shared,
}

impl Server {
    pub(super) async fn start(registry: Registry) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let registry = Arc::new(Mutex::new(registry));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = axum::Router::new()
            .fallback(handle)
            .with_state((Arc::clone(&registry), address.clone()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, registry }
    }

    pub(super) fn access(&self) -> Access {
        Access {
            registries: Arc::new(Registries::default().plain_http(&self.address)),
            ..Access::default()
        }
    }

    pub(super) fn reference(&self, rest: &str) -> Reference {
        Reference::parse(&format!("{}/{rest}", self.address)).unwrap()
    }

    /// Takes a manifest into `a/b`.
    pub(super) fn hold(&self, manifest: &serde_json::Value) -> Pinned {
        let manifest = Bytes::from(manifest.to_string());
        let digest = Digest::of(&manifest);
        let pinned = self.reference("a/b").pin(digest.clone());
        let mut registry = self.registry.lock().unwrap();
        registry.manifests.insert(digest.to_string(), manifest);
        pinned
    }

    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.registry.lock().unwrap().log)
    }

    pub(super) fn set(&self, fault: RegistryFault) {
        let mut registry = self.registry.lock().unwrap();
        registry.fault = fault;
        registry.refused = 0;
    }
}

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

async fn handle(State((registry, address)): State<(Shared, String)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut registry = registry.lock().unwrap();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    registry.log.push(format!("{} {path}", parts.method));
    if path == "/token" {
        if registry.fault == RegistryFault::HostileToken {
            return answer(200, &[], r#"{"token":"a\nb"}"#);
        }
        if parts.method == "POST" {
            let form = String::from_utf8_lossy(&body);
            let known =
                form.contains("grant_type=refresh_token") && form.contains("&refresh_token=long-lived");
            return if known {
                answer(200, &[], r#"{"access_token":"good"}"#)
            } else {
                answer(401, &[], r#"{"details":"unknown refresh token"}"#)
            };
        }
        let expected = registry.user.map(|(user, password)| {
            use base64::Engine as _;
            format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
            )
        });
        return if expected.is_some_and(|expected| expected == header("authorization")) {
            answer(200, &[], r#"{"token":"good","expires_in":300}"#)
        } else {
            answer(401, &[], r#"{"details":"incorrect username or password"}"#)
        };
    }
    if registry.user.is_some() && header("authorization") != "Bearer good" {
        let challenge = format!("Bearer realm=\"http://{address}/token\",service=\"test\"");
        return answer(401, &[("www-authenticate", &challenge)], "");
    }
    if let RegistryFault::Refuse { status, times } = registry.fault
        && registry.refused < times
    {
        registry.refused += 1;
        return answer(
            status,
            &[("retry-after", "0")],
            r#"{"errors":[{"code":"X","message":"not\nnow"}]}"#,
        );
    }
    let mut words = path.trim_start_matches("/v2/").rsplitn(3, '/');
    let (last, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (parts.method.as_str(), kind) {
        ("POST", "uploads" | "blobs") => answer(202, &[("location", "/v2/x/blobs/uploads/1?state=a")], ""),
        ("PATCH", "uploads") => {
            registry
                .uploads
                .entry(last.to_owned())
                .or_default()
                .extend_from_slice(&body);
            answer(202, &[("location", "/v2/x/blobs/uploads/1?state=b")], "")
        }
        ("PUT", "uploads") => {
            let mut bytes = registry.uploads.remove(last).unwrap_or_default();
            bytes.extend_from_slice(&body);
            let digest = Digest::of(&bytes).to_string();
            assert!(
                query.starts_with("state=") && query.ends_with(&digest.replace(':', "%3A")),
                "{query}"
            );
            registry.blobs.insert(digest, bytes.into());
            answer(201, &[], "")
        }
        ("PUT", "manifests") => {
            registry
                .manifests
                .insert(Digest::of(&body).to_string(), body.clone());
            registry.manifests.insert(last.to_owned(), body);
            answer(201, &[], "")
        }
        ("GET", "tags") => {
            let (status, body) = registry.tags.unwrap_or((404, ""));
            answer(status, &[], body)
        }
        ("GET" | "HEAD", "manifests") => manifest(&registry, parts.method.as_str(), last),
        ("GET" | "HEAD", "blobs") => blob(&registry, parts.method.as_str(), last, header("range")),
        _ => answer(404, &[], ""),
    }
}

fn manifest(registry: &Registry, method: &str, name: &str) -> Response {
    let Some(bytes) = registry.manifests.get(name) else {
        return answer(
            404,
            &[],
            r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
        );
    };
    match registry.fault {
        RegistryFault::Endless => {
            let chunks =
                futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 65536])));
            answer(200, &[], Body::from_stream(chunks))
        }
        RegistryFault::OldProtocol if method == "HEAD" => answer(405, &[], ""),
        RegistryFault::OldProtocol => answer(200, &[], bytes.clone()),
        _ => answer(
            200,
            &[("docker-content-digest", &Digest::of(bytes).to_string())],
            bytes.clone(),
        ),
    }
}

fn blob(registry: &Registry, method: &str, digest: &str, range: &str) -> Response {
    let Some(bytes) = registry.blobs.get(digest) else {
        return answer(404, &[], "");
    };
    if method == "HEAD" {
        return answer(200, &[], "");
    }
    match registry.fault {
        RegistryFault::Cut { ranges } => {
            let start = range
                .trim_start_matches("bytes=")
                .trim_end_matches('-')
                .parse()
                .unwrap_or(0);
            let (status, start) = if ranges && start > 0 {
                (206, start)
            } else {
                (200, 0)
            };
            let left = bytes.slice(start..);
            // Without ranges each attempt has to get further than the last one, or none could ever succeed.
            let piece = if ranges { 700 } else { 700 * registry.log.len() };
            if left.len() <= piece {
                return answer(status, &[], left);
            }
            let length = left.len().to_string();
            let chunks = futures::stream::unfold(Some(left.slice(..piece)), |piece| async move {
                if let Some(piece) = piece {
                    Some((Ok(piece), None))
                } else {
                    // The first piece has to leave before the connection breaks.
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    Some((Err(std::io::Error::other("cut")), None))
                }
            });
            answer(status, &[("content-length", &length)], Body::from_stream(chunks))
        }
        RegistryFault::Silent => {
            let silence = futures::stream::iter([Ok::<_, std::io::Error>(bytes.slice(..1))])
                .chain(futures::stream::pending());
            answer(200, &[], Body::from_stream(silence))
        }
        RegistryFault::Corrupt => {
            let mut other = bytes.to_vec();
            let last = other.len() - 1;
            other[last] ^= 1;
            answer(200, &[], other)
        }
        RegistryFault::Longer => answer(200, &[], [bytes.as_ref(), b"more"].concat()),
        _ => answer(200, &[], bytes.clone()),
    }
}
