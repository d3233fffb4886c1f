//! Certificates of an authority of one's own.

use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::error::SignatureError;
use crate::key::{PublicKey, certificates};
use crate::read::{Read, proven};
use crate::trust::Trust;
use crate::verdict::{Proof, Signer, SignerEvidence};

/// The purpose of a certificate that signs code, as an object identifier in DER without its head.
const CODE_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03];

/// Names that a certificate must have: all that are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// An email address.
    pub email: Option<String>,
    /// A name of a host.
    pub hostname: Option<String>,
}

/// The authorities, and the names that their certificates must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pki {
    roots: Vec<TrustAnchor<'static>>,
    intermediates: Vec<Vec<u8>>,
    subject: Subject,
    /// The log that proves when a certificate was used; without it the certificate must be valid now.
    log: Option<Trust>,
}

impl Pki {
    /// Certificates of these roots, by way of these intermediates, both in PEM.
    ///
    /// # Errors
    /// When a certificate cannot be used, or there is no name.
    pub fn new(
        roots: &[u8],
        intermediates: Option<&[u8]>,
        subject: Subject,
        logs: &[PublicKey],
    ) -> Result<Self, String> {
        if subject.email.is_none() && subject.hostname.is_none() {
            return Err("it names neither a subjectEmail nor a subjectHostname".to_owned());
        }
        let between = intermediates.map(certificates).transpose()?.unwrap_or_default();
        let anchors = certificates(roots)?
            .iter()
            .map(|der| {
                anchor_from_trusted_cert(&CertificateDer::from(der.as_slice()))
                    .map(|anchor| anchor.to_owned())
                    .map_err(|error| format!("certificate of a root: {error}"))
            })
            .collect::<Result<_, _>>()?;
        let log = if logs.is_empty() {
            None
        } else {
            let all = [roots, b"\n", intermediates.unwrap_or_default()].concat();
            Some(Trust::of(&all, logs)?)
        };
        Ok(Self {
            roots: anchors,
            intermediates: between,
            subject,
            log,
        })
    }

    pub(crate) fn check(&self, read: &Read<'_>, now: Timestamp) -> Result<SignerEvidence, SignatureError> {
        let chain = read.certificates();
        let (own, sent) = chain
            .split_first()
            .ok_or(SignatureError::Material("certificate"))?;
        let (time, proof) = match &self.log {
            Some(log) => proven(&read.check_certificate(log)?),
            None => (None, Proof::default()),
        };
        self.check_chain(own, sent, time.unwrap_or(now))?;
        let wrong = |error: String| SignatureError::Certificate(error);
        let (_, certificate) = X509Certificate::from_der(own).map_err(|error| wrong(error.to_string()))?;
        let key = PublicKey::from_der(certificate.public_key().raw.to_vec()).map_err(wrong)?;
        let (message, signature) = read.signed();
        if !key.verifies(&message, signature) {
            return Err(SignatureError::Key("the key of its certificate"));
        }
        let subject = self.subject.check(&certificate)?;
        let issuer = certificate.issuer().to_string();
        Ok((Signer::Identity { subject, issuer }, time, proof))
    }

    fn check_chain(&self, own: &[u8], sent: &[Vec<u8>], time: Timestamp) -> Result<(), SignatureError> {
        let wrong = |error: webpki::Error| SignatureError::Certificate(error.to_string());
        let own = CertificateDer::from(own);
        let own = EndEntityCert::try_from(&own).map_err(wrong)?;
        let between: Vec<_> = self
            .intermediates
            .iter()
            .chain(sent)
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        own.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.roots,
            &between,
            UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            KeyUsage::required(CODE_SIGNING),
            None,
            None,
        )
        .map(drop)
        .map_err(wrong)
    }
}

impl Subject {
    /// The required names; the certificate must have all of them.
    fn check(&self, certificate: &X509Certificate<'_>) -> Result<String, SignatureError> {
        let names = certificate
            .subject_alternative_name()
            .map_err(|error| SignatureError::Certificate(error.to_string()))?;
        let mut emails = Vec::new();
        let mut hosts = Vec::new();
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::RFC822Name(text) => emails.push(*text),
                GeneralName::DNSName(text) => hosts.push(*text),
                _ => {}
            }
        }
        let email = self
            .email
            .as_deref()
            .is_none_or(|wanted| emails.contains(&wanted));
        let host = self
            .hostname
            .as_deref()
            .is_none_or(|wanted| hosts.iter().any(|host| host.eq_ignore_ascii_case(wanted)));
        let texts = [self.email.as_deref(), self.hostname.as_deref()];
        let wanted = texts.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        if email && host {
            return Ok(wanted);
        }
        let found = emails
            .into_iter()
            .chain(hosts)
            .take(5)
            .collect::<Vec<_>>()
            .join(", ");
        Err(SignatureError::Identity { found, wanted })
    }
}
