//! The verification of servers.
//!
//! A server's certificate passes if all of these checks pass:
//!
//! | check | by |
//! |---|---|
//! | it is well-formed, version 3, without an unknown critical extension | webpki |
//! | it was issued by an authority, directly or over intermediates that the server sends: signatures, names, the CA flag and path length of every intermediate, the name constraints of every issuer | webpki |
//! | it and every intermediate are valid now | webpki |
//! | its extended key usage, if it has one, names servers; likewise every intermediate's | webpki |
//! | the host is one of its subject alternative names | webpki |
//! | the server has its private key | the signature of the handshake, webpki |
//!
//! An authority that issues others has the CA flag (or is of version 1, which has none) and had not expired when it was
//! read: see [`Authorities`]. Its own path length and extended key usage are not checked.
//!
//! Two kinds of certificates that webpki rejects and Go accepts pass as well:
//!
//! - **A server certificate with CA:TRUE**, as created by `openssl req -x509`, many appliances and cert-manager with
//!   `isCA`. webpki gets it with the CA flag set to false, and its signature is verified over the bytes that were
//!   signed. All checks above stay.
//! - **A certificate that is itself one of the authorities**, whatever its issuer. It needs no issuer; its dates and
//!   its extended key usage are checked here, everything else above by webpki.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName, SignatureVerificationAlgorithm,
    UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::authorities::Authorities;
use crate::certificate::{Certificate, NonCaCertificate};

/// The reason why a server's certificate is not trusted. The [`rustls::Error`] of the connection contains it. Its text
/// is one sentence: the fault, the presented certificate, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    why: String,
    presented: String,
    remedy: String,
}

impl fmt::Display for Distrust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            why,
            presented,
            remedy,
        } = self;
        write!(formatter, "{why}; the server presents {presented}; {remedy}")
    }
}

impl std::error::Error for Distrust {}

/// Trusts servers with a certificate of one of the authorities. `setting` names the setting that adds an authority, for
/// messages: for example the flag `--pull-cas-dir`.
pub fn verified(
    provider: &CryptoProvider,
    authorities: Authorities,
    setting: &'static str,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier {
        trust: Some(Trust {
            authorities,
            algorithms: provider.signature_verification_algorithms,
            setting,
        }),
        algorithms: provider.signature_verification_algorithms,
    })
}

/// Trusts every server that has the key of its certificate. Only for servers that are configured as insecure.
pub fn unverified(provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier {
        trust: None,
        algorithms: provider.signature_verification_algorithms,
    })
}

#[derive(Debug)]
struct Verifier {
    /// The trusted authorities; `None` accepts every server.
    trust: Option<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Trust {
    authorities: Authorities,
    algorithms: WebPkiSupportedAlgorithms,
    setting: &'static str,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trust) = &self.trust {
            trust
                .verify(end_entity, intermediates, server_name, now)
                .map_err(|error| trust.explain(error, end_entity, server_name, now))?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Trust {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let issued = match Certificate::read(leaf).and_then(|certificate| certificate.without_ca_flag()) {
            None => self.chain(&parsed, intermediates, now, self.algorithms.all),
            Some(unflagged) => self.chain_unflagged(&unflagged, intermediates, now),
        };
        if let Err(error) = issued {
            if !self.authorities.contain(leaf) {
                return Err(error);
            }
            stands_alone(leaf, now)?;
        }
        verify_server_name(&parsed, host)
    }

    fn chain(
        &self,
        leaf: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), Error> {
        verify_server_cert_signed_by_trust_anchor(
            leaf,
            &self.authorities.roots,
            intermediates,
            now,
            algorithms,
        )
    }

    fn chain_unflagged(
        &self,
        leaf: &NonCaCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms: Vec<AsIssued<'_>> = self
            .algorithms
            .all
            .iter()
            .map(|algorithm| AsIssued {
                algorithm: *algorithm,
                altered: &leaf.altered,
                issued: leaf.issued,
            })
            .collect();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let parsed = ParsedCertificate::try_from(&leaf.der)?;
        self.chain(&parsed, intermediates, now, &algorithms)
    }

    /// Adds the presented certificate and a hint to an error.
    fn explain(
        &self,
        error: Error,
        leaf: &CertificateDer<'_>,
        host: &ServerName<'_>,
        now: UnixTime,
    ) -> Error {
        let Error::InvalidCertificate(reason) = error else {
            return error;
        };
        let Some(certificate) = Certificate::read(leaf) else {
            return Error::InvalidCertificate(reason);
        };
        let (why, remedy) = self.reason(&reason, &certificate, &host.to_str(), now);
        let distrust = Distrust {
            why,
            presented: certificate.description(),
            remedy,
        };
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))
    }

    fn reason(
        &self,
        reason: &CertificateError,
        certificate: &Certificate<'_>,
        host: &str,
        now: UnixTime,
    ) -> (String, String) {
        let setting = self.setting;
        let (why, remedy) = match reason {
            CertificateError::UnknownIssuer => {
                return (
                    "no trusted authority issued it".to_owned(),
                    format!("add the certificate of its issuer to {setting}"),
                );
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                let why = if certificate.hosts().is_empty() {
                    format!(
                        "it names no host, and `{host}` is expected: a common name without a subject alternative name does \
                         not count"
                    )
                } else {
                    format!("it is not for `{host}`")
                };
                return (
                    why,
                    format!("issue it with the subject alternative name `{host}`, or use a name that it has"),
                );
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                if certificate.has_expired(now) {
                    ("it has expired", "renew it")
                } else {
                    ("an authority over it has expired", "renew that authority")
                }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                if certificate.is_not_valid_yet(now) {
                    ("it is not valid yet", "compare the clocks of both machines")
                } else {
                    (
                        "an authority over it is not valid yet",
                        "compare the clocks of both machines",
                    )
                }
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                if certificate.is_for_servers() {
                    (
                        "an authority over it may not issue certificates for servers",
                        "issue it by another authority",
                    )
                } else {
                    (
                        "its extended key usage does not name servers",
                        "issue it with the extended key usage `serverAuth`",
                    )
                }
            }
            other => return (other.to_string(), "issue another one".to_owned()),
        };
        (why.to_owned(), remedy.to_owned())
    }
}

/// Checks a certificate that is itself an authority: it needs no issuer.
fn stands_alone(leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let certificate = Certificate::read(leaf).ok_or(CertificateError::BadEncoding)?;
    if certificate.has_expired(now) {
        return Err(CertificateError::Expired.into());
    }
    if certificate.is_not_valid_yet(now) {
        return Err(CertificateError::NotValidYet.into());
    }
    if !certificate.is_for_servers() {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(())
}

/// Verifies a signature over the bytes that an issuer signed. webpki returns them without the CA flag.
#[derive(Debug)]
struct AsIssued<'leaf> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    altered: &'leaf [u8],
    issued: &'leaf [u8],
}

impl SignatureVerificationAlgorithm for AsIssued<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let message = if message == self.altered {
            self.issued
        } else {
            message
        };
        self.algorithm.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

#[cfg(test)]
mod tests;
