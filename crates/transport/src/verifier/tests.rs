//! Real handshakes in memory with all common kinds of servers.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion, version};

use super::*;
use crate::client_config;

const ANY: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A certificate and its key.
struct Issued {
    terms: CertificateParams,
    key: KeyPair,
    certificate: rcgen::Certificate,
}

impl Issued {
    fn alone(terms: CertificateParams) -> Self {
        Self::alone_with(terms, KeyPair::generate().unwrap())
    }

    fn alone_with(terms: CertificateParams, key: KeyPair) -> Self {
        let certificate = terms.self_signed(&key).unwrap();
        Self {
            terms,
            key,
            certificate,
        }
    }

    fn under(&self, terms: CertificateParams) -> Self {
        self.under_with(terms, KeyPair::generate().unwrap())
    }

    fn under_with(&self, terms: CertificateParams, key: KeyPair) -> Self {
        let issuer = Issuer::from_params(&self.terms, &self.key);
        let certificate = terms.signed_by(&key, &issuer).unwrap();
        Self {
            terms,
            key,
            certificate,
        }
    }
}

/// A leaf certificate for the host `r.example`.
fn leaf() -> CertificateParams {
    named("leaf", &["r.example"])
}

fn authority(name: &str) -> CertificateParams {
    let mut terms = named(name, &[]);
    terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    terms.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    terms
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut terms = CertificateParams::new(hosts).unwrap();
    terms.distinguished_name.push(DnType::CommonName, name);
    terms
}

/// The same terms with the CA flag.
fn flagged(mut terms: CertificateParams) -> CertificateParams {
    terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    terms
}

fn trusting(certificates: &[&Issued]) -> Authorities {
    let mut authorities = Authorities::none();
    for certificate in certificates {
        authorities.add_pem(certificate.certificate.pem().as_bytes());
    }
    authorities
}

/// The client's result for a server that presents its certificate and `others`. The client trusts `authorities` and
/// connects to `host`.
fn handshake(
    server: &Issued,
    others: &[&Issued],
    authorities: Authorities,
    host: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<(), String> {
    let verifier = verified(&provider(), authorities, "--ca-dir");
    shake(server, others, verifier, host, versions)
}

fn shake(
    server: &Issued,
    others: &[&Issued],
    verifier: Arc<dyn ServerCertVerifier>,
    host: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<(), String> {
    let chain = std::iter::once(server).chain(others.iter().copied());
    let chain = chain.map(|issued| issued.certificate.der().clone()).collect();
    let key = PrivatePkcs8KeyDer::from(server.key.serialize_der());
    let key = any_supported_type(&key.into()).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))));
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    let config = client_config(provider(), ANY, verifier).unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client
                .process_new_packets()
                .map_err(|error| crate::reason(&error))?;
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            return Ok(());
        }
    }
    Err("the handshake does not end".to_owned())
}

#[track_caller]
fn fails(result: Result<(), String>, expected: &[&str]) {
    let error = result.unwrap_err();
    assert!(error.starts_with("the certificate is not trusted: "), "{error}");
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn a_certificate_with_the_ca_flag_passes_where_one_without_it_does() {
    let (root, stranger) = (Issued::alone(authority("root")), Issued::alone(authority("root")));
    let middle = root.under(authority("middle"));
    for versions in [ANY, &[&version::TLS12]] {
        for terms in [leaf(), flagged(leaf())] {
            let pass = |server: &Issued, others: &[&Issued], trusted: &[&Issued]| {
                let result = handshake(server, others, trusting(trusted), "r.example", versions);
                assert_eq!(result, Ok(()), "{:?}", server.terms.is_ca);
            };
            let alone = Issued::alone(terms.clone());
            let direct = root.under(terms.clone());
            let indirect = middle.under(terms.clone());
            pass(&alone, &[], &[&alone]);
            pass(&direct, &[], &[&root]);
            pass(&direct, &[&root], &[&root]);
            pass(&indirect, &[&middle], &[&root]);
            pass(&indirect, &[], &[&middle]);
            // The certificate is itself an authority, though another one issued it.
            pass(&direct, &[], &[&direct]);

            let refuse = |server: &Issued, others: &[&Issued], trusted: &[&Issued]| {
                let result = handshake(server, others, trusting(trusted), "r.example", versions);
                fails(result, &["add the certificate of its issuer to --ca-dir"]);
            };
            refuse(&alone, &[], &[]);
            refuse(&alone, &[], &[&root]);
            refuse(&direct, &[], &[]);
            refuse(&direct, &[&root], &[]);
            // The intermediate is missing.
            refuse(&indirect, &[], &[&root]);
            // Another key under the same name.
            let forged = handshake(&direct, &[], trusting(&[&stranger]), "r.example", versions);
            fails(forged, &["BadSignature"]);
        }
    }
}

#[test]
fn a_certificate_that_looks_like_an_authority_is_none() {
    let root = Issued::alone(flagged(leaf()));
    // The same names and dates, another key.
    let forged = Issued::alone(flagged(leaf()));
    fails(
        handshake(&forged, &[], trusting(&[&root]), "r.example", ANY),
        &["BadSignature"],
    );
}

#[test]
fn a_certificate_that_may_not_issue_is_no_authority_for_others() {
    let mut expired = authority("expired");
    expired.not_before = date_time_ymd(2000, 1, 1);
    expired.not_after = date_time_ymd(2001, 1, 1);
    let mut explicit = leaf();
    explicit.is_ca = IsCa::ExplicitNoCa;
    for terms in [leaf(), explicit, expired] {
        let issuer = Issued::alone(terms);
        for terms in [leaf(), flagged(leaf())] {
            let server = issuer.under(terms);
            let shown = |others| handshake(&server, others, trusting(&[&issuer]), "r.example", ANY);
            fails(shown(&[]), &["no trusted authority issued it"]);
            fails(shown(&[&issuer]), &[]);
        }
    }
}

#[test]
fn a_cross_signed_authority_is_found_over_either_issuer() {
    let (old, new) = (Issued::alone(authority("old")), Issued::alone(authority("new")));
    let key = || KeyPair::from_pem(&new.key.serialize_pem()).unwrap();
    let crossed = old.under_with(authority("new"), key());
    for terms in [leaf(), flagged(leaf())] {
        let server = new.under(terms);
        for (others, trusted) in [
            (vec![&crossed], &old),
            (vec![&crossed], &new),
            (vec![&new, &crossed], &old),
            (vec![], &new),
        ] {
            let result = handshake(&server, &others, trusting(&[trusted]), "r.example", ANY);
            assert_eq!(result, Ok(()));
        }
        fails(
            handshake(&server, &[], trusting(&[&old]), "r.example", ANY),
            &["no trusted authority issued it"],
        );
    }
}

/// Terms of a leaf, and the text of its refusal.
type Wrong = (
    fn(CertificateParams) -> CertificateParams,
    &'static str,
    &'static [&'static str],
);

const WRONG: &[Wrong] = &[
    (
        |terms| terms,
        "other.example",
        &[
            "it is not for `other.example`",
            "for r.example,",
            "issue it with the subject alternative name `other.example`",
        ],
    ),
    (
        |mut terms| {
            terms.subject_alt_names.clear();
            terms.distinguished_name.push(DnType::CommonName, "r.example");
            terms
        },
        "r.example",
        &[
            "it names no host, and `r.example` is expected",
            "a common name without a subject alternative name does not count",
            "subject `CN=r.example`",
        ],
    ),
    (
        |mut terms| {
            terms.not_after = date_time_ymd(2001, 2, 3);
            terms.not_before = date_time_ymd(2000, 2, 3);
            terms
        },
        "r.example",
        &[
            "it has expired",
            "valid from 2000-02-03 00:00 UTC to 2001-02-03 00:00 UTC",
            "renew it",
        ],
    ),
    (
        |mut terms| {
            terms.not_before = date_time_ymd(2999, 1, 1);
            terms.not_after = date_time_ymd(3000, 1, 1);
            terms
        },
        "r.example",
        &["it is not valid yet", "compare the clocks"],
    ),
    (
        |mut terms| {
            terms.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            terms
        },
        "r.example",
        &["its extended key usage does not name servers", "`serverAuth`"],
    ),
];

#[test]
fn names_dates_and_usages_are_checked_however_a_certificate_is_trusted() {
    let root = Issued::alone(authority("root"));
    for (wrong, host, expected) in WRONG {
        for terms in [leaf(), flagged(leaf())] {
            let is_ca = format!("CA: {}", terms.is_ca != IsCa::NoCa);
            let terms = wrong(terms);
            let expected = [*expected, &[is_ca.as_str(), "issuer `CN="]].concat();
            let (alone, under) = (Issued::alone(terms.clone()), root.under(terms));
            for (server, trusted) in [(&alone, &alone), (&under, &root), (&under, &under)] {
                fails(handshake(server, &[], trusting(&[trusted]), host, ANY), &expected);
            }
        }
    }
}

#[test]
fn constraints_of_issuers_bind_a_leaf_with_the_ca_flag_too() {
    let check = |root: CertificateParams, middle: CertificateParams, expected: &str| {
        let root = Issued::alone(root);
        let middle = root.under(middle);
        for terms in [leaf(), flagged(leaf())] {
            let server = middle.under(terms);
            fails(
                handshake(&server, &[&middle], trusting(&[&root]), "r.example", ANY),
                &[expected],
            );
        }
    };
    check(authority("root"), named("middle", &[]), "EndEntityUsedAsCa");
    let mut expired = authority("middle");
    expired.not_before = date_time_ymd(2000, 1, 1);
    expired.not_after = date_time_ymd(2001, 1, 1);
    check(authority("root"), expired, "an authority over it has expired");
    let mut clients = authority("middle");
    clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    check(
        authority("root"),
        clients,
        "an authority over it may not issue certificates for servers",
    );
    let mut elsewhere = authority("middle");
    elsewhere.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("other.example".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    check(authority("root"), elsewhere, "NameConstraintViolation");

    // A path length counts the authorities in between. A leaf is not one of them, whatever its flag.
    let root = Issued::alone(authority("root"));
    let mut last = authority("middle");
    last.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let last = root.under(last);
    for terms in [leaf(), flagged(leaf())] {
        let server = last.under(terms);
        let result = handshake(&server, &[&last], trusting(&[&root]), "r.example", ANY);
        assert_eq!(result, Ok(()));
    }
    let below = last.under(authority("below"));
    let server = below.under(flagged(leaf()));
    fails(
        handshake(&server, &[&below, &last], trusting(&[&root]), "r.example", ANY),
        &["PathLenConstraintViolated"],
    );
}

#[test]
fn keys_of_every_kind_and_addresses_work() {
    let keys = [
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(),
        KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(),
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap(),
    ];
    let root_key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA512, rcgen::RsaKeySize::_3072).unwrap();
    let root = Issued::alone_with(authority("root"), root_key);
    let addresses = ["192.0.2.7", "2001:db8::7"].map(|text| text.parse().unwrap());
    for key in keys {
        for versions in [ANY, &[&version::TLS12]] {
            let mut terms = flagged(leaf());
            terms.subject_alt_names.extend(addresses.map(SanType::IpAddress));
            let key = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
            let (alone, under) = (
                Issued::alone_with(terms.clone(), key()),
                root.under_with(terms, key()),
            );
            // If the host is an address, the client sends no server name.
            for host in ["r.example", "192.0.2.7", "2001:db8::7"] {
                for (server, trusted) in [(&alone, &alone), (&under, &root)] {
                    let result = handshake(server, &[], trusting(&[trusted]), host, versions);
                    assert_eq!(result, Ok(()), "{host} {:?}", key().algorithm());
                }
            }
            fails(
                handshake(&alone, &[], trusting(&[&alone]), "192.0.2.8", versions),
                &[
                    "it is not for `192.0.2.8`",
                    "for r.example, 192.0.2.7, 2001:db8::7,",
                ],
            );
        }
    }
}

#[test]
fn a_refusal_names_the_presented_certificate_and_the_remedy() {
    let server = Issued::alone(authority("root")).under(flagged(leaf()));
    let error = handshake(&server, &[], trusting(&[]), "r.example", ANY).unwrap_err();
    let expected = "the certificate is not trusted: no trusted authority issued it; the server presents subject `CN=leaf`, issuer \
                    `CN=root`, for r.example, valid from 1975-01-01 00:00 UTC to 4096-01-01 00:00 UTC, CA: true; add the \
                    certificate of its issuer to --ca-dir";
    assert_eq!(error, expected);
}

#[test]
fn a_server_without_the_key_of_its_certificate_is_refused_even_where_nothing_is_verified() {
    let (server, stranger) = (Issued::alone(leaf()), Issued::alone(leaf()));
    let anything = || unverified(&provider());
    assert_eq!(shake(&server, &[], anything(), "other.example", ANY), Ok(()));
    let thief = Issued {
        key: stranger.key,
        ..server
    };
    for versions in [ANY, &[&version::TLS12]] {
        let error = shake(&thief, &[], anything(), "r.example", versions).unwrap_err();
        assert_eq!(error, "invalid peer certificate: BadSignature");
    }
}
