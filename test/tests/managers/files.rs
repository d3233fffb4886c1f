//! Certificates for this machine, a scraper that trusts one authority, and tokens.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_test::world::{Lab, Manager, World};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::{NAMESPACE, SOON};

/// A certificate for this machine under a new authority, in files that a manager is started with.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        std::fs::create_dir(folder.path().join("authorities"))?;
        Ok(Self { folder })
    }

    /// Creates both again, as in a renewal, and returns the new authority's certificate.
    pub(crate) fn renew(&self, name: &str) -> Result<String> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(rcgen::DnType::CommonName, name);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let own = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let key = KeyPair::generate()?;
        let certificate = own.signed_by(&key, &authority)?;
        std::fs::write(self.authorities().join(name), authority.pem())?;
        // One after the other: a pair that does not match yet must do no harm.
        std::fs::write(self.certificate(), certificate.pem())?;
        std::fs::write(self.key(), key.serialize_pem())?;
        Ok(authority.pem())
    }

    /// Creates a certificate that is its own authority and has `CA:TRUE`, as many tools do, and returns it.
    pub(crate) fn renew_flagged(&self, name: &str) -> Result<String> {
        let mut own = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let certificate = own.self_signed(&key)?.pem();
        std::fs::write(self.authorities().join(name), &certificate)?;
        std::fs::write(self.certificate(), &certificate)?;
        std::fs::write(self.key(), key.serialize_pem())?;
        Ok(certificate)
    }

    /// The directory of all authorities so far.
    pub(crate) fn authorities(&self) -> PathBuf {
        self.folder.path().join("authorities")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("tls.crt")
    }

    /// The token that operator-controller shows to catalogd.
    pub(crate) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("tls.key")
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        vec![
            format!("--tls-cert={}", self.certificate().display()),
            format!("--tls-key={}", self.key().display()),
        ]
    }
}

pub(crate) struct Scraper {
    client: reqwest::Client,
}

impl Scraper {
    /// A client that trusts only one authority.
    pub(crate) fn new(authority: &str) -> Result<Self> {
        let authority = reqwest::Certificate::from_pem(authority.as_bytes())?;
        // A new connection each time meets the certificate that is served now.
        let client = reqwest::Client::builder()
            .tls_certs_only([authority])
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()?;
        Ok(Self { client })
    }

    pub(crate) async fn get(&self, manager: &Manager, token: Option<&str>) -> Result<(u16, String)> {
        let (_, port) = manager
            .metrics
            .rsplit_once(':')
            .context("an address has a port")?;
        let mut request = self.client.get(format!("https://localhost:{port}/metrics"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Waits until the metrics hold all of these.
    pub(crate) async fn shows(
        &self,
        world: &World,
        manager: &Manager,
        token: &str,
        wanted: &[&str],
    ) -> Result<()> {
        world
            .eventually("the metrics show what is wanted", SOON, async || {
                let (status, text) = self.get(manager, Some(token)).await?;
                let missing: Vec<_> = wanted.iter().filter(|part| !text.contains(**part)).collect();
                ensure!(
                    status == 200 && missing.is_empty(),
                    "{status}, without {missing:?}: {text}"
                );
                Ok(Some(()))
            })
            .await
    }
}

pub(crate) async fn own_authority(lab: &Lab, map: &str) -> Result<String> {
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let data = maps.get(map).await?.data.unwrap_or_default();
    data.get("ca.crt").cloned().context("no authority is published")
}

/// A token of an account in namespace `default`, made if need be.
pub(crate) fn token(lab: &Lab, account: &str) -> Result<String> {
    lab.apply(&[json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": "default" },
    })])?;
    Ok(lab
        .kubectl(&["create", "token", account, "-n", "default"])?
        .trim()
        .to_owned())
}
