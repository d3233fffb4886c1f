//! One certificate authority for a cluster, a key pair for each component, and the kubeconfigs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// The subject of a certificate.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) group: Option<&'a str>,
}

/// A certificate authority that writes its certificates into one folder.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key in PEM, as files and as text.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    /// Makes an authority; `folder` gets its `ca.crt` and `ca.key`.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(&Subject {
            name: "olm-test",
            group: None,
        });
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::create_dir_all(folder)?;
        fs::write(folder.join("ca.crt"), issuer.pem())?;
        write_secret(&folder.join("ca.key"), &issuer.key().serialize_pem())?;
        Ok(Self {
            folder: folder.to_owned(),
            issuer,
        })
    }

    /// The authority's certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Issues a pair for servers and clients, valid for the `hosts` (names or addresses), as `NAME.crt` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str, subject: &Subject<'_>, hosts: &[&str]) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = distinguished(subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign {name}"))?;
        let pair = Pair {
            certificate: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        };
        fs::write(&pair.certificate, &pair.certificate_pem)?;
        write_secret(&pair.key, &pair.key_pem)?;
        Ok(pair)
    }

    /// Writes a kubeconfig that reaches `server` with a pair of this authority.
    pub(crate) fn kubeconfig(&self, path: &Path, server: &str, user: &str, pair: &Pair) -> Result<()> {
        // JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "olm-test",
            "clusters": [{"name": "olm-test", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(self.issuer.pem()),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(&pair.certificate_pem),
                "client-key-data": STANDARD.encode(&pair.key_pem),
            }}],
            "contexts": [{"name": "olm-test", "context": {"cluster": "olm-test", "user": user}}],
        });
        write_secret(path, &serde_json::to_string_pretty(&config)?)
    }
}

/// Writes a key pair without a certificate, as `NAME.key` and `NAME.pub`.
pub(crate) fn bare_key(folder: &Path, name: &str) -> Result<()> {
    let key = KeyPair::generate()?;
    write_secret(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    fs::write(folder.join(format!("{name}.pub")), key.public_key_pem())?;
    Ok(())
}

fn distinguished(subject: &Subject<'_>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(group) = subject.group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, subject.name);
    name
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}
