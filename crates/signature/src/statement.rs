//! Statements of in-toto about images: the content of bundles and attestations.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::attestation::Attestation;
use crate::error::SignatureError;
use crate::verdict::Claim;

/// The type of predicate that makes a statement a signature of an image. Others, such as provenance, are no approval of
/// it.
pub const SIGNATURE_PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";
/// Media type of statements.
const IN_TOTO: &str = "application/vnd.in-toto+json";
const STATEMENTS: [&str; 2] = [
    "https://in-toto.io/Statement/v1",
    "https://in-toto.io/Statement/v0.1",
];

/// A statement about exactly one image.
pub(crate) struct Statement<'payload> {
    /// The digest of the image, `sha256:HEX`.
    pub(crate) digest: String,
    name: Option<String>,
    predicate_type: String,
    predicate: Option<&'payload RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document<'payload> {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
    #[serde(default, borrow)]
    predicate: Option<&'payload RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    #[serde(default)]
    name: String,
    digest: BTreeMap<String, String>,
    /// Annotations of the signer, set with `cosign sign --annotations`.
    #[serde(default, rename = "annotations")]
    _annotations: Option<Map<String, Value>>,
}

impl<'payload> Statement<'payload> {
    /// Reads a payload. Only its digest may be used before the signature is verified.
    pub(crate) fn read(payload_type: &str, payload: &'payload [u8]) -> Result<Self, SignatureError> {
        let form = |message: String| SignatureError::Form(message);
        if payload_type != IN_TOTO {
            return Err(form(format!(
                "the payload type {payload_type:?} is not a statement"
            )));
        }
        let document: Document<'payload> = serde_json::from_slice(payload)
            .map_err(|error| form(format!("the statement cannot be read: {error}")))?;
        if !STATEMENTS.contains(&document.kind.as_str()) {
            return Err(form(format!("unknown kind of statement {:?}", document.kind)));
        }
        let [subject] = <[Subject; 1]>::try_from(document.subject)
            .map_err(|subjects| form(format!("it is about {} images", subjects.len())))?;
        let digest = subject
            .digest
            .get("sha256")
            .filter(|hex| {
                hex.len() == 64
                    && hex
                        .bytes()
                        .all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
            })
            .ok_or_else(|| form("it is about no SHA-256 digest".to_owned()))?;
        Ok(Self {
            digest: format!("sha256:{digest}"),
            name: Some(subject.name).filter(|name| !name.is_empty()),
            predicate_type: document.predicate_type,
            predicate: document.predicate,
        })
    }

    /// The claim of a statement that signs an image, or that is the attestation.
    pub(crate) fn claim(self, attestation: Option<&Attestation>) -> Result<Claim, SignatureError> {
        match attestation {
            Some(attestation) => attestation.check(&self.predicate_type, self.predicate)?,
            None => self.check_signature()?,
        }
        Ok(Claim {
            digest: self.digest,
            name: self.name,
        })
    }

    fn check_signature(&self) -> Result<(), SignatureError> {
        let form = |message: String| Err(SignatureError::Form(message));
        if self.predicate_type != SIGNATURE_PREDICATE_TYPE {
            return form(format!(
                "it is a statement of type {:?}, which is not a signature of an image",
                self.predicate_type
            ));
        }
        let is_empty = |text: &RawValue| {
            serde_json::from_str::<Option<Map<String, Value>>>(text.get())
                .is_ok_and(|fields| fields.is_none_or(|fields| fields.is_empty()))
        };
        if self.predicate.is_none_or(is_empty) {
            return Ok(());
        }
        form("the statement has a condition that is not known".to_owned())
    }
}
