//! Signatures of the older form by a certificate or a key, as cosign 2 wrote them with the first Rekor, for which no
//! program is here: the certificate, the entry of the log and its promise are made by the test.

use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use olm_image::Digest;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SigningKey as _, date_time_ymd,
};
use serde_json::{Value, json};

use super::Registry;
use super::signatures::attach;

/// The extension that names the issuer of an identity.
const ISSUER: &[u64] = &[1, 3, 6, 1, 4, 1, 57264, 1, 8];

/// A certificate authority for identities and a transparency log.
#[derive(Debug)]
pub struct Services {
    terms: CertificateParams,
    key: KeyPair,
    authority: String,
    log: KeyPair,
}

/// Signer: a key, with a certificate that is valid for ten minutes or alone.
#[derive(Debug)]
pub struct Signer {
    /// The certificate in PEM.
    pub certificate: Option<String>,
    key: KeyPair,
}

impl Signer {
    /// A key without a certificate.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn by_key() -> Result<Self> {
        Ok(Self {
            certificate: None,
            key: KeyPair::generate()?,
        })
    }

    /// The public key in PEM.
    pub fn public_key(&self) -> String {
        self.key.public_key_pem()
    }
}

/// A signature with everything that proves it. Tests change it as they like.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The signed payload.
    pub payload: String,
    /// The signature in base64.
    pub signature: String,
    /// The certificate in PEM.
    pub certificate: Option<String>,
    /// The entry of the log.
    pub log: Option<Value>,
}

impl Services {
    /// New services.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn new() -> Result<Self> {
        let mut terms = CertificateParams::default();
        terms.distinguished_name.push(DnType::CommonName, "identities");
        terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        terms.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let authority = terms.self_signed(&key)?.pem();
        Ok(Self {
            terms,
            key,
            authority,
            log: KeyPair::generate()?,
        })
    }

    /// The certificate of the authority in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The public key of the log in PEM.
    pub fn log_key(&self) -> String {
        self.log.public_key_pem()
    }

    /// The file `trusted_root.json` that trusts both.
    ///
    /// # Errors
    /// When a certificate is none.
    pub fn trusted_root(&self) -> Result<String> {
        let spki = self.log.subject_public_key_info();
        let body: String = self
            .authority
            .lines()
            .filter(|line| !line.starts_with('-'))
            .collect();
        let root = json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [{
                "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256",
                "publicKey": { "rawBytes": STANDARD.encode(&spki), "keyDetails": "PKIX_ECDSA_P256_SHA_256" },
                "logId": { "keyId": STANDARD.encode(sha256(&spki)?) },
            }],
            "certificateAuthorities": [{
                "uri": "https://authority.example", "certChain": { "certificates": [{ "rawBytes": body }] },
            }],
        });
        Ok(root.to_string())
    }

    /// A certificate for an email address, or a URI, from this time on.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn issue(&self, subject: &str, issuer: &str, from: Timestamp) -> Result<Signer> {
        let mut terms = CertificateParams::default();
        let name = subject.try_into()?;
        terms.subject_alt_names = vec![if subject.contains("://") {
            SanType::URI(name)
        } else {
            SanType::Rfc822Name(name)
        }];
        terms.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        terms.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let start = date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(from.as_second())?);
        terms.not_before = start;
        terms.not_after = start + Duration::from_mins(10);
        // A text of UTF-8 with fewer than 128 bytes in DER.
        let mut text = vec![0x0c, u8::try_from(issuer.len())?];
        text.extend_from_slice(issuer.as_bytes());
        terms.custom_extensions = vec![CustomExtension::from_oid_content(ISSUER, text)];
        let key = KeyPair::generate()?;
        let certificate = terms.signed_by(&key, &Issuer::from_params(&self.terms, &self.key))?;
        Ok(Signer {
            certificate: Some(certificate.pem()),
            key,
        })
    }

    /// Signature of the signer for an image, logged at this time. `about` is `HOST/REPOSITORY[:TAG]`.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn sign(&self, signer: &Signer, about: &str, digest: &Digest, time: Timestamp) -> Result<Signed> {
        let payload = super::signatures::payload(about, digest);
        let signature = STANDARD.encode(signer.key.sign(payload.as_bytes())?);
        let verifier = signer.certificate.clone().unwrap_or_else(|| signer.public_key());
        let log = self.entry(&verifier, &payload, &signature, time)?;
        Ok(Signed {
            payload,
            signature,
            certificate: signer.certificate.clone(),
            log: Some(log),
        })
    }

    /// An entry of the log with its promise, as the annotation holds it.
    fn entry(&self, verifier: &str, payload: &str, signature: &str, time: Timestamp) -> Result<Value> {
        let body = json!({
            "apiVersion": "0.0.1", "kind": "hashedrekord",
            "spec": {
                "data": { "hash": { "algorithm": "sha256", "value": hex::encode(sha256(payload.as_bytes())?) } },
                "signature": { "content": signature, "publicKey": { "content": STANDARD.encode(verifier) } },
            },
        });
        let body = STANDARD.encode(body.to_string());
        let log = hex::encode(sha256(&self.log.subject_public_key_info())?);
        let time = time.as_second();
        // Canonical JSON: names in their order, no white space.
        let promised = format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{log}","logIndex":7}}"#);
        let promise = STANDARD.encode(self.log.sign(promised.as_bytes())?);
        Ok(json!({ "SignedEntryTimestamp": promise, "Payload": serde_json::from_str::<Value>(&promised)? }))
    }
}

impl Signed {
    /// Puts it beside an image.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub async fn attach(&self, registry: &Registry, repository: &str, digest: &Digest) -> Result<()> {
        let mut annotations = json!({ "dev.cosignproject.cosign/signature": self.signature });
        if let Some(certificate) = &self.certificate {
            annotations["dev.sigstore.cosign/certificate"] = json!(certificate);
        }
        if let Some(log) = &self.log {
            annotations["dev.sigstore.cosign/bundle"] = json!(log.to_string());
        }
        attach(registry, repository, digest, &self.payload, annotations).await
    }
}

/// The time `minutes` minutes ago.
///
/// # Errors
/// When there is none.
pub fn minutes_ago(minutes: i64) -> Result<Timestamp> {
    Ok(Timestamp::now().checked_sub(SignedDuration::from_mins(minutes))?)
}

fn sha256(bytes: &[u8]) -> Result<Vec<u8>> {
    let digest = Digest::of(bytes).to_string();
    hex::decode(
        digest
            .strip_prefix("sha256:")
            .context("a digest of another kind")?,
    )
    .context("no digest")
}
