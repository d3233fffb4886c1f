//! Trust roots: certificate authorities, logs and timestamp authorities.

mod shape;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Bundle, DerPublicKey, Sha256Hash};
use sigstore_verify::{
    Policy, PublicKeyVerificationPolicy, VerificationPolicy, VerificationResult, Verifier,
};

use crate::error::SignatureError;
use crate::json::{JsonError, read_json};
use crate::key::{PublicKey, certificates};
use crate::verdict::LogEntry;

/// The most bytes of a trust root.
pub const ROOT_BYTES: usize = 1 << 20;
/// The most authorities and logs of a trust root, each.
const ROOT_ENTRIES: usize = 64;
/// Media types of a trust root.
const ROOT_TYPES: [&str; 3] = [
    "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    "application/vnd.dev.sigstore.trustedroot.v0.1+json",
    "application/vnd.dev.sigstore.trustedroot.v0.2+json",
];

/// Certificate authorities, transparency logs and timestamp authorities that are trusted.
///
/// Each authority that it names is required: with a transparency log, an entry of it; with a log of certificates, a
/// promise of it; with neither a transparency log nor a timestamp authority nothing can prove when a certificate was
/// used, and none counts.
#[derive(Clone)]
pub struct Trust {
    verifier: Arc<Verifier>,
    /// Distinguishes one trust root from another.
    source: [u8; 32],
    logs: bool,
    certificate_logs: bool,
    timestamps: bool,
}

impl fmt::Debug for Trust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Trust({})", hex::encode(self.source))
    }
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Trust {}

impl Trust {
    /// Reads a `trusted_root.json` of Sigstore.
    ///
    /// # Errors
    /// When it is none, when it is too large, when it has a field that is not known, or when a key or certificate of it
    /// cannot be used.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.len() > ROOT_BYTES {
            return Err(format!("it is larger than {ROOT_BYTES} bytes"));
        }
        let text = std::str::from_utf8(text).map_err(|_| "it is not a text".to_owned())?;
        read_json(text, &shape::ROOT).map_err(|fault| match fault {
            JsonError::Unknown { .. } => {
                format!("{fault}; a trust root with newer fields needs a newer OLM")
            }
            _ => fault.to_string(),
        })?;
        let root = TrustedRoot::from_json(text).map_err(|error| error.to_string())?;
        if !ROOT_TYPES.contains(&root.media_type.as_str()) {
            return Err(format!("{:?} is not a known kind of trust root", root.media_type));
        }
        let most = [
            root.tlogs.len(),
            root.ctlogs.len(),
            root.certificate_authorities.len(),
            root.timestamp_authorities.len(),
        ];
        if most.into_iter().any(|count| count > ROOT_ENTRIES) {
            return Err(format!("it has more than {ROOT_ENTRIES} entries of a kind"));
        }
        let verifier = Verifier::new(&root).map_err(|error| error.to_string())?;
        let mut source = [0; 32];
        source.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Ok(Self {
            verifier: Arc::new(verifier),
            source,
            logs: !root.tlogs.is_empty(),
            certificate_logs: !root.ctlogs.is_empty(),
            timestamps: !root.timestamp_authorities.is_empty(),
        })
    }

    /// Trust in these authorities, as PEM, and in the Rekor logs with these keys. Without a log of certificates: their
    /// promises are not checked.
    ///
    /// # Errors
    /// When there is no certificate, or one that cannot be used.
    pub fn of(authorities: &[u8], logs: &[PublicKey]) -> Result<Self, String> {
        let chain = certificates(authorities)?
            .into_iter()
            .map(|der| json!({ "rawBytes": STANDARD.encode(der) }))
            .collect::<Vec<_>>();
        Self::with(
            &json!([{ "uri": "", "certChain": { "certificates": chain } }]),
            logs,
        )
    }

    /// Trust in the Rekor logs with these keys alone.
    ///
    /// # Errors
    /// When a key cannot be used.
    pub fn logs(logs: &[PublicKey]) -> Result<Self, String> {
        Self::with(&json!([]), logs)
    }

    fn with(authorities: &serde_json::Value, logs: &[PublicKey]) -> Result<Self, String> {
        let logs = logs.iter().map(|key| {
            json!({
                "baseUrl": "",
                "hashAlgorithm": "SHA2_256",
                "publicKey": { "rawBytes": STANDARD.encode(key.der()), "keyDetails": "" },
                "logId": { "keyId": STANDARD.encode(digest(&SHA256, key.der())) },
            })
        });
        let root = json!({
            "mediaType": ROOT_TYPES[0],
            "tlogs": logs.collect::<Vec<_>>(),
            "certificateAuthorities": authorities,
        });
        Self::parse(root.to_string().as_bytes())
    }

    /// Whether an entry of a transparency log is required.
    pub const fn has_logs(&self) -> bool {
        self.logs
    }

    /// Checks the certificate of a bundle, its signature over the content and the proof of its time. Evidence of a kind
    /// for which nothing is trusted is left aside.
    pub(crate) fn check_certificate(
        &self,
        content: SignedContent<'_>,
        bundle: Bundle,
    ) -> Result<Evidence, SignatureError> {
        let mut policy = VerificationPolicy::any_identity();
        if !self.certificate_logs {
            policy = policy.skip_sct();
        }
        if !self.logs {
            policy = policy.skip_tlog_unsafe();
        }
        self.verified(content, bundle, &policy)
    }

    /// Checks that a key made the signature of a bundle and that the log vouches for it.
    pub(crate) fn check_key(
        &self,
        content: SignedContent<'_>,
        bundle: Bundle,
        key: &PublicKey,
    ) -> Result<Evidence, SignatureError> {
        let policy = PublicKeyVerificationPolicy::new(DerPublicKey::new(key.der().to_vec()));
        self.verified(content, bundle, &policy)
    }

    fn verified(
        &self,
        content: SignedContent<'_>,
        bundle: Bundle,
        policy: &impl Policy,
    ) -> Result<Evidence, SignatureError> {
        let bundle = self.relevant(bundle);
        let found = match content {
            SignedContent::Bytes(bytes) => self.verifier.verify(bytes, &bundle, policy),
            SignedContent::Digest(digest) => self.verifier.verify(digest, &bundle, policy),
        };
        found
            .map(|result| Evidence::new(result, &bundle))
            .map_err(|error| SignatureError::of(&error))
    }

    fn relevant(&self, mut bundle: Bundle) -> Bundle {
        let material = &mut bundle.verification_material;
        if !self.logs {
            material.tlog_entries.clear();
        }
        if !self.timestamps {
            material.timestamp_verification_data.rfc3161_timestamps.clear();
        }
        bundle
    }
}

/// The parts that the library accepted.
pub(crate) struct Evidence {
    pub(crate) result: VerificationResult,
    /// The first entry of the log, if the log has it.
    pub(crate) entry: Option<LogEntry>,
}

impl Evidence {
    /// `bundle` is the verified bundle.
    fn new(result: VerificationResult, bundle: &Bundle) -> Self {
        let entry = bundle
            .verification_material
            .tlog_entries
            .first()
            .filter(|_| result.tlog_verified())
            .map(|entry| {
                // A promise signs the index; without one, the proof has the index that is verified.
                let proven = entry.inclusion_proof.as_ref().map(|proof| proof.log_index);
                let proven = proven.filter(|_| entry.inclusion_promise.is_none());
                LogEntry {
                    log: STANDARD.encode(entry.log_id.key_id.as_bytes()),
                    index: proven.unwrap_or(entry.log_index).get(),
                }
            });
        Self { result, entry }
    }
}

/// The signed content.
#[derive(Clone, Copy)]
pub(crate) enum SignedContent<'content> {
    Bytes(&'content [u8]),
    Digest(Sha256Hash),
}
