//! Serving certificates: their content, and whether they must be renewed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

use crate::names::AUTHORITY_KEY;

/// Parts of a certificate that decide its renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    starts: Timestamp,
    ends: Timestamp,
    /// The names of subject and issuer, DER.
    subject: Vec<u8>,
    issuer: Vec<u8>,
    /// The identifiers of its own key and of the issuer's.
    key: Option<Vec<u8>>,
    issuer_key: Option<Vec<u8>>,
    hosts: Vec<String>,
}

/// The bytes at a JSON pointer, which are written in base 64; none where there are none.
pub(crate) fn decoded(object: &Value, pointer: &str) -> Vec<u8> {
    let coded = object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default();
    STANDARD.decode(coded).unwrap_or_default()
}

/// The value of the annotation `olmcahash`.
pub(crate) fn hash(authority: &[u8]) -> String {
    hex::encode(Sha256::digest(authority))
}

/// Reads the first certificate of a PEM text.
///
/// # Errors
/// When there is none, or it cannot be read.
pub(crate) fn read(pem: &[u8]) -> Result<Certificate, String> {
    let (_, block) = parse_x509_pem(pem).map_err(|_| "cert PEM empty".to_owned())?;
    let malformed = || "x509: malformed certificate".to_owned();
    let (_, certificate) = X509Certificate::from_der(&block.contents).map_err(|_| malformed())?;
    let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|_| malformed());
    let validity = certificate.validity();
    let mut read = Certificate {
        starts: time(validity.not_before.timestamp())?,
        ends: time(validity.not_after.timestamp())?,
        subject: certificate.subject().as_raw().to_vec(),
        issuer: certificate.issuer().as_raw().to_vec(),
        key: None,
        issuer_key: None,
        hosts: Vec::new(),
    };
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(key) => read.key = Some(key.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(key) => {
                read.issuer_key = key.key_identifier.as_ref().map(|key| key.0.to_vec());
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                let names = names.general_names.iter();
                read.hosts.extend(names.filter_map(|name| match name {
                    GeneralName::DNSName(host) => Some((*host).to_owned()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    Ok(read)
}

impl Certificate {
    /// Whether it is valid now, and for as long as the reserve.
    fn is_fresh(&self, now: Timestamp, reserve: SignedDuration) -> bool {
        let due = self.ends.saturating_sub(reserve);
        self.starts <= now && now <= self.ends && due.is_ok_and(|due| now <= due)
    }

    /// Whether the authority has issued it: by name, and by key where both name it. The API server checks the signature
    /// when it calls.
    fn is_from(&self, authority: &Self) -> bool {
        let is_of_key =
            self.issuer_key.is_none() || authority.key.is_none() || self.issuer_key == authority.key;
        self.issuer == authority.subject && is_of_key
    }
}

/// Whether the certificate in a Secret must be made anew for these hosts: it or its authority cannot be read, is not
/// valid for the reserve, or does not fit.
pub(crate) fn is_due(secret: &Value, hosts: &[String], now: Timestamp, reserve: SignedDuration) -> bool {
    let authority = read(&decoded(secret, &format!("/data/{AUTHORITY_KEY}")));
    let (Ok(authority), Ok(certificate)) = (authority, read(&decoded(secret, "/data/tls.crt"))) else {
        return true;
    };
    let is_named = |host: &String| {
        certificate
            .hosts
            .iter()
            .any(|named| named.eq_ignore_ascii_case(host))
    };
    !(authority.is_fresh(now, reserve)
        && certificate.is_fresh(now, reserve)
        && certificate.is_from(&authority)
        && hosts.iter().all(is_named))
}
