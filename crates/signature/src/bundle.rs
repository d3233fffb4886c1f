//! The newer form: a bundle of Sigstore, as cosign 3 writes it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sigstore_verify::types::{self, DsseEnvelope, SignatureContent};

use crate::attestation::ATTESTATION_BYTES;
use crate::error::SignatureError;

/// The media type of a bundle, which is the type of the artifact that holds it.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The most bytes of a bundle that is a signature.
pub const BUNDLE_BYTES: u64 = 256 << 10;
/// The most log entries, the most timestamps.
const PROOFS: usize = 8;
/// The most steps from an entry to the root of a log: logs have fewer than 2^64 entries.
const STEPS: usize = 64;

/// A bundle, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    text: Vec<u8>,
}

impl Bundle {
    /// A bundle as it was fetched.
    pub const fn new(text: Vec<u8>) -> Self {
        Self { text }
    }

    /// Reads it. What it has that is not known is refused, since it might be what keeps a signature from counting.
    pub(crate) fn read(&self) -> Result<(types::Bundle, DsseEnvelope), SignatureError> {
        if self.text.len() > ATTESTATION_BYTES {
            return Err(SignatureError::Form(format!(
                "it is larger than {ATTESTATION_BYTES} bytes"
            )));
        }
        let unreadable = |error: &dyn std::fmt::Display| SignatureError::Form(error.to_string());
        let shape: Shape = serde_json::from_slice(&self.text).map_err(|error| unreadable(&error))?;
        if shape.media_type != BUNDLE {
            return Err(SignatureError::Form(format!(
                "{:?} is not a known kind of bundle",
                shape.media_type
            )));
        }
        shape.verification_material.check()?;
        let bundle: types::Bundle = serde_json::from_slice(&self.text).map_err(|error| unreadable(&error))?;
        let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
            return Err(SignatureError::Form(
                "it signs bytes, not a statement about an image".to_owned(),
            ));
        };
        let envelope = envelope.clone();
        Ok((bundle, envelope))
    }
}

/// Reads an envelope that stands alone, with exactly one signature.
pub(crate) fn envelope(text: &[u8]) -> Result<DsseEnvelope, SignatureError> {
    let unreadable = |error: serde_json::Error| SignatureError::Form(error.to_string());
    let shape: Envelope = serde_json::from_slice(text).map_err(unreadable)?;
    if shape.signatures.len() != 1 {
        return Err(SignatureError::Form(format!(
            "it has {} signatures",
            shape.signatures.len()
        )));
    }
    serde_json::from_slice(text).map_err(unreadable)
}

/// The fields that a bundle may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Shape {
    media_type: String,
    verification_material: Material,
    #[serde(rename = "messageSignature")]
    _message_signature: Option<IgnoredAny>,
    #[serde(rename = "dsseEnvelope")]
    _envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Material {
    #[serde(rename = "publicKey")]
    _public_key: Option<Key>,
    #[serde(rename = "certificate")]
    _certificate: Option<Certificate>,
    #[serde(default)]
    tlog_entries: Vec<Entry>,
    #[serde(default)]
    timestamp_verification_data: Option<Timestamps>,
}

impl Material {
    fn check(&self) -> Result<(), SignatureError> {
        let timestamps = self.timestamp_verification_data.as_ref();
        let stamps = timestamps.map_or(0, |data| data.rfc3161_timestamps.len());
        if self.tlog_entries.len() > PROOFS || stamps > PROOFS {
            return Err(SignatureError::Form(format!(
                "it has more than {PROOFS} log entries or timestamps"
            )));
        }
        let steps = |entry: &Entry| {
            entry
                .inclusion_proof
                .as_ref()
                .map_or(0, |proof| proof.hashes.len())
        };
        if self.tlog_entries.iter().any(|entry| steps(entry) > STEPS) {
            return Err(SignatureError::Form(
                "the proof of a log entry is too long".to_owned(),
            ));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    #[serde(rename = "hint")]
    _hint: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificate {
    #[serde(rename = "rawBytes")]
    _raw_bytes: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "logIndex")]
    _log_index: Option<IgnoredAny>,
    #[serde(rename = "logId")]
    _log_id: Log,
    #[serde(rename = "kindVersion")]
    _kind_version: Kind,
    #[serde(rename = "integratedTime")]
    _integrated_time: Option<IgnoredAny>,
    #[serde(rename = "inclusionPromise")]
    _inclusion_promise: Option<InclusionPromise>,
    inclusion_proof: Option<Inclusion>,
    #[serde(rename = "canonicalizedBody")]
    _canonicalized_body: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Log {
    #[serde(rename = "keyId")]
    _key_id: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "version")]
    _version: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InclusionPromise {
    #[serde(rename = "signedEntryTimestamp")]
    _signed_entry_timestamp: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Inclusion {
    #[serde(rename = "logIndex")]
    _log_index: Option<IgnoredAny>,
    #[serde(rename = "rootHash")]
    _root_hash: IgnoredAny,
    #[serde(rename = "treeSize")]
    _tree_size: IgnoredAny,
    #[serde(default)]
    hashes: Vec<IgnoredAny>,
    #[serde(rename = "checkpoint")]
    _checkpoint: Option<Checkpoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    #[serde(rename = "envelope")]
    _envelope: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timestamps {
    #[serde(default, rename = "rfc3161Timestamps")]
    rfc3161_timestamps: Vec<Stamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    #[serde(rename = "signedTimestamp")]
    _signed_timestamp: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "payload")]
    _payload: IgnoredAny,
    #[serde(rename = "payloadType")]
    _payload_type: IgnoredAny,
    signatures: Vec<Signed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    #[serde(rename = "sig")]
    _sig: IgnoredAny,
    #[serde(rename = "keyid")]
    _keyid: Option<IgnoredAny>,
}
