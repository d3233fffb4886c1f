//! Certificates as registries of the field show them.

use std::path::Path;

use anyhow::{Result, ensure};
use olm_image::Access;
use olm_test::registry::Server;
use olm_test::registry::proxy::{Issued, ProxyBehaviour, RegistryProxy, ServerTls, authority, named};
use olm_test::registry::tokens::{TokenCredential, TokenServer};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};
use rustls::SupportedProtocolVersion;
use rustls::version::TLS12;
use tempfile::TempDir;

use super::{Place, fails, images, pull};

const ONLY_1_2: &[&SupportedProtocolVersion] = &[&TLS12];
const HOSTS: &[&str] = &["localhost", "127.0.0.1"];

fn leaf() -> Result<CertificateParams> {
    named("registry", HOSTS)
}

/// A server certificate as from `openssl req -x509`, or cert-manager with `isCA`.
fn flagged() -> Result<CertificateParams> {
    let mut terms = leaf()?;
    terms.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    Ok(terms)
}

fn key() -> Result<KeyPair> {
    Ok(KeyPair::generate()?)
}

fn trusting(certificates: &[&Issued]) -> Result<TempDir> {
    let folder = TempDir::new()?;
    for (number, certificate) in certificates.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.crt")), certificate.pem())?;
    }
    Ok(folder)
}

#[tokio::test]
async fn a_registry_whose_own_certificate_is_a_cas_is_used() -> Result<()> {
    olm_platform::crypto::install();
    let alone = Issued::alone(flagged()?, key()?)?;
    let server = Server::start_showing(&alone.pem(), &alone.key()?.serialize_pem(), &alone.pem()).await?;
    let registry = server.registry();
    let name = super::push_to(registry, "team/app:v1").await?;
    let trusted = trusting(&[&alone])?;
    for host in [
        registry.tls.clone(),
        registry.tls.replace("127.0.0.1", "localhost"),
    ] {
        let images = images(Some(trusted.path().to_owned()));
        pull(&images, &format!("{host}/{name}"), &Access::default())
            .await
            .map_err(anyhow::Error::msg)?;
    }
    // Another one of the same name, with the flag too, is not believed for it.
    let other = trusting(&[&Issued::alone(flagged()?, key()?)?])?;
    let (stranger, reference) = (
        images(Some(other.path().to_owned())),
        format!("{}/{name}", registry.tls),
    );
    let refused = pull(&stranger, &reference, &Access::default()).await;
    fails(refused, "the certificate is not trusted: ")
}

/// A registry behind a server of which only the TLS settings change.
struct TlsRegistry {
    place: Place,
    name: String,
}

impl TlsRegistry {
    async fn start() -> Result<Self> {
        let place = Place::start().await?;
        let name = super::push_to(place.registry(), "team/app:v1").await?;
        Ok(Self { place, name })
    }

    /// Pulls from a server with these TLS settings as a client that trusts the authorities in a folder.
    async fn pull(&self, tls: &ServerTls<'_>, trusted: &Path, host: &str) -> Result<Result<(), String>> {
        let registry = self.place.registry();
        let upstream = format!("http://{}", registry.address);
        let proxy = RegistryProxy::start(&upstream, &registry.ca, tls, ProxyBehaviour::default()).await?;
        let reference = format!("{host}:{}/{}", proxy.port, self.name);
        let images = images(Some(trusted.to_owned()));
        Ok(pull(&images, &reference, &Access::default()).await.map(drop))
    }

    async fn passes(&self, tls: ServerTls<'_>, trusted: &[&Issued]) -> Result<()> {
        let trusted = trusting(trusted)?;
        // For an address, the client sends no server name (SNI).
        for host in HOSTS {
            let result = self.pull(&tls, trusted.path(), host).await?;
            ensure!(result.is_ok(), "{host} {:?}: {result:?}", tls.leaf);
        }
        Ok(())
    }

    async fn refuses(&self, tls: ServerTls<'_>, trusted: &[&Issued], expected: &[&str]) -> Result<()> {
        let trusted = trusting(trusted)?;
        let error = self.pull(&tls, trusted.path(), "localhost").await?.unwrap_err();
        for part in expected {
            ensure!(error.contains(part), "{part:?} is not in {error:?}");
        }
        Ok(())
    }
}

#[tokio::test]
async fn certificates_of_the_field_are_believed_as_far_as_an_authority_vouches_for_them() -> Result<()> {
    let registry = TlsRegistry::start().await?;
    let root = Issued::alone(authority("root")?, key()?)?;
    let middle = root.issue(authority("middle")?, key()?)?;
    let unknown = "no trusted authority issued it";
    for terms in [leaf()?, flagged()?] {
        let alone = Issued::alone(terms.clone(), key()?)?;
        let direct = root.issue(terms.clone(), key()?)?;
        let indirect = middle.issue(terms, key()?)?;
        registry.passes(ServerTls::of(&alone), &[&alone]).await?;
        registry.passes(ServerTls::of(&direct), &[&root]).await?;
        registry.passes(ServerTls::of(&direct), &[&direct]).await?;
        let whole = ServerTls {
            intermediates: vec![&middle],
            ..ServerTls::of(&indirect)
        };
        registry.passes(whole, &[&root]).await?;
        registry
            .refuses(ServerTls::of(&alone), &[&root], &[unknown])
            .await?;
        let hint = "add the certificate of its issuer to ";
        registry
            .refuses(
                ServerTls::of(&indirect),
                &[&root],
                &[unknown, "issuer `CN=middle`", hint],
            )
            .await?;

        // The intermediate's key has a certificate of another authority, too.
        let old = Issued::alone(authority("old")?, key()?)?;
        let crossed = old.issue(authority("middle")?, middle.key()?)?;
        for trusted in [&old, &root] {
            let tls = ServerTls {
                intermediates: vec![&crossed, &middle],
                ..ServerTls::of(&indirect)
            };
            registry.passes(tls, &[trusted]).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn wrong_certificates_are_refused_with_found_and_expected_names() -> Result<()> {
    let registry = TlsRegistry::start().await?;
    let root = Issued::alone(authority("root")?, key()?)?;
    for mut terms in [leaf()?, flagged()?] {
        let refuses = async |terms: CertificateParams, expected: &[&str]| -> Result<()> {
            let server = root.issue(terms, key()?)?;
            registry
                .refuses(ServerTls::of(&server), &[&root], expected)
                .await?;
            // Not even if it is itself trusted.
            registry
                .refuses(ServerTls::of(&server), &[&server], expected)
                .await
        };
        let original = terms.clone();
        terms.subject_alt_names.clear();
        terms
            .distinguished_name
            .push(rcgen::DnType::CommonName, "localhost");
        refuses(
            terms,
            &[
                "cannot reach registry `localhost:",
                "it names no host, and `localhost` is expected",
                "subject `CN=localhost`, issuer `CN=root`, for no host,",
            ],
        )
        .await?;
        let mut terms = original.clone();
        terms.not_before = date_time_ymd(2000, 2, 3);
        terms.not_after = date_time_ymd(2001, 2, 3);
        let dates = "valid from 2000-02-03 00:00 UTC to 2001-02-03 00:00 UTC";
        refuses(terms, &["it has expired", dates, "renew it"]).await?;
        let mut terms = original.clone();
        terms.not_before = date_time_ymd(2999, 1, 1);
        terms.not_after = date_time_ymd(3000, 1, 1);
        refuses(terms, &["it is not valid yet", "compare the clocks"]).await?;
        let mut terms = original;
        terms.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        refuses(
            terms,
            &["its extended key usage does not name servers", "`serverAuth`"],
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn old_versions_and_all_kinds_of_keys_work() -> Result<()> {
    let registry = TlsRegistry::start().await?;
    let keys = [
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?,
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?,
        KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)?,
    ];
    for key in keys {
        let server = Issued::alone(flagged()?, key)?;
        registry.passes(ServerTls::of(&server), &[&server]).await?;
        let old = ServerTls {
            versions: ONLY_1_2,
            ..ServerTls::of(&server)
        };
        registry.passes(old, &[&server]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mirrors_token_services_and_storages_may_have_the_flag_too() -> Result<()> {
    olm_platform::crypto::install();
    let shown = Issued::alone(flagged()?, key()?)?;
    let trusted = trusting(&[&shown])?;
    let proxy = async |upstream: &str, ca: &Path, behaviour: ProxyBehaviour| {
        RegistryProxy::start(upstream, ca, &ServerTls::of(&shown), behaviour).await
    };
    let pulls = async |reference: &str, access: &Access| {
        let images = images(Some(trusted.path().to_owned()));
        let pulled = pull(&images, reference, access).await;
        pulled.map(drop).map_err(anyhow::Error::msg)
    };
    let server = TlsRegistry::start().await?;
    let registry = server.place.registry();
    let upstream = format!("http://{}", registry.address);

    let mirror = proxy(&upstream, &registry.ca, ProxyBehaviour::default()).await?;
    let text = format!(
        "[[registry]]\nprefix = \"origin.test\"\nlocation = \"127.0.0.1:1\"\nmirror = [{{ location = \"localhost:{}\" }}]\n",
        mirror.port
    );
    pulls(
        &format!("origin.test/{}", server.name),
        &super::configured(&text)?,
    )
    .await?;
    ensure!(!mirror.seen().is_empty(), "the mirror was not asked");

    let storage = proxy(&upstream, &registry.ca, ProxyBehaviour::default()).await?;
    let behaviour = ProxyBehaviour {
        storage: Some(format!("https://localhost:{}", storage.port)),
        ..ProxyBehaviour::default()
    };
    let redirecting = proxy(&upstream, &registry.ca, behaviour).await?;
    let reference = format!("localhost:{}/{}", redirecting.port, server.name);
    pulls(&reference, &Access::default()).await?;
    ensure!(!storage.seen().is_empty(), "the storage was not asked");

    let tokens = TokenServer::start().await?;
    let service = proxy(&tokens.service, &tokens.ca, ProxyBehaviour::default()).await?;
    let behaviour = ProxyBehaviour {
        challenge: Some(format!(
            r#"Bearer realm="https://localhost:{}/token",service="tests""#,
            service.port
        )),
        ..ProxyBehaviour::default()
    };
    let asking = proxy(&format!("https://{}", tokens.address), &tokens.ca, behaviour).await?;
    let host = format!("localhost:{}", asking.port);
    let access = super::logged_in(&host, tokens.identity_token)?;
    // Nothing was pushed there, so this error shows that the client has a token.
    let error = pulls(&format!("{host}/team/app:v1"), &access).await.unwrap_err();
    ensure!(format!("{error:#}").contains("has no "), "{error:#}");
    ensure!(
        !service.seen().is_empty() && tokens.asked() == [TokenCredential::Identity],
        "the token service was not asked"
    );
    Ok(())
}
