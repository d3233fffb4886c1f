//! Signatures over images: their signers and their payload.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The media type of what is signed.
pub(crate) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of its layer that holds the signature.
pub(crate) const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The most characters of a signature.
const SIGNATURE_LENGTH: usize = 16 << 10;

/// The kinds of key that sign images, each with SHA-256.
const ALGORITHMS: [&dyn VerificationAlgorithm; 4] = [
    &ECDSA_P256_SHA256_ASN1,
    &ECDSA_P384_SHA256_ASN1,
    &ED25519,
    &RSA_PKCS1_2048_8192_SHA256,
];

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    der: Vec<u8>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({} bytes)", self.der.len())
    }
}

impl PublicKey {
    /// Every public key of a PEM text.
    pub(super) fn parse_pem(text: &[u8]) -> Result<Vec<Self>, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is no PEM".to_owned())?;
        let mut keys = Vec::new();
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("-----BEGIN PUBLIC KEY-----") {
            let (body, tail) = after
                .split_once("-----END PUBLIC KEY-----")
                .ok_or_else(|| "it is no whole PEM".to_owned())?;
            let body: String = body.split_ascii_whitespace().collect();
            let der = STANDARD.decode(body).map_err(|_| "it is no PEM".to_owned())?;
            let known = ALGORITHMS
                .iter()
                .any(|algorithm| UnparsedPublicKey::new(*algorithm, &der).parse().is_ok());
            if !known {
                return Err(
                    "its kind of key is not supported; ECDSA P-256 or P-384, Ed25519 or RSA is".to_owned(),
                );
            }
            keys.push(Self { der });
            rest = tail;
        }
        if keys.is_empty() {
            return Err("it holds no public key".to_owned());
        }
        Ok(keys)
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ALGORITHMS.iter().any(|algorithm| {
            UnparsedPublicKey::new(*algorithm, &self.der)
                .verify(message, signature)
                .is_ok()
        })
    }
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    if text.len() > SIGNATURE_LENGTH {
        return Err("it is too long".to_owned());
    }
    STANDARD
        .decode(text.trim())
        .map_err(|_| "it is no base64".to_owned())
}

/// What a signature says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// Of the manifest.
    pub(super) digest: String,
    /// The name that the image was signed under.
    pub(super) reference: String,
}

#[derive(Deserialize)]
struct Document {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    identity: Named,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl Payload {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(text)
            .map_err(|error| format!("what is signed cannot be read: {error}"))?;
        if document.critical.kind != "cosign container image signature" {
            return Err("what is signed is no image".to_owned());
        }
        Ok(Self {
            digest: document.critical.image.digest,
            reference: document.critical.identity.reference,
        })
    }
}
