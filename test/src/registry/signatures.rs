//! Signatures beside images, in the layout of cosign.

use anyhow::{Context as _, Result};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::{Digest, Platform};
use serde_json::{Value, json};

use super::Registry;

/// A key pair: the public key in PEM, and the signer.
///
/// # Errors
/// When no randomness is available.
pub fn key() -> Result<(String, EcdsaKeyPair)> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?;
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
    let body = STANDARD.encode(der.as_ref());
    Ok((
        format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"),
        pair,
    ))
}

/// An ImagePolicy of OpenShift, without a namespace a ClusterImagePolicy: images in the scope must be signed with this
/// public key, PEM.
pub fn image_policy(metadata: Value, scope: &str, public: &str) -> Value {
    let kind = if metadata.get("namespace").is_some() {
        "ImagePolicy"
    } else {
        "ClusterImagePolicy"
    };
    let root = json!({ "policyType": "PublicKey", "publicKey": { "keyData": STANDARD.encode(public) } });
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": metadata,
        "spec": { "scopes": [scope], "policy": { "rootOfTrust": root } },
    })
}

/// Pushes a signature of an image in the layout of cosign: an image at the tag `sha256-HEX.sig` of the same repository.
/// `about` is the name that is signed, `REPOSITORY[:TAG]`.
///
/// # Errors
/// When the registry refuses it.
pub async fn sign(registry: &Registry, about: &str, digest: &Digest, pair: &EcdsaKeyPair) -> Result<()> {
    let repository = about.split(':').next().unwrap_or(about);
    let payload = payload(&format!("{}/{about}", registry.tls), digest);
    let signature = pair.sign(&SystemRandom::new(), payload.as_bytes())?;
    let annotations = json!({ "dev.cosignproject.cosign/signature": STANDARD.encode(signature.as_ref()) });
    attach(registry, repository, digest, &payload, annotations).await
}

/// Signed payload about an image under a name, `HOST/REPOSITORY[:TAG]`.
pub fn payload(about: &str, digest: &Digest) -> String {
    json!({
        "critical": {
            "identity": { "docker-reference": about },
            "image": { "docker-manifest-digest": digest.to_string() },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
}

/// Puts the signed payload beside an image, with the signature and its proofs as annotations.
///
/// # Errors
/// When the registry does not take it.
pub async fn attach(
    registry: &Registry,
    repository: &str,
    digest: &Digest,
    payload: &str,
    annotations: Value,
) -> Result<()> {
    for blob in ["{}", payload] {
        upload(registry, repository, blob).await?;
    }
    let mut layer = descriptor("application/vnd.dev.cosign.simplesigning.v1+json", payload);
    layer["annotations"] = annotations;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", "{}"),
        "layers": [layer],
    });
    let tag = format!("{}.sig", digest.to_string().replace(':', "-"));
    let place = SignatureDocuments::new(registry, repository, SignatureFormat::Attached);
    place.put(&tag, &manifest).await.map(drop)
}

fn descriptor(kind: &str, blob: &str) -> Value {
    json!({ "mediaType": kind, "digest": Digest::of(blob.as_bytes()).to_string(), "size": blob.len() })
}

async fn upload(registry: &Registry, repository: &str, blob: &str) -> Result<()> {
    let client = reqwest::Client::new();
    let url = format!("http://{}/v2/{repository}/blobs/uploads/", registry.address);
    let begun = client.post(url).send().await?.error_for_status()?;
    let place = begun
        .headers()
        .get("location")
        .context("no place to upload to")?
        .to_str()?;
    let query = [("digest", Digest::of(blob.as_bytes()).to_string())];
    let mut url = reqwest::Url::parse(place)?;
    url.query_pairs_mut().extend_pairs(&query);
    let put = client.put(url).body(blob.to_owned());
    put.send().await?.error_for_status()?;
    Ok(())
}

/// Format in which a signature is stored beside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFormat {
    /// A bundle among the referrers, listed at the tag `sha256-HEX`.
    Bundle,
    /// A bundle among the referrers that a registry lists by itself.
    Listed,
    /// A layer of the image at the tag `sha256-HEX.sig`.
    Attached,
}

/// The signatures of the images of a repository, as documents to change: a bundle, or a payload with annotations.
#[derive(Debug)]
pub struct SignatureDocuments<'registry> {
    registry: &'registry Registry,
    repository: &'registry str,
    format: SignatureFormat,
}

impl<'registry> SignatureDocuments<'registry> {
    /// Signatures in one format.
    pub const fn new(
        registry: &'registry Registry,
        repository: &'registry str,
        format: SignatureFormat,
    ) -> Self {
        Self {
            registry,
            repository,
            format,
        }
    }

    fn url(&self, rest: &str) -> String {
        format!("http://{}/v2/{}/{rest}", self.registry.address, self.repository)
    }

    async fn get(&self, rest: &str) -> Result<Vec<u8>> {
        let accepted = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";
        let request = reqwest::Client::new()
            .get(self.url(rest))
            .header("accept", accepted);
        Ok(request.send().await?.error_for_status()?.bytes().await?.to_vec())
    }

    async fn document(&self, rest: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.get(rest).await?)?)
    }

    async fn put(&self, place: &str, manifest: &Value) -> Result<Digest> {
        let kind = manifest["mediaType"]
            .as_str()
            .context("a manifest without a type")?;
        let text = manifest.to_string();
        let request = reqwest::Client::new()
            .put(self.url(&format!("manifests/{place}")))
            .header("content-type", kind);
        request.body(text.clone()).send().await?.error_for_status()?;
        Ok(Digest::of(text.as_bytes()))
    }

    /// The one signature of a digest.
    ///
    /// # Errors
    /// When there is none.
    pub async fn read(&self, digest: &Digest) -> Result<Value> {
        let tag = digest.to_string().replace(':', "-");
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no digest");
        match self.format {
            SignatureFormat::Bundle | SignatureFormat::Listed => {
                let list = match self.format {
                    SignatureFormat::Listed => format!("referrers/{digest}"),
                    _ => format!("manifests/{tag}"),
                };
                let index = self.document(&list).await?;
                let entry = text(&index["manifests"][0]["digest"])?;
                let manifest = self.document(&format!("manifests/{entry}")).await?;
                let layer = text(&manifest["layers"][0]["digest"])?;
                self.document(&format!("blobs/{layer}")).await
            }
            SignatureFormat::Attached => {
                let manifest = self.document(&format!("manifests/{tag}.sig")).await?;
                let layer = &manifest["layers"][0];
                let payload = self.get(&format!("blobs/{}", text(&layer["digest"])?)).await?;
                Ok(json!({ "payload": String::from_utf8(payload)?, "annotations": layer["annotations"] }))
            }
        }
    }

    /// Puts a signature in the place of those that a digest has.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub async fn write(&self, digest: &Digest, document: &Value) -> Result<()> {
        match self.format {
            SignatureFormat::Bundle => {
                let entry = self.put_bundle(document, None).await?;
                let list = json!({
                    "schemaVersion": 2,
                    "mediaType": "application/vnd.oci.image.index.v1+json",
                    "manifests": [entry],
                });
                let tag = digest.to_string().replace(':', "-");
                self.put(&tag, &list).await.map(drop)
            }
            SignatureFormat::Listed => {
                let list = self.document(&format!("referrers/{digest}")).await?;
                for entry in list["manifests"].as_array().into_iter().flatten() {
                    let place = entry["digest"].as_str().context("no digest")?;
                    let url = self.url(&format!("manifests/{place}"));
                    let deleted = reqwest::Client::new().delete(url).send().await?;
                    deleted.error_for_status()?;
                }
                let subject = self.get(&format!("manifests/{digest}")).await?;
                let subject = json!({
                    "mediaType": serde_json::from_slice::<Value>(&subject)?["mediaType"],
                    "digest": digest.to_string(), "size": subject.len(),
                });
                self.put_bundle(document, Some(subject)).await.map(drop)
            }
            SignatureFormat::Attached => {
                let payload = document["payload"].as_str().context("no payload")?;
                let annotations = document["annotations"].clone();
                attach(self.registry, self.repository, digest, payload, annotations).await
            }
        }
    }

    /// Puts a manifest with a bundle, and gives its descriptor.
    async fn put_bundle(&self, document: &Value, subject: Option<Value>) -> Result<Value> {
        const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let text = document.to_string();
        for blob in ["{}", &text] {
            upload(self.registry, self.repository, blob).await?;
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": kind,
            "artifactType": BUNDLE,
            "config": descriptor("application/vnd.oci.empty.v1+json", "{}"),
            "layers": [descriptor(BUNDLE, &text)],
        });
        if let Some(subject) = subject {
            manifest["subject"] = subject;
        }
        let place = Digest::of(manifest.to_string().as_bytes()).to_string();
        self.put(&place, &manifest).await?;
        let mut entry = descriptor(kind, &manifest.to_string());
        entry["artifactType"] = json!(BUNDLE);
        Ok(entry)
    }

    /// Makes an index that names an image for the platform of this machine.
    ///
    /// # Errors
    /// When there is no such image.
    pub async fn index(&self, image: &Digest) -> Result<Digest> {
        let manifest = self.get(&format!("manifests/{image}")).await?;
        let platform = Platform::host();
        let list = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": image.to_string(), "size": manifest.len(),
                "platform": { "os": platform.os, "architecture": platform.architecture },
            }],
        });
        self.put("index", &list).await
    }
}
