//! Public keys.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The kinds of key that sign images, each with the digest that cosign uses with it; cosign 3 goes with P-384 to
/// SHA-384.
const ALGORITHMS: [&dyn VerificationAlgorithm; 5] = [
    &ECDSA_P256_SHA256_ASN1,
    &ECDSA_P384_SHA256_ASN1,
    &ECDSA_P384_SHA384_ASN1,
    &ED25519,
    &RSA_PKCS1_2048_8192_SHA256,
];
/// Those of them that tell by a key alone whether it is theirs; keys of RSA have sizes.
const CURVES: [&dyn VerificationAlgorithm; 3] = [&ECDSA_P256_SHA256_ASN1, &ECDSA_P384_SHA384_ASN1, &ED25519];

/// A public key: ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    der: Vec<u8>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({})", self.fingerprint())
    }
}

impl PublicKey {
    /// Every public key of a PEM text.
    ///
    /// # Errors
    /// When there is none, or one of a kind that is not known.
    pub fn parse_pem(text: &[u8]) -> Result<Vec<Self>, String> {
        let keys = blocks(text, "PUBLIC KEY")?;
        if keys.is_empty() {
            return Err("it holds no public key".to_owned());
        }
        keys.into_iter().map(Self::from_der).collect()
    }

    /// A key as its `SubjectPublicKeyInfo`.
    pub(crate) fn from_der(der: Vec<u8>) -> Result<Self, String> {
        let on_curve = CURVES
            .iter()
            .any(|algorithm| UnparsedPublicKey::new(*algorithm, &der).parse().is_ok());
        // An RSA key that is too small is parsed as well, and would never verify anything.
        if on_curve || PublicEncryptingKey::from_der(&der).is_ok() {
            return Ok(Self { der });
        }
        Err(
            "the key is not supported; use ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits"
                .to_owned(),
        )
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether it made the signature over the message.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ALGORITHMS.iter().any(|algorithm| {
            UnparsedPublicKey::new(*algorithm, &self.der)
                .verify(message, signature)
                .is_ok()
        })
    }

    /// The SHA-256 of its DER form, `sha256:HEX`.
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", hex::encode(digest(&SHA256, &self.der)))
    }
}

/// The contents of all blocks of a PEM text with this label.
pub(crate) fn blocks(text: &[u8], label: &str) -> Result<Vec<Vec<u8>>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not PEM".to_owned())?;
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(&begin) {
        let (body, tail) = after
            .split_once(&end)
            .ok_or_else(|| "it is not a whole PEM".to_owned())?;
        let body: String = body.split_ascii_whitespace().collect();
        found.push(STANDARD.decode(body).map_err(|_| "it is not PEM".to_owned())?);
        rest = tail;
    }
    Ok(found)
}

/// The certificates of a PEM text.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found = blocks(text, "CERTIFICATE")?;
    if found.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    Ok(found)
}
