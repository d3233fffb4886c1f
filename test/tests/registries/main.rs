//! The sources of images, tested with a real registry with TLS, passwords and tokens: credentials, authorities,
//! mirrors, signature policies, proxies.
#![expect(
    clippy::unwrap_used,
    reason = "what cannot be set up or parsed fails the test, wherever it happens"
)]

mod answers;
mod bounds;
mod proxies;
mod signed;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use olm_image::{
    Access, Credential, Credentials, Digest, ImageBuilder, Images, LayerBuilder, Limits, Options, Pinned,
    Platform, Policy, Reference, Registries,
};
use olm_test::registry::signatures::{key, sign};
use olm_test::registry::tokens::{TokenCredential, TokenProperties, TokenServer};
use olm_test::registry::{Registry, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A registry, and clients that do and do not know its authority.
struct Place {
    server: Server,
    authorities: TempDir,
}

impl Place {
    async fn start() -> Result<Self> {
        olm_platform::crypto::install();
        let server = Server::start().await?;
        let authorities = TempDir::new()?;
        std::fs::copy(&server.registry().ca, authorities.path().join("ca.crt"))?;
        Ok(Self { server, authorities })
    }

    fn registry(&self) -> &Registry {
        self.server.registry()
    }

    fn images(&self) -> Images {
        images(Some(self.authorities.path().to_owned()))
    }

    /// Pushes a small image and returns its reference by digest at the registry with TLS.
    async fn push(&self, name: &str) -> Result<Pinned> {
        let mut layer = LayerBuilder::new();
        layer.bytes("manifests/a.yaml", format!("name: {name}"), 0o644)?;
        let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
        let reference = Reference::parse(&format!("{}/{name}", self.registry().tls))?;
        let pushed = self.images().push(&reference, &image, &Access::default()).await?;
        Ok(pushed.pinned)
    }
}

/// Pushes a small image to a registry over plain HTTP and returns its name in it.
async fn push_to(registry: &Registry, name: &str) -> Result<String> {
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/a.yaml", format!("name: {name}"), 0o644)?;
    let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
    let reference = Reference::parse(&format!("{}/{name}", registry.address))?;
    let access = Access {
        registries: Arc::new(Registries::default().plain_http(&registry.address)),
        ..Access::default()
    };
    images(None).push(&reference, &image, &access).await?;
    Ok(name.to_owned())
}

/// Adds another tag to an image, and returns its digest.
async fn copy_tag(registry: &Registry, repository: &str, from: &str, to: &str) -> Result<String> {
    let client = reqwest::Client::new();
    let place = |tag: &str| format!("http://{}/v2/{repository}/manifests/{tag}", registry.address);
    let accepted = "application/vnd.oci.image.manifest.v1+json";
    let found = client.get(place(from)).header("accept", accepted).send().await?;
    let kind = found.headers().get("content-type").cloned();
    let manifest = found.error_for_status()?.bytes().await?;
    let kind = kind.context("a manifest has a type")?;
    let digest = Digest::of(&manifest).to_string();
    let put = client.put(place(to)).header("content-type", kind).body(manifest);
    put.send().await?.error_for_status()?;
    Ok(digest)
}

fn images(authorities: Option<PathBuf>) -> Images {
    Images::new(Options {
        authorities,
        ..Options::new("olm-test")
    })
}

/// Pulls an image to its last byte; the error is the whole chain of causes.
async fn pull(images: &Images, reference: &str, access: &Access) -> Result<Digest, String> {
    let reference = Reference::parse(reference).unwrap();
    let pinned = images
        .resolve(&reference, access)
        .await
        .map_err(|error| olm_platform::log::chain(&error))?;
    let limits = Limits::bundle();
    images
        .contents(&pinned, access, &limits)
        .await
        .map_err(|error| olm_platform::log::chain(error.as_ref()))?;
    Ok(pinned.digest().clone())
}

fn fails(result: Result<Digest, String>, expected: &str) -> Result<()> {
    match result {
        Err(error) if error.contains(expected) => Ok(()),
        other => anyhow::bail!("wanted {expected:?}, got {other:?}"),
    }
}

fn password(registry: &Registry, password: &str) -> Credential {
    Credential::Password {
        username: registry.username.clone(),
        password: password.to_owned(),
    }
}

#[tokio::test]
async fn credentials_are_used_for_the_paths_that_their_key_covers() -> Result<()> {
    let place = Place::start().await?;
    let registry = place.registry();
    for name in ["team/app:v1", "team/app/deep:v1", "teammate:v1"] {
        place.push(name).await?;
    }
    let with = |entries: &[(String, &str)]| {
        let mut credentials = Credentials::default();
        for (key, text) in entries {
            credentials.insert(key, password(registry, text));
        }
        Access {
            credentials: Arc::new(credentials),
            ..Access::default()
        }
    };
    let images = place.images();
    let name = |rest: &str| format!("{}/{rest}", registry.auth);
    let host = registry.auth.clone();
    let none = with(&[]);
    fails(
        pull(&images, &name("team/app:v1"), &none).await,
        "refuses anonymous access",
    )?;
    let wrong = with(&[(host.clone(), "wrong")]);
    fails(
        pull(&images, &name("team/app:v1"), &wrong).await,
        "refuses the given credentials",
    )?;
    let right = with(&[(host.clone(), &registry.password)]);
    pull(&images, &name("team/app:v1"), &right)
        .await
        .map_err(anyhow::Error::msg)?;
    // The longest key counts, whole path components at a time.
    let longest = with(&[(host, "wrong"), (name("team/app"), &registry.password)]);
    for covered in ["team/app:v1", "team/app/deep:v1"] {
        pull(&images, &name(covered), &longest)
            .await
            .map_err(anyhow::Error::msg)?;
    }
    fails(
        pull(&images, &name("teammate:v1"), &longest).await,
        "refuses the given credentials",
    )?;
    Ok(())
}

/// The file that `docker login` writes if the registry returned an identity token.
fn logged_in(registry: &str, identity_token: &str) -> Result<Access> {
    let entry = json!({ "auth": STANDARD.encode("00000000-0000-0000-0000-000000000000:"), "identitytoken": identity_token });
    let config = json!({ "auths": { registry: entry } }).to_string();
    Ok(Access {
        credentials: Arc::new(Credentials::parse_dockerconfigjson(config.as_bytes())?),
        ..Access::default()
    })
}

#[tokio::test]
async fn an_identity_token_is_exchanged_for_tokens_that_the_registry_takes() -> Result<()> {
    olm_platform::crypto::install();
    let server = TokenServer::start().await?;
    let authorities = TempDir::new()?;
    std::fs::copy(&server.ca, authorities.path().join("ca.crt"))?;
    let fresh = || images(Some(authorities.path().to_owned()));
    let name = format!("{}/team/app:v1", server.address);

    // A client with the password gets tokens, too, also for pushes.
    let mut credentials = Credentials::default();
    credentials.insert(
        &server.address,
        Credential::Password {
            username: server.username.to_owned(),
            password: server.password.to_owned(),
        },
    );
    let with_password = Access {
        credentials: Arc::new(credentials),
        ..Access::default()
    };
    let mut layer = LayerBuilder::new();
    layer.bytes("manifests/a.yaml", "name: app", 0o644)?;
    let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
    fresh()
        .push(&Reference::parse(&name)?, &image, &with_password)
        .await?;
    let asked = server.asked();
    ensure!(
        !asked.is_empty() && asked.iter().all(|how| *how == TokenCredential::Password),
        "{asked:?}"
    );
    fails(
        pull(&fresh(), &name, &Access::default()).await,
        "refuses anonymous access: its token service answers 401 (access_denied)",
    )?;

    let right = logged_in(&server.address, server.identity_token)?;
    let wrong = logged_in(&server.address, "another")?;
    server.asked();
    fails(
        pull(&fresh(), &name, &wrong).await,
        "refuses the given identity token: its token service answers 400 (invalid_grant)",
    )?;
    // A permanent refusal of a registry is not retried.
    ensure!(server.asked() == [TokenCredential::Identity], "asked again");

    // A token is used for as long as it lasts, and not for longer. Tokens are given up a quarter of a minute before.
    let client = fresh();
    for _ in 0..3 {
        let digest = pull(&client, &name, &right).await.map_err(anyhow::Error::msg)?;
        ensure!(digest == image.digest());
    }
    ensure!(
        server.asked() == [TokenCredential::Identity],
        "one token is enough"
    );
    server.give(TokenProperties {
        claimed: Duration::from_secs(16),
        expired: false,
    });
    let client = fresh();
    pull(&client, &name, &right).await.map_err(anyhow::Error::msg)?;
    let before = server.asked().len();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    pull(&client, &name, &right).await.map_err(anyhow::Error::msg)?;
    let after = server.asked();
    ensure!(
        before > 0 && !after.is_empty() && after.iter().all(|how| *how == TokenCredential::Identity),
        "{before} times, then {after:?}"
    );

    // The registry decides whether a token is still valid.
    let kind = TokenProperties {
        claimed: Duration::from_mins(5),
        expired: true,
    };
    server.give(kind);
    let client = fresh();
    fails(
        pull(&client, &name, &right).await,
        "refuses the given identity token",
    )?;
    server.give(TokenProperties {
        expired: false,
        ..kind
    });
    server.asked();
    pull(&client, &name, &right).await.map_err(anyhow::Error::msg)?;
    ensure!(
        server.asked() == [TokenCredential::Identity],
        "what the registry does not take is not kept"
    );
    Ok(())
}

#[tokio::test]
async fn a_registry_has_to_prove_who_it_is() -> Result<()> {
    let place = Place::start().await?;
    let registry = place.registry();
    place.push("app:v1").await?;
    let tls = format!("{}/app:v1", registry.tls);
    let plain = format!("{}/app:v1", registry.address);
    let stranger = images(None);
    let verified = Access::default();
    fails(pull(&stranger, &tls, &verified).await, "cannot reach registry")?;
    fails(pull(&stranger, &plain, &verified).await, "cannot reach registry")?;
    pull(&place.images(), &tls, &verified)
        .await
        .map_err(anyhow::Error::msg)?;
    // A registry that is configured as insecure needs no trusted certificate.
    for (reference, address) in [(&tls, &registry.tls), (&plain, &registry.address)] {
        let text = format!("registry = [{{ location = \"{address}\", insecure = true }}]");
        let access = configured(&text)?;
        pull(&stranger, reference, &access)
            .await
            .map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

fn configured(text: &str) -> Result<Access> {
    Ok(Access {
        registries: Arc::new(Registries::parse([("registries.conf", text)])?),
        ..Access::default()
    })
}

#[tokio::test]
async fn the_configuration_of_registries_says_where_images_come_from() -> Result<()> {
    let place = Place::start().await?;
    let registry = place.registry();
    let pushed = place.push("copy/app:v1").await?;
    let images = place.images();
    // No server listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let text = format!(
        r#"
        [[registry]]
        prefix = "origin.example/team"
        location = "{gone}"
        [[registry.mirror]]
        location = "{gone}/first"
        [[registry.mirror]]
        location = "{tls}/copy"
        [[registry]]
        prefix = "digests.example"
        location = "{gone}"
        mirror-by-digest-only = true
        mirror = [{{ location = "{tls}/copy" }}]
        [[registry]]
        prefix = "tags.example"
        location = "{gone}"
        mirror = [{{ location = "{tls}/copy", pull-from-mirror = "tag-only" }}]
        [[registry]]
        prefix = "private.example"
        location = "{gone}"
        mirror = [{{ location = "{auth}/copy" }}]
        [[registry]]
        prefix = "trusted.example"
        location = "{gone}"
        mirror = [{{ location = "{tls}/copy", insecure = true }}]
        [[registry]]
        prefix = "moved.example"
        location = "{tls}/copy"
        [[registry]]
        prefix = "moved.example/blocked"
        blocked = true
        "#,
        tls = registry.tls,
        auth = registry.auth,
    );
    let access = configured(&text)?;
    let by_digest = |name: &str| format!("{name}@{}", pushed.digest());
    for reference in [
        "origin.example/team/app:v1".to_owned(),
        "moved.example/app:v1".to_owned(),
        by_digest("digests.example/app"),
        // To the last byte, which is requested by digest.
        "tags.example/app:v1".to_owned(),
    ] {
        let digest = pull(&images, &reference, &access)
            .await
            .map_err(anyhow::Error::msg)?;
        ensure!(digest == *pushed.digest(), "{reference}");
    }
    // A mirror sees the credential that is meant for it, and no other's.
    let mut credentials = Credentials::default();
    credentials.insert("private.example", password(registry, "wrong"));
    credentials.insert(&registry.auth, password(registry, &registry.password));
    let private = Access {
        credentials: Arc::new(credentials),
        ..access.clone()
    };
    pull(&images, "private.example/app:v1", &private)
        .await
        .map_err(anyhow::Error::msg)?;
    // An insecure mirror needs no valid certificate.
    let stranger = self::images(None);
    pull(&stranger, "trusted.example/app:v1", &access)
        .await
        .map_err(anyhow::Error::msg)?;
    // If a mirror fails, the registry itself is used.
    let useless = [
        (&images, "digests.example/app:v1".to_owned()),
        (&images, by_digest("tags.example/app")),
        (&images, "private.example/app:v1".to_owned()),
        (&stranger, "moved.example/app:v1".to_owned()),
    ];
    let pulls = useless
        .each_ref()
        .map(|(images, reference)| pull(images, reference, &access));
    for result in join_all(pulls).await {
        fails(result, "cannot reach registry")?;
    }
    let blocked = pull(&images, "moved.example/blocked/app:v1", &access).await;
    fails(
        blocked,
        "the configuration of registries blocks `moved.example/blocked`",
    )?;
    ensure!(
        Reference::parse("app:v1").is_err(),
        "a short name could be any publisher's image"
    );
    Ok(())
}

#[tokio::test]
async fn the_signature_policy_accepts_signed_images_only() -> Result<()> {
    let place = Place::start().await?;
    let registry = place.registry();
    let (public, pair) = key()?;
    let (_, stranger) = key()?;
    let signed = place.push("team/signed:v1").await?;
    sign(registry, "team/signed:v1", signed.digest(), &pair).await?;
    let forged = place.push("team/forged:v1").await?;
    sign(registry, "team/forged", forged.digest(), &stranger).await?;
    let bare = place.push("team/bare:v1").await?;

    let scope = |rest: &str| format!("{}/{rest}", registry.tls);
    let requirement = |more: Value| {
        let mut requirement = json!({ "type": "sigstoreSigned", "keyPath": "/keys/team.pub" });
        requirement
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([requirement])
    };
    let access = |policy: Value| -> Result<Access> {
        let policy = Policy::parse(&policy.to_string(), |_| Ok(public.clone().into_bytes()))?;
        Ok(Access {
            policy: Arc::new(policy),
            ..Access::default()
        })
    };
    let team = access(json!({
        "default": [{ "type": "reject" }],
        "transports": { "docker": {
            scope("team"): requirement(json!({})),
            scope("team/trusted"): [{ "type": "insecureAcceptAnything" }],
            scope("open"): [{ "type": "insecureAcceptAnything" }],
            scope("old"): [{ "type": "signedBy", "keyType": "GPGKeys", "keyPath": "/keys/old.gpg" }],
        } },
    }))?;
    let cache = TempDir::new()?;
    let images = Images::new(Options {
        authorities: Some(place.authorities.path().to_owned()),
        cache: Some(cache.path().to_owned()),
        ..Options::new("olm-test")
    });
    // Content fetched before signatures were required does not bypass the policy.
    for name in ["team/signed:v1", "team/bare:v1"] {
        pull(&images, &scope(name), &Access::default())
            .await
            .map_err(anyhow::Error::msg)?;
    }
    for reference in [scope("team/signed:v1"), signed.to_string()] {
        pull(&images, &reference, &team)
            .await
            .map_err(anyhow::Error::msg)?;
    }
    for reference in [scope("team/bare:v1"), bare.to_string()] {
        fails(
            pull(&images, &reference, &team).await,
            "there is none at tag sha256-",
        )?;
    }
    fails(
        pull(&images, &scope("team/forged:v1"), &team).await,
        "it was not made with a trusted key",
    )?;
    for (name, expected) in [
        ("open/app:v1", None),
        // The most specific scope counts.
        ("team/trusted/app:v1", None),
        ("old/app:v1", Some("asks for `signedBy`")),
        (
            "other/app:v1",
            Some("the signature policy (scope default, requirement 1) rejects it"),
        ),
    ] {
        place.push(name).await?;
        let result = pull(&images, &scope(name), &team).await;
        match expected {
            None => drop(result.map_err(anyhow::Error::msg)?),
            Some(expected) => fails(result, expected)?,
        }
    }
    // A signature of an older version is not valid for a newer one, and not for the latest.
    let old = copy_tag(registry, "team/signed", "v1", "v2").await?;
    ensure!(old == signed.digest().to_string(), "{old}");
    for tag in ["v2", "latest"] {
        copy_tag(registry, "team/signed", "v1", tag).await?;
        let said = format!("{}/team/signed:v1\", which does not match", registry.tls);
        fails(
            pull(&images, &scope(&format!("team/signed:{tag}")), &team).await,
            &said,
        )?;
    }
    fails(
        pull(&images, &scope("team/signed"), &team).await,
        "which does not match",
    )?;
    let whatever = json!({ "signedIdentity": { "type": "matchRepository" } });
    let lenient = access(json!({ "default": requirement(whatever) }))?;
    pull(&images, &scope("team/signed:v2"), &lenient)
        .await
        .map_err(anyhow::Error::msg)?;
    // A signature about another name does not count.
    let elsewhere =
        json!({ "signedIdentity": { "type": "exactRepository", "dockerRepository": "other.example/app" } });
    let exact = access(json!({ "default": requirement(elsewhere) }))?;
    fails(pull(&images, &signed.to_string(), &exact).await, "it is about")
}
