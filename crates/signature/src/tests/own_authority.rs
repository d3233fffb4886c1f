//! An authority of one's own, and signatures by a certificate of it.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    SigningKey as _, date_time_ymd,
};

use super::*;

struct Own {
    terms: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Own {
    fn new() -> Self {
        let mut terms = CertificateParams::default();
        terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = terms.self_signed(&key).unwrap().pem();
        Self { terms, key, pem }
    }

    /// A signature over the payload with a certificate for an email address and a host, valid in 2026.
    fn sign(&self, purpose: ExtendedKeyUsagePurpose) -> Signature {
        let mut terms = CertificateParams::default();
        terms.subject_alt_names = vec![
            SanType::Rfc822Name("build@example.com".try_into().unwrap()),
            SanType::DnsName("build.example.com".try_into().unwrap()),
        ];
        terms.extended_key_usages = vec![purpose];
        terms.not_before = date_time_ymd(2026, 1, 1);
        terms.not_after = date_time_ymd(2026, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = terms
            .signed_by(&key, &Issuer::from_params(&self.terms, &self.key))
            .unwrap()
            .pem();
        let signature = STANDARD.encode(key.sign(PAYLOAD).unwrap());
        let found = Attached::new(PAYLOAD.to_vec(), |name| match name {
            SIGNATURE_ANNOTATION => Some(signature.as_str()),
            "dev.sigstore.cosign/certificate" => Some(certificate.as_str()),
            _ => None,
        });
        Signature::Attached(found.unwrap())
    }

    fn authority(&self, email: Option<&str>, hostname: Option<&str>) -> Authority {
        let subject = Subject {
            email: email.map(str::to_owned),
            hostname: hostname.map(str::to_owned),
        };
        Authority::Pki(Pki::new(self.pem.as_bytes(), None, subject, &[]).unwrap())
    }
}

#[test]
fn a_certificate_counts_for_the_names_that_it_has_while_it_is_valid() {
    let own = Own::new();
    let signature = own.sign(ExtendedKeyUsagePurpose::CodeSigning);
    let email = Some("build@example.com");
    let host = Some("build.example.com");
    for (email, host) in [(email, None), (None, host), (email, host)] {
        let verified = check(&own.authority(email, host), &signature, OTHER).unwrap();
        assert_eq!(verified.claim.name.as_deref(), Some("127.0.0.1:15999/app"));
    }
    for (email, host) in [
        (Some("other@example.com"), host),
        (email, Some("other.example.com")),
    ] {
        let fault = check(&own.authority(email, host), &signature, OTHER).unwrap_err();
        assert_eq!(fault.kind(), "identity", "{fault}");
    }
    let late: Timestamp = "2027-02-01T00:00:00Z".parse().unwrap();
    let fault = own
        .authority(email, host)
        .check(&signature, None, &[OTHER.to_owned()], late);
    assert_eq!(fault.unwrap_err().kind(), "certificate");
}

#[test]
fn a_certificate_of_another_authority_or_for_another_purpose_does_not_count() {
    let own = Own::new();
    let authority = own.authority(Some("build@example.com"), None);
    for signature in [
        Own::new().sign(ExtendedKeyUsagePurpose::CodeSigning),
        own.sign(ExtendedKeyUsagePurpose::ServerAuth),
    ] {
        let fault = check(&authority, &signature, OTHER).unwrap_err();
        assert_eq!(fault.kind(), "certificate", "{fault}");
    }
    let fault = check(&authority, &attached(PAYLOAD), OTHER).unwrap_err();
    assert_eq!(fault, SignatureError::Material("certificate"));
    let unnamed = Pki::new(own.pem.as_bytes(), None, Subject::default(), &[]);
    assert!(unnamed.unwrap_err().contains("neither"));
}

#[test]
fn a_certificate_needs_the_log_where_one_is_named() {
    let own = Own::new();
    let signature = own.sign(ExtendedKeyUsagePurpose::CodeSigning);
    let subject = Subject {
        email: Some("build@example.com".to_owned()),
        hostname: None,
    };
    let log = PublicKey::parse_pem(KEY).unwrap();
    let authority = Authority::Pki(Pki::new(own.pem.as_bytes(), None, subject, &log).unwrap());
    assert_eq!(check(&authority, &signature, OTHER).unwrap_err().kind(), "log");
}
