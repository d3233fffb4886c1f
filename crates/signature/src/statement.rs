//! Content of a bundle: a statement of in-toto that an image is signed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::SignatureError;
use crate::verdict::Claim;

/// The kind of statement that is a signature of an image. Others, such as provenance, are no approval of it.
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";
/// Media type of statements.
const IN_TOTO: &str = "application/vnd.in-toto+json";
const STATEMENTS: [&str; 2] = [
    "https://in-toto.io/Statement/v1",
    "https://in-toto.io/Statement/v0.1",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
    #[serde(default)]
    predicate: Option<Map<String, Value>>,
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

/// The claim of a signed statement. It names exactly one image.
pub(crate) fn claim(payload_type: &str, payload: &[u8]) -> Result<Claim, SignatureError> {
    let form = |message: String| SignatureError::Form(message);
    if payload_type != IN_TOTO {
        return Err(form(format!("the payload type {payload_type:?} is no statement")));
    }
    let statement: Statement = serde_json::from_slice(payload)
        .map_err(|error| form(format!("the statement cannot be read: {error}")))?;
    if !STATEMENTS.contains(&statement.kind.as_str()) {
        return Err(form(format!("unknown kind of statement {:?}", statement.kind)));
    }
    if statement.predicate_type != SIGNATURE {
        return Err(form(format!(
            "it is a statement of type {:?}, which is no signature of an image",
            statement.predicate_type
        )));
    }
    if statement.predicate.is_some_and(|fields| !fields.is_empty()) {
        return Err(form("the statement has a condition that is not known".to_owned()));
    }
    let [subject] = <[Subject; 1]>::try_from(statement.subject)
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
    Ok(Claim {
        digest: format!("sha256:{digest}"),
        name: Some(subject.name).filter(|name| !name.is_empty()),
    })
}
