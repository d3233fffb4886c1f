//! Pull and push against a registry in this process that misbehaves on demand.

mod fake;
mod insecure;

use std::sync::Arc;

use fake::{Registry, RegistryFault, Server};

use crate::*;

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

fn selection() -> Selection {
    Selection::Below(["manifests", "metadata"].map(str::to_owned).to_vec())
}

fn images() -> Images {
    Images::new(Options {
        selection: selection(),
        ..Options::new("test")
    })
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

async fn push(server: &Server, image: &BuiltImage) -> Pinned {
    let reference = server.reference("a/b:v1");
    images()
        .push(&reference, image, &server.access())
        .await
        .unwrap()
        .pinned
}

async fn pull(server: &Server, images: &Images) -> Result<Arc<Contents>, String> {
    let limits = Limits::bundle();
    let pinned = images
        .resolve(&server.reference("a/b:v1"), &server.access())
        .await
        .map_err(|error| chain(&error).replace(&server.address, "R"))?;
    images
        .contents(&pinned, &server.access(), &limits)
        .await
        .map_err(|error| chain(error.as_ref()).replace(&server.address, "R"))
}

#[tokio::test]
async fn pushed_images_can_be_pulled() {
    let server = Server::start(Registry::default()).await;
    let (images, image) = (images(), sample());
    let reference = server.reference("a/b:v1");
    let pushed = images.push(&reference, &image, &server.access()).await.unwrap();
    assert_eq!(pushed.replaced, None);
    let pinned = pushed.pinned;
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
    let again = images.push(&reference, &image, &server.access()).await.unwrap();
    assert_eq!(again.replaced, None, "it is the same image");
    let posts = server
        .log()
        .iter()
        .filter(|line| line.starts_with("POST"))
        .count();
    assert_eq!(posts, 0, "blobs that are there are not sent again");
}

#[tokio::test]
async fn a_push_names_the_image_that_had_the_tag() {
    let server = Server::start(Registry::default()).await;
    let first = push(&server, &sample()).await;
    let other = ImageBuilder::new(Platform::host()).label("l", "w").build();
    let reference = server.reference("a/b:v1");
    server.log();
    let pushed = images().push(&reference, &other, &server.access()).await.unwrap();
    assert_eq!(pushed.replaced.as_ref(), Some(first.digest()));
    let manifest = "/v2/a/b/manifests/v1";
    let mut log = server.log();
    log.retain(|line| line.ends_with(manifest));
    assert_eq!(log, [format!("HEAD {manifest}"), format!("PUT {manifest}")]);

    // By digest, nothing can be replaced.
    let by_digest = server.reference(&format!("a/b@{}", other.digest()));
    let pushed = images().push(&by_digest, &other, &server.access()).await.unwrap();
    assert_eq!(pushed.replaced, None);
    // A registry that does not say what a tag means takes the image all the same.
    server.set(RegistryFault::OldProtocol);
    let pushed = images()
        .push(&reference, &sample(), &server.access())
        .await
        .unwrap();
    assert_eq!(pushed.replaced, None);
    let log = server.log();
    let heads = log.iter().filter(|line| **line == format!("HEAD {manifest}"));
    assert_eq!(heads.count(), 1, "{log:?}");
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
    push(&server, &image).await;
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
    push(&server, &sample()).await;
    let whole = pull(&server, &images()).await.unwrap();
    for fault in [
        RegistryFault::Cut { ranges: true },
        RegistryFault::Cut { ranges: false },
        RegistryFault::Refuse {
            status: 503,
            times: 2,
        },
        RegistryFault::Refuse {
            status: 429,
            times: 3,
        },
        RegistryFault::OldProtocol,
    ] {
        server.set(fault);
        server.log();
        let bundle = pull(&server, &images())
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(bundle == whole, "{fault:?}");
    }
    for (fault, expected) in [
        (RegistryFault::Longer, "wanted"),
        (RegistryFault::Corrupt, "wanted sha256:"),
        (RegistryFault::Endless, "is larger than 4194304 bytes"),
        (
            RegistryFault::Refuse {
                status: 500,
                times: 9,
            },
            "cannot fetch the digest of R/a/b:v1: registry `R` answers 500: not now",
        ),
        (
            RegistryFault::Refuse {
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
async fn tokens_of_a_pull_secret_open_the_registry() {
    let server = Server::start(Registry::default()).await;
    push(&server, &sample()).await;
    server.registry.lock().unwrap().user = Some(("user", "secret"));
    let check = async |credential: Credential, expected: Result<(), &str>| {
        let mut credentials = Credentials::default();
        credentials.insert(&server.address, credential.clone());
        let access = Access {
            credentials: Arc::new(credentials),
            ..server.access()
        };
        let result = images().resolve(&server.reference("a/b:v1"), &access).await;
        match (result, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(expected)) if chain(&error).contains(expected) => {}
            (result, _) => panic!("{credential:?}: {result:?}"),
        }
    };
    check(Credential::IdentityToken("long-lived".into()), Ok(())).await;
    check(
        Credential::IdentityToken("other".into()),
        Err("refuses the given identity token: its token service answers 401"),
    )
    .await;
    check(Credential::RegistryToken("good".into()), Ok(())).await;
    check(
        Credential::RegistryToken("other".into()),
        Err("refuses the given credentials"),
    )
    .await;
}

#[tokio::test]
async fn every_limit_of_a_pull_has_an_error_of_its_own() {
    let server = Server::start(Registry::default()).await;
    let pushed = push(&server, &sample()).await;
    let check = async |name: &str, value: u64, expected: &str| {
        let limits = Limits::bundle().with([(name, value)]);
        let error = images()
            .contents(&pushed, &server.access(), &limits)
            .await
            .unwrap_err();
        assert!(
            chain(error.as_ref()).contains(expected),
            "{name}: {}",
            chain(error.as_ref())
        );
    };
    check("manifest-bytes", 10, "is larger than 10 bytes").await;
    check("config-bytes", 10, "is larger than 10 bytes").await;
    check("layers", 0, "has more than 0 layers").await;
    check("transfer-bytes", 100, "more than 100").await;
    check("entries", 1, "the image has more than 1 entries").await;
    check(
        "unpacked-bytes",
        1000,
        "the image unpacks to more than 1000 bytes",
    )
    .await;
    check("kept-bytes", 1000, "larger than 1000 bytes together").await;
    check(
        "file-bytes",
        1000,
        "file `manifests/noise` is larger than 1000 bytes",
    )
    .await;
    // A registry that begins and never ends is given up in time.
    server.set(RegistryFault::Silent);
    check("time", 1, "was not pulled within 1 seconds").await;
}

#[tokio::test]
async fn a_mirror_that_fails_gives_way_at_once_and_in_the_middle() {
    let (home, mirror) = (
        Server::start(Registry::default()).await,
        Server::start(Registry::default()).await,
    );
    let image = sample();
    for server in [&home, &mirror] {
        push(server, &image).await;
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = closed.local_addr().unwrap().to_string();
    drop(closed);
    let text = format!(
        "registry = [{{ location = \"{}\", mirror = [{{ location = \"{dead}\" }}, {{ location = \"{}\" }}] }}]",
        home.address, mirror.address
    );
    let registries = [&dead, &home.address, &mirror.address].into_iter().fold(
        Registries::parse([("conf", text.as_str())]).unwrap(),
        Registries::plain_http,
    );
    let access = Access {
        registries: Arc::new(registries),
        ..Access::default()
    };
    let pull = async || {
        let pinned = images()
            .resolve(&home.reference("a/b:v1"), &access)
            .await
            .unwrap();
        images()
            .contents(&pinned, &access, &Limits::bundle())
            .await
            .unwrap()
    };
    home.log();
    let whole = pull().await;
    assert_eq!(home.log(), [""; 0], "the mirror has all of it");
    // The registry itself completes a transfer that a mirror breaks off.
    mirror.set(RegistryFault::Cut { ranges: true });
    assert!(pull().await == whole);
    assert!(home.log().iter().any(|line| line.contains("/blobs/")));
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
        "cannot fetch the digest of R/a/b:v1: registry `R` refuses the given credentials: its token service answers 401",
    )
    .await;
    check(
        server.reference("other/b:v1"),
        access("secret"),
        "cannot fetch the digest of R/other/b:v1: registry `R` refuses anonymous access: its token service answers 401",
    )
    .await;
    server.set(RegistryFault::HostileToken);
    check(
        server.reference("a/c:v1"),
        access("secret"),
        "cannot fetch the digest of R/a/c:v1: registry `R` breaks the protocol: the token is not allowed in a header",
    )
    .await;
}

#[tokio::test]
async fn a_missing_image_is_reported_as_missing() {
    let server = Server::start(Registry::default()).await;
    let error = pull(&server, &images()).await.unwrap_err();
    assert_eq!(
        error,
        "cannot fetch the digest of R/a/b:v1: registry `R` has no tag v1: not found"
    );
    let check = async |status: u16, tags: &'static str, expected: &str| {
        server.registry.lock().unwrap().tags = Some((status, tags));
        assert_eq!(pull(&server, &images()).await.unwrap_err(), expected, "{tags}");
    };
    check(
        200,
        r#"{"name":"a/b","tags":["v3","v2"]}"#,
        "cannot fetch the digest of R/a/b:v1: registry `R` has no tag v1 in repository a/b: it has v2, v3",
    )
    .await;
    check(
        200,
        r#"{"name":"a/b","tags":null}"#,
        "cannot fetch the digest of R/a/b:v1: registry `R` has no tag v1 in repository a/b: it has no tags",
    )
    .await;
    check(
        404,
        r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}"#,
        "cannot fetch the digest of R/a/b:v1: registry `R` has no repository a/b: repository name not known to registry",
    )
    .await;
    // If tags cannot be listed, the error is the original one.
    for (status, tags) in [(403, ""), (500, ""), (200, "<html>")] {
        check(
            status,
            tags,
            "cannot fetch the digest of R/a/b:v1: registry `R` has no tag v1: not found",
        )
        .await;
    }
    let pinned = server.reference("a/b").pin(Digest::of(b"x"));
    let error = images()
        .contents(&pinned, &server.access(), &Limits::bundle())
        .await
        .unwrap_err();
    assert!(chain(error.as_ref()).ends_with("manifest unknown"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_once_with_the_reason() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = closed.local_addr().unwrap().to_string();
    drop(closed);
    let access = Access {
        registries: Arc::new(Registries::default().plain_http(&dead)),
        ..Access::default()
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let reference = Reference::parse(&format!("{dead}/a/b:v1")).unwrap();
    let error = images().resolve(&reference, &access).await.unwrap_err();
    let text = chain(&error).replace(&dead, "R");
    let start = "cannot fetch the digest of R/a/b:v1: cannot reach registry `R`: Connection refused";
    assert!(text.starts_with(start), "{text}");
}

#[tokio::test]
async fn plain_http_is_spoken_only_where_it_is_allowed() {
    let server = Server::start(Registry::default()).await;
    push(&server, &sample()).await;
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
    push(&server, &image).await;
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
        let pinned = server.hold(&index);
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
async fn an_artifact_that_is_no_image_is_named_by_its_type() {
    let server = Server::start(Registry::default()).await;
    let image = sample();
    push(&server, &image).await;
    let check = async |config: &str, named: Option<&str>, expected: Option<&str>| {
        let mut manifest: serde_json::Value = serde_json::from_slice(&image.manifest).unwrap();
        manifest["config"]["mediaType"] = config.into();
        if let Some(named) = named {
            manifest["artifactType"] = named.into();
        }
        let pinned = server.hold(&manifest);
        let found = images()
            .contents(&pinned, &server.access(), &Limits::bundle())
            .await;
        assert_eq!(
            found.unwrap().artifact_type.as_deref(),
            expected,
            "{config} {named:?}"
        );
    };
    let helm = "application/vnd.cncf.helm.config.v1+json";
    check(helm, None, Some(helm)).await;
    check("application/vnd.oci.image.config.v1+json", None, None).await;
    check(
        "application/vnd.docker.container.image.v1+json",
        Some("x/y"),
        None,
    )
    .await;
    check("application/vnd.oci.empty.v1+json", Some("x/y"), Some("x/y")).await;
}

#[tokio::test]
async fn one_digest_is_fetched_once_for_all_who_ask_and_then_kept() {
    let server = Server::start(Registry::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        selection: selection(),
        cache: Some(directory.path().to_owned()),
        ..Options::new("test")
    };
    let images = Images::new(options());
    let pinned = images
        .push(&server.reference("a/b:v1"), &sample(), &server.access())
        .await
        .unwrap()
        .pinned;
    server.log();
    let (access, limits) = (server.access(), Limits::bundle());
    let calls = (0..10).map(|_| images.contents(&pinned, &access, &limits));
    let bundles = futures::future::join_all(calls).await;
    assert!(bundles.iter().all(Result::is_ok));
    assert_eq!(server.log().len(), 3, "a manifest, a configuration and a layer");
    let again = Images::new(options())
        .contents(&pinned, &access, &limits)
        .await
        .unwrap();
    assert_eq!(Ok(&again), bundles[0].as_ref().map_err(|_| ()));
    assert_eq!(
        server.log().len(),
        0,
        "the cache directory answers after a restart"
    );
}
