//! Pull and push against a registry in this process that misbehaves on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;

use crate::*;

/// How the registry misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Every blob transfer breaks after a few bytes; a resumed one goes on with a range or starts again.
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
    /// A token that cannot stand in a header.
    HostileToken,
}

#[derive(Default)]
struct Registry {
    fault: Fault,
    /// Whether a token is needed, and for which user.
    user: Option<(&'static str, &'static str)>,
    blobs: BTreeMap<String, Bytes>,
    manifests: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, Vec<u8>>,
    log: Vec<String>,
    refused: usize,
}

type Shared = Arc<Mutex<Registry>>;

struct Server {
    address: String,
    registry: Shared,
}

impl Server {
    async fn start(registry: Registry) -> Self {
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

    fn access(&self) -> Access {
        Access {
            registries: Arc::new(Registries::default().plain_http(&self.address)),
            ..Access::default()
        }
    }

    fn reference(&self, rest: &str) -> Reference {
        Reference::parse(&format!("{}/{rest}", self.address)).unwrap()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.registry.lock().unwrap().log)
    }

    fn set(&self, fault: Fault) {
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
        if registry.fault == Fault::HostileToken {
            return answer(200, &[], r#"{"token":"a\nb"}"#);
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
    if let Fault::Refuse { status, times } = registry.fault
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
        Fault::Endless => {
            let chunks =
                futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 65536])));
            answer(200, &[], Body::from_stream(chunks))
        }
        Fault::OldProtocol if method == "HEAD" => answer(405, &[], ""),
        Fault::OldProtocol => answer(200, &[], bytes.clone()),
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
        Fault::Cut { ranges } => {
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
            // Without ranges each attempt has to get further than the last one, or nobody could ever succeed.
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
        Fault::Corrupt => {
            let mut other = bytes.to_vec();
            let last = other.len() - 1;
            other[last] ^= 1;
            answer(200, &[], other)
        }
        Fault::Longer => answer(200, &[], [bytes.as_ref(), b"more"].concat()),
        _ => answer(200, &[], bytes.clone()),
    }
}

/// An image with a layer that does not compress, so that it takes many pieces.
fn sample() -> BuiltImage {
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(5000)
    .collect();
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/noise", noise, 0o644).unwrap();
    layer
        .bytes("metadata/annotations.yaml", "annotations: {}", 0o644)
        .unwrap();
    layer.bytes("elsewhere/file", "x", 0o644).unwrap();
    ImageBuilder::new(Platform::host())
        .label("l", "v")
        .layer(layer.build().unwrap())
        .build()
}

fn images() -> Images {
    Images::new(Options::new("test"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

async fn pull(server: &Server, images: &Images) -> Result<Arc<Bundle>, String> {
    let limits = Limits::bundle();
    let pinned = images
        .resolve(&server.reference("a/b:v1"), &server.access())
        .await
        .map_err(|error| chain(&error).replace(&server.address, "R"))?;
    images
        .bundle(&pinned, &server.access(), &limits)
        .await
        .map_err(|error| chain(error.as_ref()).replace(&server.address, "R"))
}

#[tokio::test]
async fn what_is_pushed_can_be_pulled() {
    let server = Server::start(Registry::default()).await;
    let (images, image) = (images(), sample());
    let reference = server.reference("a/b:v1");
    let pinned = images.push(&reference, &image, &server.access()).await.unwrap();
    assert_eq!(*pinned.digest(), image.digest());
    assert_eq!(
        images.resolve(&reference, &server.access()).await.unwrap(),
        pinned
    );
    let bundle = pull(&server, &images).await.unwrap();
    assert_eq!(bundle.labels["l"], "v");
    assert_eq!(
        bundle.files.keys().collect::<Vec<_>>(),
        ["manifests/noise", "metadata/annotations.yaml"]
    );
    assert_eq!(bundle.files["manifests/noise"].len(), 5000);

    server.log();
    images.push(&reference, &image, &server.access()).await.unwrap();
    let posts = server
        .log()
        .iter()
        .filter(|line| line.starts_with("POST"))
        .count();
    assert_eq!(posts, 0, "blobs that are there are not sent again");
}

#[tokio::test]
async fn a_layer_on_disk_goes_up_in_pieces() {
    let server = Server::start(Registry::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(20 << 20)
    .collect();
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/noise", noise.clone(), 0o644).unwrap();
    let layer = layer.build_in(directory.path()).unwrap();
    let image = ImageBuilder::new(Platform::host()).layer(layer).build();
    images()
        .push(&server.reference("a/b:v1"), &image, &server.access())
        .await
        .unwrap();
    assert_eq!(
        server
            .log()
            .iter()
            .filter(|line| line.starts_with("PATCH"))
            .count(),
        2
    );
    let limits = Limits {
        file_bytes: 1 << 30,
        ..Limits::bundle()
    };
    let pinned = server.reference("a/b:v1").pin(image.digest());
    let image = images().image(&pinned, &server.access(), &limits).await.unwrap();
    let storage = Storage::Directory(directory.path().to_owned());
    let tree = images()
        .unpack(
            &image,
            &Selection::Everything,
            &storage,
            &server.access(),
            &limits,
        )
        .await
        .unwrap();
    match tree.resolve("manifests/noise") {
        Resolved::File(content) => assert!(content.read_all().unwrap() == noise),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn broken_transfers_are_resumed_and_wrong_ones_refused() {
    let server = Server::start(Registry::default()).await;
    images()
        .push(&server.reference("a/b:v1"), &sample(), &server.access())
        .await
        .unwrap();
    let whole = pull(&server, &images()).await.unwrap();
    for fault in [
        Fault::Cut { ranges: true },
        Fault::Cut { ranges: false },
        Fault::Refuse {
            status: 503,
            times: 2,
        },
        Fault::Refuse {
            status: 429,
            times: 3,
        },
        Fault::OldProtocol,
    ] {
        server.set(fault);
        server.log();
        let bundle = pull(&server, &images())
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(bundle == whole, "{fault:?}");
    }
    for (fault, expected) in [
        (Fault::Longer, "wanted"),
        (Fault::Corrupt, "wanted sha256:"),
        (Fault::Endless, "is larger than 4194304 bytes"),
        (
            Fault::Refuse {
                status: 500,
                times: 9,
            },
            "cannot fetch the digest of R/a/b:v1: registry `R` answers 500: not now",
        ),
        (
            Fault::Refuse {
                status: 403,
                times: 9,
            },
            "cannot fetch the digest of R/a/b:v1: registry `R` denies access: not now",
        ),
    ] {
        server.set(fault);
        let error = pull(&server, &images()).await.unwrap_err();
        // Answers to HEAD have no body, so no words of the registry's own.
        let error = error
            .replace("internal server error", "not now")
            .replace("forbidden", "not now");
        assert!(error.contains(expected), "{fault:?}: {error}");
    }
}

#[tokio::test]
async fn credentials_are_used_where_they_belong() {
    let server = Server::start(Registry {
        user: Some(("user", "secret")),
        ..Registry::default()
    })
    .await;
    let access = |password: &str| {
        let mut credentials = Credentials::default();
        credentials.insert(
            &format!("{}/a", server.address),
            Credential::Password {
                username: "user".into(),
                password: password.into(),
            },
        );
        Access {
            credentials: Arc::new(credentials),
            ..server.access()
        }
    };
    let images = images();
    images
        .push(&server.reference("a/b:v1"), &sample(), &access("secret"))
        .await
        .unwrap();
    server.log();
    for _ in 0..3 {
        images
            .resolve(&server.reference("a/b:v1"), &access("secret"))
            .await
            .unwrap();
    }
    let tokens = server
        .log()
        .iter()
        .filter(|line| line.ends_with("/token"))
        .count();
    assert_eq!(tokens, 1, "a token is used again");
    let check = async |reference: Reference, access: Access, expected: &str| {
        let error = images.resolve(&reference, &access).await.unwrap_err();
        assert!(error.is_retryable());
        assert_eq!(chain(&error).replace(&server.address, "R"), expected);
    };
    check(
        server.reference("a/b:v1"),
        access("wrong"),
        "cannot fetch the digest of R/a/b:v1: registry `R` refuses the given credentials: incorrect username or password",
    )
    .await;
    check(
        server.reference("other/b:v1"),
        access("secret"),
        "cannot fetch the digest of R/other/b:v1: registry `R` refuses anonymous access: incorrect username or password",
    )
    .await;
    server.set(Fault::HostileToken);
    check(
        server.reference("a/c:v1"),
        access("secret"),
        "cannot fetch the digest of R/a/c:v1: registry `R` breaks the protocol: the token cannot stand in a header",
    )
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let server = Server::start(Registry::default()).await;
    let error = pull(&server, &images()).await.unwrap_err();
    assert_eq!(
        error,
        "cannot fetch the digest of R/a/b:v1: registry `R` has no tag v1: not found"
    );
    let pinned = server.reference("a/b").pin(Digest::of(b"x"));
    let error = images()
        .bundle(&pinned, &server.access(), &Limits::bundle())
        .await
        .unwrap_err();
    assert!(chain(error.as_ref()).ends_with("manifest unknown"), "{error}");
}

#[tokio::test]
async fn plain_http_is_spoken_only_where_it_is_allowed() {
    let server = Server::start(Registry::default()).await;
    images()
        .push(&server.reference("a/b:v1"), &sample(), &server.access())
        .await
        .unwrap();
    let check = async |registries: Registries, expected: bool| {
        let access = Access {
            registries: Arc::new(registries),
            ..Access::default()
        };
        assert_eq!(
            images()
                .resolve(&server.reference("a/b:v1"), &access)
                .await
                .is_ok(),
            expected
        );
    };
    check(Registries::default().insecure(&server.address), true).await;
    check(Registries::default().plain_http(&server.address), true).await;
    server.log();
    check(Registries::default().plain_http("other.example"), false).await;
    assert_eq!(server.log(), [""; 0], "nothing is sent in the clear");
}

#[tokio::test]
async fn an_index_leads_to_the_image_of_this_platform() {
    let server = Server::start(Registry::default()).await;
    let image = sample();
    images()
        .push(&server.reference("a/b:v1"), &image, &server.access())
        .await
        .unwrap();
    let host = Platform::host();
    let check = async |platforms: &[(&str, &str)], expected: Result<&Digest, String>| {
        let entries: Vec<_> = platforms
            .iter()
            .enumerate()
            .map(|(number, (os, architecture))| {
                let own = *os == host.os && *architecture == host.architecture;
                let digest = if own {
                    image.digest()
                } else {
                    Digest::of(&[u8::try_from(number).unwrap()])
                };
                serde_json::json!({
                    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                    "digest": digest.to_string(), "size": 1,
                    "platform": {"os": os, "architecture": architecture},
                })
            })
            .collect();
        let index = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json",
            "manifests": entries,
        });
        let index = Bytes::from(index.to_string());
        let digest = Digest::of(&index);
        server
            .registry
            .lock()
            .unwrap()
            .manifests
            .insert(digest.to_string(), index);
        let pinned = server.reference("a/b").pin(digest);
        let found = images().image(&pinned, &server.access(), &Limits::bundle()).await;
        let found = found.as_ref().map(Image::manifest).map_err(ToString::to_string);
        assert_eq!(
            found.map_err(|error| error.split_once(" has ").unwrap().1.to_owned()),
            expected
        );
    };
    let digest = image.digest();
    check(
        &[
            ("unknown", "unknown"),
            ("plan9", "mips"),
            (&host.os, &host.architecture),
        ],
        Ok(&digest),
    )
    .await;
    check(
        &[("plan9", "mips")],
        Err(format!("no image for {}/{}", host.os, host.architecture)),
    )
    .await;
}

#[tokio::test]
async fn one_digest_is_fetched_once_for_all_who_ask_and_then_kept() {
    let server = Server::start(Registry::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        bundle_cache: Some(directory.path().to_owned()),
        ..Options::new("test")
    };
    let images = Images::new(options());
    let pinned = images
        .push(&server.reference("a/b:v1"), &sample(), &server.access())
        .await
        .unwrap();
    server.log();
    let (access, limits) = (server.access(), Limits::bundle());
    let calls = (0..10).map(|_| images.bundle(&pinned, &access, &limits));
    let bundles = futures::future::join_all(calls).await;
    assert!(bundles.iter().all(Result::is_ok));
    assert_eq!(server.log().len(), 3, "a manifest, a configuration and a layer");
    let again = Images::new(options())
        .bundle(&pinned, &access, &limits)
        .await
        .unwrap();
    assert_eq!(Ok(&again), bundles[0].as_ref().map_err(|_| ()));
    assert_eq!(
        server.log().len(),
        0,
        "the cache directory answers after a restart"
    );
}
