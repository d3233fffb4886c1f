//! Signatures beside images, in the layout of cosign.

use anyhow::{Context as _, Result};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::Digest;
use serde_json::json;

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

/// Pushes a signature of an image in the layout of cosign: an image at the tag `sha256-HEX.sig` of the same repository.
/// `about` is the name that is signed, `REPOSITORY[:TAG]`.
///
/// # Errors
/// When the registry refuses it.
pub async fn sign(registry: &Registry, about: &str, digest: &Digest, pair: &EcdsaKeyPair) -> Result<()> {
    let repository = about.split(':').next().unwrap_or(about);
    let payload = json!({
        "critical": {
            "identity": { "docker-reference": format!("{}/{about}", registry.tls) },
            "image": { "docker-manifest-digest": digest.to_string() },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string();
    let signature = pair.sign(&SystemRandom::new(), payload.as_bytes())?;
    let client = reqwest::Client::new();
    let base = format!("http://{}/v2/{repository}", registry.address);
    for blob in ["{}", payload.as_str()] {
        let begun = client
            .post(format!("{base}/blobs/uploads/"))
            .send()
            .await?
            .error_for_status()?;
        let place = begun
            .headers()
            .get("location")
            .context("no place to upload to")?
            .to_str()?;
        let query = [("digest", Digest::of(blob.as_bytes()).to_string())];
        let mut url = reqwest::Url::parse(place)?;
        url.query_pairs_mut().extend_pairs(&query);
        client
            .put(url)
            .body(blob.to_owned())
            .send()
            .await?
            .error_for_status()?;
    }
    let descriptor = |kind: &str, blob: &str| json!({ "mediaType": kind, "digest": Digest::of(blob.as_bytes()).to_string(), "size": blob.len() });
    let mut layer = descriptor("application/vnd.dev.cosign.simplesigning.v1+json", &payload);
    layer["annotations"] =
        json!({ "dev.cosignproject.cosign/signature": STANDARD.encode(signature.as_ref()) });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", "{}"),
        "layers": [layer],
    });
    let tag = format!("{}.sig", digest.to_string().replace(':', "-"));
    client
        .put(format!("{base}/manifests/{tag}"))
        .header("content-type", "application/vnd.oci.image.manifest.v1+json")
        .body(manifest.to_string())
        .send()
        .await?
        .error_for_status()?;
    Ok(())
}
