//! The older form of cosign: a layer of the image at the tag `sha256-HEX.sig`, or `sha256-HEX.att` for attestations,
//! with its proofs in annotations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sigstore_verify::types::bundle::{
    InclusionPromise, LogId, Rfc3161Timestamp, TimestampVerificationData, VerificationMaterial,
    VerificationMaterialContent, X509Certificate,
};
use sigstore_verify::types::{
    Bundle, CanonicalizedBody, DerCertificate, DsseEnvelope, KindVersion, LogIndex, LogKeyId, MediaType,
    MessageSignature, PublicKeyIdentifier, SignatureBytes, SignatureContent, SignedTimestamp, TimestampToken,
    TransparencyLogEntry,
};

use crate::attestation::ATTESTATION_BYTES;
use crate::bundle::envelope;
use crate::error::SignatureError;
use crate::key::{blocks, certificates};
use crate::verdict::Claim;

/// The media type of the signed payload.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The media type of an attestation: an envelope that holds its signature.
pub const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The annotation with the signature.
pub const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The annotations with the certificate and its chain in PEM, the entry of the log, and the timestamp.
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG: &str = "dev.sigstore.cosign/bundle";
const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";
/// The most bytes of the payload of a signature.
const PAYLOAD_BYTES: usize = 64 << 10;
/// The most bytes of an annotation.
const ANNOTATION_BYTES: usize = 128 << 10;
/// The most certificates of a chain.
const CHAIN_LENGTH: usize = 8;

/// A signature or an attestation in the older form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    payload: Vec<u8>,
    /// The signature of the payload; none where the payload is an envelope, which holds its own.
    signature: Option<String>,
    certificate: Option<String>,
    chain: Option<String>,
    log: Option<String>,
    timestamp: Option<String>,
}

/// The parts of it that are needed, read.
pub(crate) struct Parts {
    pub(crate) content: AttachedContent,
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// The signed content with its signature.
pub(crate) enum AttachedContent {
    /// The signature of the payload.
    Signature(Vec<u8>),
    /// The payload is this envelope.
    Envelope(DsseEnvelope),
}

impl Attached {
    /// A signature from a layer: its content, and its annotations by name. None where there is no signature.
    pub fn new<'a>(payload: Vec<u8>, annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let signature = annotation(SIGNATURE_ANNOTATION)?.to_owned();
        Some(Self {
            signature: Some(signature),
            ..Self::envelope(payload, annotation)
        })
    }

    /// An attestation from a layer of type [`ENVELOPE`]: its content, and its annotations by name.
    pub fn envelope<'a>(payload: Vec<u8>, annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let text = |name| {
            annotation(name)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        Self {
            payload,
            signature: None,
            certificate: text(CERTIFICATE),
            chain: text(CHAIN),
            log: text(LOG),
            timestamp: text(TIMESTAMP),
        }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn parts(&self) -> Result<Parts, SignatureError> {
        let form = |what: &str, error: String| SignatureError::Form(format!("{what}: {error}"));
        let annotations = [
            &self.signature,
            &self.certificate,
            &self.chain,
            &self.log,
            &self.timestamp,
        ];
        let long = annotations
            .into_iter()
            .flatten()
            .any(|text| text.len() > ANNOTATION_BYTES);
        let limit = match self.signature {
            Some(_) => PAYLOAD_BYTES,
            None => ATTESTATION_BYTES,
        };
        if long || self.payload.len() > limit {
            return Err(SignatureError::Form("it is too long".to_owned()));
        }
        let content = match &self.signature {
            Some(signature) => AttachedContent::Signature(
                STANDARD
                    .decode(signature.trim())
                    .map_err(|_| SignatureError::Form("it is not base64".to_owned()))?,
            ),
            None => AttachedContent::Envelope(envelope(&self.payload)?),
        };
        let mut found = Vec::new();
        if let Some(text) = &self.certificate {
            found = certificates(text.as_bytes()).map_err(|error| form("certificate", error))?;
            found.truncate(1);
            if let Some(text) = &self.chain {
                found.extend(blocks(text.as_bytes(), "CERTIFICATE").map_err(|error| form("chain", error))?);
            }
        }
        if found.len() > CHAIN_LENGTH {
            return Err(SignatureError::Form(format!(
                "its chain has more than {CHAIN_LENGTH} certificates"
            )));
        }
        Ok(Parts {
            content,
            certificates: found,
        })
    }

    /// The same as a bundle: with the certificate, or for a key that the verifier knows. `logged` chooses the version
    /// of bundles that demands the promise of a log.
    pub(crate) fn bundle(
        &self,
        parts: &Parts,
        with_certificate: bool,
        logged: bool,
    ) -> Result<Bundle, SignatureError> {
        let content = if with_certificate {
            if parts.certificates.is_empty() {
                return Err(SignatureError::Material("certificate"));
            }
            let certificate = |der: &Vec<u8>| X509Certificate::new(DerCertificate::new(der.clone()));
            VerificationMaterialContent::X509CertificateChain {
                certificates: parts.certificates.iter().map(certificate).collect(),
            }
        } else {
            VerificationMaterialContent::PublicKey(PublicKeyIdentifier::new(""))
        };
        let mut material = VerificationMaterial::new(content);
        if let Some(text) = &self.log {
            material = material.with_tlog_entries(vec![entry(text, &parts.content)?]);
        }
        if let Some(text) = &self.timestamp {
            let stamp: Stamp = serde_json::from_str(text)
                .map_err(|error| SignatureError::Form(format!("annotation {TIMESTAMP}: {error}")))?;
            let token = TimestampToken::from_base64(&stamp.token)
                .map_err(|error| SignatureError::Form(format!("annotation {TIMESTAMP}: {error}")))?;
            material = material.with_timestamp_verification_data(TimestampVerificationData::new(vec![
                Rfc3161Timestamp::new(token),
            ]));
        }
        let version = if logged {
            MediaType::Bundle0_1
        } else {
            MediaType::Bundle0_2
        };
        let content = match &parts.content {
            AttachedContent::Signature(bytes) => {
                SignatureContent::MessageSignature(MessageSignature::new(SignatureBytes::from_bytes(bytes)))
            }
            AttachedContent::Envelope(envelope) => SignatureContent::DsseEnvelope(envelope.clone()),
        };
        Ok(Bundle::new(version, material, content))
    }

    /// Claim of the payload of a signature. It may be read only once the signature is verified.
    pub(crate) fn claim(&self) -> Result<Claim, SignatureError> {
        let document: Document = serde_json::from_slice(&self.payload)
            .map_err(|error| SignatureError::Form(format!("the signed payload cannot be read: {error}")))?;
        if document.critical.kind != "cosign container image signature" {
            return Err(SignatureError::Form(
                "the signed payload is about no image".to_owned(),
            ));
        }
        Ok(Claim {
            digest: document.critical.image.digest,
            name: Some(document.critical.identity.reference),
        })
    }
}

/// The signed payload. Unlike what a signer adds in `optional`, a field that is not known may limit what the signature
/// is for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    critical: Critical,
    #[serde(default, rename = "optional")]
    _optional: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    identity: Named,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Logged {
    signed_entry_timestamp: String,
    payload: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    body: String,
    #[serde(rename = "integratedTime")]
    time: i64,
    #[serde(rename = "logIndex")]
    index: i64,
    #[serde(rename = "logID")]
    log: String,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
}

/// An entry of a log with the promise of the log, from an annotation.
fn entry(text: &str, content: &AttachedContent) -> Result<TransparencyLogEntry, SignatureError> {
    let wrong = |error: String| SignatureError::Form(format!("annotation {LOG}: {error}"));
    let Logged {
        signed_entry_timestamp,
        payload,
    } = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let body = STANDARD
        .decode(&payload.body)
        .map_err(|_| wrong("the entry is not base64".to_owned()))?;
    let kind: Kind = serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))?;
    let kind = match (content, kind.kind.as_str(), kind.version.as_str()) {
        (AttachedContent::Signature(_), "hashedrekord", "0.0.1") => KindVersion::HashedRekordV001,
        (AttachedContent::Envelope(_), "dsse", "0.0.1") => KindVersion::DsseV001,
        (AttachedContent::Envelope(_), "intoto", "0.0.2") => KindVersion::IntotoV002,
        (_, kind, version) => return Err(wrong(format!("unknown kind of entry {kind} {version}"))),
    };
    let index = LogIndex::try_from(payload.index).map_err(|error| wrong(error.to_string()))?;
    let log = hex::decode(&payload.log).map_err(|error| wrong(error.to_string()))?;
    let promise =
        SignedTimestamp::from_base64(&signed_entry_timestamp).map_err(|error| wrong(error.to_string()))?;
    let time = jiff::Timestamp::from_second(payload.time).map_err(|error| wrong(error.to_string()))?;
    Ok(TransparencyLogEntry::new(
        index,
        LogId::new(LogKeyId::new(log)),
        kind,
        CanonicalizedBody::new(body),
    )
    .with_integrated_time(time)
    .with_inclusion_promise(InclusionPromise::new(promise)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Document;

    #[test]
    fn a_payload_with_an_unknown_field_is_refused_except_among_the_optional_ones() {
        let payload = |change: fn(&mut serde_json::Value)| {
            let mut payload = json!({
                "critical": {
                    "identity": { "docker-reference": "a.example/x" },
                    "image": { "docker-manifest-digest": "sha256:00" },
                    "type": "cosign container image signature",
                },
                "optional": { "creator": "x" },
            });
            change(&mut payload);
            serde_json::from_value::<Document>(payload).is_ok()
        };
        assert!(payload(|_| {}));
        assert!(payload(|payload| payload["optional"] = json!(null)));
        assert!(!payload(|payload| payload["expires"] = json!(1)));
        assert!(!payload(|payload| payload["critical"]["expires"] = json!(1)));
        assert!(!payload(|payload| payload["critical"]["image"]["x"] = json!(1)));
        assert!(!payload(|payload| payload["critical"]["identity"]["x"] = json!(1)));
    }
}
