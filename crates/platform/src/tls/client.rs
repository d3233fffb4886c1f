//! Certificates of clients. A server requests them but does not require them, and verifies them for each request.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificates of a request's connection, the client's own first. It is only verified that the client has the key.
#[derive(Debug, Clone)]
pub struct ClientCertificates(Arc<[CertificateDer<'static>]>);

impl ClientCertificates {
    /// The certificates that a client presented; `None` if there are none.
    pub(crate) fn new(shown: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        shown
            .filter(|shown| !shown.is_empty())
            .map(|shown| Self(shown.into()))
    }
}

/// The subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The common name.
    pub name: String,
    /// The organizations.
    pub organizations: Vec<String>,
}

/// Authorities that sign certificates of clients.
#[derive(Debug, Clone)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// Reads authorities from PEM; `None` if none is usable.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.ok().map(Self)
    }

    /// The subject of a valid certificate that one of the authorities signed; `None` for any other certificate.
    pub fn subject(&self, shown: &ClientCertificates) -> Option<Subject> {
        let (own, others) = shown.0.split_first()?;
        self.0.verify_client_cert(own, others, UnixTime::now()).ok()?;
        let (_, parsed) = X509Certificate::from_der(own).ok()?;
        let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
        let organizations = parsed.subject().iter_organization();
        Some(Subject {
            name: name.to_owned(),
            organizations: organizations
                .filter_map(|name| name.as_str().ok().map(str::to_owned))
                .collect(),
        })
    }
}

/// Accepts every certificate whose key the client has, and clients without one.
#[derive(Debug)]
pub(super) struct AnyCertificate(pub(super) Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };

    use super::*;

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn client(issuer: &CertifiedIssuer<'static, KeyPair>) -> ClientCertificates {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "testers");
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        ClientCertificates::new(Some(&[certificate.der().clone()])).unwrap()
    }

    #[test]
    fn only_certificates_of_the_authorities_name_somebody() {
        let (ours, other) = (authority(), authority());
        let authorities = ClientAuthorities::from_pem(ours.pem().as_bytes()).unwrap();
        let subject = authorities.subject(&client(&ours)).unwrap();
        assert_eq!(subject.name, "jane");
        assert_eq!(subject.organizations, ["testers"]);
        assert_eq!(authorities.subject(&client(&other)), None);
        assert!(ClientAuthorities::from_pem(b"").is_none());
        assert!(ClientCertificates::new(Some(&[])).is_none());
    }
}
