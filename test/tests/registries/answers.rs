//! Answers as registries of the field give them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Version;
use olm_image::{Access, Credential, Credentials, Digest, Images, LayerBuilder, Limits, Options, Reference};
use olm_image::{ImageBuilder, Platform};
use olm_test::registry::proxy::{BreakingRelay, Issued, ProxyBehaviour, RegistryProxy, ServerTls, named};
use olm_test::registry::tokens::TokenServer;
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;

use super::{Place, fails, images, logged_in, password, pull};

/// A server in front of a registry, and a client that trusts both.
pub(super) struct ProxiedRegistry {
    pub(super) place: Place,
    certificate: Issued,
    trusted: TempDir,
}

impl ProxiedRegistry {
    pub(super) async fn start() -> Result<Self> {
        let place = Place::start().await?;
        let certificate = Issued::alone(named("front", &["localhost", "127.0.0.1"])?, KeyPair::generate()?)?;
        let trusted = TempDir::new()?;
        std::fs::write(trusted.path().join("front.crt"), certificate.pem())?;
        std::fs::copy(&place.registry().ca, trusted.path().join("registry.crt"))?;
        Ok(Self {
            place,
            certificate,
            trusted,
        })
    }

    async fn proxy(&self, upstream: &str, behaviour: ProxyBehaviour) -> Result<RegistryProxy> {
        RegistryProxy::start(
            upstream,
            &self.place.registry().ca,
            &ServerTls::of(&self.certificate),
            behaviour,
        )
        .await
    }

    pub(super) async fn open(&self, behaviour: ProxyBehaviour) -> Result<RegistryProxy> {
        self.proxy(&format!("http://{}", self.place.registry().address), behaviour)
            .await
    }

    pub(super) fn images(&self) -> Images {
        images(Some(self.trusted.path().to_owned()))
    }
}

#[tokio::test]
async fn credentials_do_not_follow_to_the_object_storage() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let registry = proxied.place.registry();
    let name = super::push_to(registry, "team/app:v1").await?;
    let storage = proxied.open(ProxyBehaviour::default()).await?;
    let behaviour = ProxyBehaviour {
        storage: Some(format!("https://localhost:{}", storage.port)),
        ..ProxyBehaviour::default()
    };
    let proxy = proxied
        .proxy(&format!("https://{}", registry.auth), behaviour)
        .await?;
    let host = format!("127.0.0.1:{}", proxy.port);
    let mut credentials = Credentials::default();
    credentials.insert(&host, password(registry, &registry.password));
    // Not even existing credentials for the storage's name.
    credentials.insert(
        &format!("localhost:{}", storage.port),
        password(registry, "for the storage"),
    );
    let access = Access {
        credentials: Arc::new(credentials),
        ..Access::default()
    };
    pull(&proxied.images(), &format!("{host}/{name}"), &access)
        .await
        .map_err(anyhow::Error::msg)?;
    let (asked, stored) = (proxy.seen(), storage.seen());
    ensure!(asked.iter().any(|seen| seen.authorized), "{asked:?}");
    ensure!(
        stored.len() >= 2
            && stored
                .iter()
                .all(|seen| !seen.authorized && seen.request.contains("/blobs/")),
        "{stored:?}"
    );
    // After a redirect, the error names the storage's host, without the signature of its address.
    proxy.behave(|behaviour| behaviour.storage = Some("https://localhost:1".to_owned()));
    let lost = pull(&proxied.images(), &format!("{host}/{name}"), &access).await;
    let error = lost.clone().unwrap_err();
    ensure!(!error.contains("secret"), "{error}");
    fails(lost, "it leads to `localhost`: Connection refused")?;
    proxy.behave(|behaviour| behaviour.storage = Some(format!("http://{}", registry.address)));
    let plain = pull(&proxied.images(), &format!("{host}/{name}"), &access).await;
    fails(plain, "it redirects from HTTPS to HTTP, to `127.0.0.1`")
}

#[tokio::test]
async fn a_token_service_of_another_site_gets_nothing_unless_it_is_allowed() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let tokens = TokenServer::start().await?;
    std::fs::copy(&tokens.ca, proxied.trusted.path().join("tokens.crt"))?;
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/a.yaml", "name: app", 0o644)?;
    let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
    let right = logged_in(&tokens.address, tokens.identity_token)?;
    let name = format!("{}/team/app:v1", tokens.address);
    proxied
        .images()
        .push(&Reference::parse(&name)?, &image, &right)
        .await?;
    tokens.asked();
    let behaviour = ProxyBehaviour::default();
    let proxy = RegistryProxy::start(
        &format!("https://{}", tokens.address),
        &tokens.ca,
        &ServerTls::of(&proxied.certificate),
        behaviour,
    )
    .await?;
    // The realm is 127.0.0.1, which is not of the site `localhost`.
    let host = format!("localhost:{}", proxy.port);
    let access = logged_in(&host, tokens.identity_token)?;
    let reference = format!("{host}/team/app:v1");
    fails(
        pull(&proxied.images(), &reference, &access).await,
        "names a token service of another site, `127.0.0.1`, which is not allowed",
    )?;
    ensure!(tokens.asked().is_empty(), "the token service was asked");
    let allowing = Images::new(Options {
        authorities: Some(proxied.trusted.path().to_owned()),
        token_services: vec!["127.0.0.1".to_owned()],
        ..Options::new("olm-test")
    });
    pull(&allowing, &reference, &access)
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(!tokens.asked().is_empty(), "the token service was not asked");
    Ok(())
}

#[tokio::test]
async fn several_challenges_in_one_header_are_understood() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let registry = proxied.place.registry();
    let name = super::push_to(registry, "team/app:v1").await?;
    let behaviour = ProxyBehaviour {
        challenge: Some(
            r#"Negotiate, Digest realm="a, b", nonce="c", Basic realm="Artifactory Realm""#.to_owned(),
        ),
        ..ProxyBehaviour::default()
    };
    let proxy = proxied
        .proxy(&format!("https://{}", registry.auth), behaviour)
        .await?;
    let host = format!("127.0.0.1:{}", proxy.port);
    let mut credentials = Credentials::default();
    credentials.insert(&host, password(registry, &registry.password));
    let access = Access {
        credentials: Arc::new(credentials),
        ..Access::default()
    };
    pull(&proxied.images(), &format!("{host}/{name}"), &access)
        .await
        .map_err(anyhow::Error::msg)?;
    Ok(())
}

#[tokio::test]
async fn a_limit_is_waited_for_as_the_registry_asks() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let name = super::push_to(proxied.place.registry(), "team/app:v1").await?;
    let proxy = proxied.open(ProxyBehaviour::default()).await?;
    let reference = format!("127.0.0.1:{}/{name}", proxy.port);
    let refuse = |refusals: &[(u16, &str)]| {
        let refusals = refusals
            .iter()
            .map(|(status, wait)| (*status, (*wait).to_owned()));
        proxy.behave(|behaviour| behaviour.refusals = refusals.collect());
    };
    refuse(&[(429, "1"), (503, "1")]);
    let start = Instant::now();
    pull(&proxied.images(), &reference, &Access::default())
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    // The registry wants more patience than one pull has: its caller asks again.
    for (wait, words) in [
        (
            "3500",
            "answers 429: too many requests; it asks to wait an hour at most",
        ),
        (
            "Fri, 01 Jan 2100 00:00:00 GMT",
            "it asks to wait more than an hour",
        ),
    ] {
        refuse(&[(429, wait)]);
        let start = Instant::now();
        fails(
            pull(&proxied.images(), &reference, &Access::default()).await,
            words,
        )?;
        ensure!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn a_tag_is_resolved_where_the_registry_does_not_name_its_digest() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let pushed = proxied.place.push("team/app:v1").await?;
    let behaviour = ProxyBehaviour {
        hides_digest: true,
        ..ProxyBehaviour::default()
    };
    let proxy = proxied.open(behaviour).await?;
    let reference = format!("127.0.0.1:{}/team/app:v1", proxy.port);
    let digest = pull(&proxied.images(), &reference, &Access::default())
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(digest == *pushed.digest(), "{digest}");
    Ok(())
}

#[tokio::test]
async fn http_2_is_spoken_with_whom_speaks_it() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let name = super::push_to(proxied.place.registry(), "team/app:v1").await?;
    for (protocols, expected) in [
        (vec!["h2"], Version::HTTP_2),
        (vec!["h2", "http/1.1"], Version::HTTP_2),
        (vec!["http/1.1"], Version::HTTP_11),
        (vec![], Version::HTTP_11),
    ] {
        let tls = ServerTls {
            protocols,
            ..ServerTls::of(&proxied.certificate)
        };
        let registry = proxied.place.registry();
        let upstream = format!("http://{}", registry.address);
        let proxy = RegistryProxy::start(&upstream, &registry.ca, &tls, ProxyBehaviour::default()).await?;
        let reference = format!("127.0.0.1:{}/{name}", proxy.port);
        pull(&proxied.images(), &reference, &Access::default())
            .await
            .map_err(anyhow::Error::msg)?;
        let seen = proxy.seen();
        ensure!(
            !seen.is_empty() && seen.iter().all(|seen| seen.version == expected),
            "{seen:?}"
        );
    }
    Ok(())
}

/// Puts a manifest of any kind into the registry.
async fn put(place: &Place, repository: &str, tag: &str, kind: &str, manifest: &str) -> Result<Digest> {
    let url = format!(
        "http://{}/v2/{repository}/manifests/{tag}",
        place.registry().address
    );
    reqwest::Client::new()
        .put(url)
        .header("content-type", kind)
        .body(manifest.to_owned())
        .send()
        .await?
        .error_for_status()?;
    Ok(Digest::of(manifest.as_bytes()))
}

#[tokio::test]
async fn the_platform_is_found_among_attestations_and_unknown_platforms() -> Result<()> {
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let place = Place::start().await?;
    let image = place.push("team/app:plain").await?;
    let registry = place.registry();
    let url = format!(
        "http://{}/v2/team/app/manifests/{}",
        registry.address,
        image.digest()
    );
    let text = reqwest::Client::new()
        .get(url)
        .header("accept", MANIFEST)
        .send()
        .await?
        .error_for_status()?
        .text()
        .await?;
    // Equivalent manifests under other digests; their content does not matter.
    let mut entries = Vec::new();
    for number in 0..5 {
        let other = format!("{text}{}", " ".repeat(number + 1));
        let digest = put(&place, "team/app", &format!("o{number}"), MANIFEST, &other).await?;
        entries.push((digest, other.len()));
    }
    let host = Platform::host();
    let entry = |(digest, size): &(Digest, usize), platform: serde_json::Value, attests: bool| {
        let mut entry = json!({ "mediaType": MANIFEST, "digest": digest.to_string(), "size": size, "platform": platform });
        if attests {
            entry["annotations"] = json!({
                "vnd.docker.reference.digest": image.digest().to_string(),
                "vnd.docker.reference.type": "attestation-manifest",
            });
        }
        entry
    };
    let own = (image.digest().clone(), text.len());
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            entry(&entries[0], json!({ "os": "unknown", "architecture": "unknown" }), true),
            entry(&entries[1], json!({ "os": "plan9", "architecture": "z80", "os.features": ["x"] }), false),
            entry(&entries[2], json!({ "os": "windows", "architecture": host.architecture, "os.version": "10.0" }), false),
            entry(&own, json!({ "os": host.os, "architecture": host.architecture }), false),
            entry(&entries[3], json!({ "os": host.os, "architecture": "wasm", "variant": "v9" }), false),
            entry(&entries[4], json!({ "os": "unknown", "architecture": "unknown" }), true),
        ],
    });
    let kind = "application/vnd.oci.image.index.v1+json";
    let digest = put(&place, "team/app", "index", kind, &index.to_string()).await?;
    let reference = Reference::parse(&format!("{}/team/app:index", registry.tls))?;
    let images = place.images();
    let pinned = images.resolve(&reference, &Access::default()).await?;
    ensure!(*pinned.digest() == digest, "{pinned}");
    let chosen = images
        .image(&pinned, &Access::default(), &Limits::bundle())
        .await?;
    ensure!(chosen.manifest() == image.digest(), "{:?}", chosen.manifest());
    let platforms = images.platforms(&reference, &Access::default()).await?;
    ensure!(
        platforms.len() == 4 && platforms.iter().all(|platform| platform.os != "unknown"),
        "{platforms:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_old_format_of_docker_is_refused_with_words() -> Result<()> {
    let proxied = ProxiedRegistry::start().await?;
    let old = json!({
        "schemaVersion": 1, "name": "team/app", "tag": "v1", "architecture": "amd64",
        "fsLayers": [{ "blobSum": Digest::of(b"x").to_string() }],
        "history": [{ "v1Compatibility": "{}" }],
        "signatures": [],
    });
    let kind = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let behaviour = ProxyBehaviour {
        manifest: Some((kind.to_owned(), old.to_string())),
        ..ProxyBehaviour::default()
    };
    let proxy = proxied.open(behaviour).await?;
    let reference = format!("127.0.0.1:{}/team/app:v1", proxy.port);
    fails(
        pull(&proxied.images(), &reference, &Access::default()).await,
        "it has Docker's old format, schema 1, which is not supported: push the image again with a current tool",
    )
}

#[tokio::test]
async fn a_slow_blob_continues_where_it_broke_off() -> Result<()> {
    let place = Place::start().await?;
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(2 << 20)
    .collect();
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/noise", noise, 0o644)?;
    let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
    let reference = Reference::parse(&format!("{}/team/large:v1", place.registry().tls))?;
    place
        .images()
        .push(&reference, &image, &Access::default())
        .await?;
    let relay = BreakingRelay::start(place.registry().tls.clone(), 400 << 10).await?;
    let digest = pull(
        &place.images(),
        &format!("127.0.0.1:{}/team/large:v1", relay.port),
        &Access::default(),
    )
    .await
    .map_err(anyhow::Error::msg)?;
    ensure!(digest == image.digest(), "{digest}");
    // More than one connection took a part, and none of them could carry the whole.
    ensure!((5..20).contains(&relay.connections()), "{}", relay.connections());
    Ok(())
}

#[tokio::test]
async fn a_registry_token_and_a_wrong_one_are_distinguished() -> Result<()> {
    let place = Place::start().await?;
    let name = super::push_to(place.registry(), "team/app:v1").await?;
    let host = place.registry().auth.clone();
    let mut credentials = Credentials::default();
    credentials.insert(&host, Credential::RegistryToken("wrong".to_owned()));
    let access = Access {
        credentials: Arc::new(credentials),
        ..Access::default()
    };
    fails(
        pull(&place.images(), &format!("{host}/{name}"), &access).await,
        "refuses the given credentials",
    )
}
