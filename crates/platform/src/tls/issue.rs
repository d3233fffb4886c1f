//! Creates an authority and a serving certificate that it signs, and decides when they must be renewed.
//!
//! Both are renewed before they expire, never at the same time. A renewed authority is published beside the old one
//! while the old certificate stays in use, so that all clients have read the new authority before it signs a
//! certificate. An old authority stays published until its last certificate has expired.

use std::collections::BTreeMap;
use std::fmt;

use jiff::ToSpan as _;
use jiff::civil::Date;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::TlsError;

/// Key of the authorities' certificates: the current one first, then older ones that are still trusted.
pub const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
/// Key of the serving certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the serving certificate's private key.
pub const KEY: &str = "tls.key";
const CA_EXPIRES: &str = "ca-expires";
const EXPIRES: &str = "expires";
const RETIRE: &str = "older-authorities-until";
const NAMES: &str = "dns-names";

/// The maximum number of older authorities that stay trusted.
const OLDER: usize = 3;

/// The validity of certificates in days, and the number of days before the end at which they are renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The validity of an authority.
    pub authority: i64,
    /// The number of last days in which an authority is renewed.
    pub authority_renew: i64,
    /// The validity of a serving certificate.
    pub serving: i64,
    /// The number of last days in which a serving certificate is renewed.
    pub serving_renew: i64,
}

impl Lifetimes {
    /// Lifetimes for programs that load a renewed certificate at once.
    pub const SHORT: Self = Self {
        authority: 3650,
        authority_renew: 365,
        serving: 90,
        serving_renew: 30,
    };
    /// Lifetimes for programs that may read their certificate only when they start.
    pub const LONG: Self = Self {
        authority: 3650,
        authority_renew: 1095,
        serving: 730,
        serving_renew: 365,
    };
}

/// An authority with its key, and the certificate that it signed with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    authorities: Vec<String>,
    authority_key: String,
    authority_expires: Date,
    /// The day until which certificates of older authorities may be in use.
    retire: Option<Date>,
    certificate: String,
    key: String,
    expires: Date,
    names: Vec<String>,
}

impl fmt::Debug for Issued {
    /// The text contains no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("names", &self.names)
            .field("expires", &self.expires)
            .field("authority_expires", &self.authority_expires)
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

/// The parts that must be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renew {
    /// Nothing has to be renewed.
    Nothing,
    /// The serving certificate.
    Certificate,
    /// The authority; the serving certificate stays.
    Authority,
    /// Both: there is no certificate yet, or the authority would expire before a new certificate.
    Both,
    /// Nothing, but older authorities have expired and must be removed.
    Retire,
}

/// The parts that must be renewed on a day for a server with these names.
#[must_use]
pub fn plan(issued: Option<&Issued>, names: &[String], lifetimes: Lifetimes, today: Date) -> Renew {
    let Some(issued) = issued else { return Renew::Both };
    if due(issued.authority_expires, lifetimes.serving, today) {
        Renew::Both
    } else if due(issued.expires, lifetimes.serving_renew, today) || issued.names != names {
        Renew::Certificate
    } else if due(issued.authority_expires, lifetimes.authority_renew, today) {
        Renew::Authority
    } else if issued.authorities.len() > 1 && issued.retire.is_some_and(|last| last < today) {
        Renew::Retire
    } else {
        Renew::Nothing
    }
}

/// Whether the last `days_before` days have begun.
pub(super) fn due(expires: Date, days_before: i64, today: Date) -> bool {
    expires.saturating_sub(days_before.days()) <= today
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "self-signed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn lasting(mut params: CertificateParams, from: Date, to: Date) -> CertificateParams {
    let moment = |date: Date| {
        rcgen::date_time_ymd(
            i32::from(date.year()),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    params.not_before = moment(from.saturating_sub(1.day()));
    params.not_after = moment(to);
    params
}

/// Renews the parts that [`plan`] returned.
///
/// # Errors
/// When the authority's key cannot be read, or a certificate cannot be signed.
pub fn issue(
    issued: Option<Issued>,
    renew: Renew,
    names: &[String],
    lifetimes: Lifetimes,
    today: Date,
) -> Result<Issued, TlsError> {
    let authority = match (issued, renew) {
        (Some(issued), Renew::Nothing) => return Ok(issued),
        (Some(mut issued), Renew::Retire) => {
            issued.authorities.truncate(1);
            issued.retire = None;
            return Ok(issued);
        }
        (Some(issued), Renew::Certificate) => {
            let key = KeyPair::from_pem(&issued.authority_key).map_err(TlsError::Generate)?;
            (issued.authorities, key, issued.authority_expires, issued.retire)
        }
        (before, _) => {
            let key = KeyPair::generate().map_err(TlsError::Generate)?;
            let expires = today.saturating_add(lifetimes.authority.days());
            let params = lasting(authority_params(), today, expires);
            let mut all = vec![params.self_signed(&key).map_err(TlsError::Generate)?.pem()];
            all.extend(
                before
                    .iter()
                    .flat_map(|before| before.authorities.iter().take(OLDER).cloned()),
            );
            let retire = before
                .as_ref()
                .map(|before| before.retire.unwrap_or(before.expires).max(before.expires));
            if let (Some(before), Renew::Authority) = (before, renew) {
                return Ok(Issued {
                    authorities: all,
                    authority_key: key.serialize_pem(),
                    authority_expires: expires,
                    retire,
                    ..before
                });
            }
            (all, key, expires, retire)
        }
    };
    let (authorities, authority_key, authority_expires, retire) = authority;
    let expires = today.saturating_add(lifetimes.serving.days());
    let mut params = CertificateParams::new(names.to_vec()).map_err(TlsError::Generate)?;
    if let Some(name) = names.first() {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, name.chars().take(64).collect::<String>());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(TlsError::Generate)?;
    // Name, key usages and key of the signer never change, so they describe it.
    let authority_pem = authority_key.serialize_pem();
    let signer = Issuer::new(authority_params(), authority_key);
    let certificate = lasting(params, today, expires)
        .signed_by(&key, &signer)
        .map_err(TlsError::Generate)?;
    Ok(Issued {
        authorities,
        authority_key: authority_pem,
        authority_expires,
        retire,
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        expires,
        names: names.to_vec(),
    })
}

impl Issued {
    /// Reads the output of [`Self::data`]; `None` if a part is missing or unusable.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| Some(String::from_utf8_lossy(&data.get(key)?.0).into_owned());
        let issued = Self {
            authorities: split_pem(&text(CA)?),
            authority_key: text(CA_KEY)?,
            authority_expires: text(CA_EXPIRES)?.parse().ok()?,
            retire: text(RETIRE).and_then(|date| date.parse().ok()),
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            expires: text(EXPIRES)?.parse().ok()?,
            names: text(NAMES)?.split(',').map(str::to_owned).collect(),
        };
        let usable = |key: &str| KeyPair::from_pem(key).is_ok();
        let complete = !issued.authorities.is_empty() && !split_pem(&issued.certificate).is_empty();
        (complete && usable(&issued.authority_key) && usable(&issued.key)).then_some(issued)
    }

    /// A certificate of other authorities, whose keys are unknown, all PEM. [`issue`] with [`Renew::Authority`] gives
    /// it an authority, and the certificate stays in use until it is due. `None` if it is due already or a part is
    /// unusable.
    #[must_use]
    pub fn of_others(
        [authorities, certificate, key]: [&str; 3],
        expires: Date,
        names: &[String],
        lifetimes: Lifetimes,
        today: Date,
    ) -> Option<Self> {
        let issued = Self {
            authorities: split_pem(authorities),
            authority_key: String::new(),
            authority_expires: expires,
            retire: None,
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            expires,
            names: names.to_vec(),
        };
        let is_usable = !issued.authorities.is_empty()
            && !split_pem(certificate).is_empty()
            && KeyPair::from_pem(key).is_ok()
            && !due(expires, lifetimes.serving_renew, today);
        is_usable.then_some(issued)
    }

    /// The data for a Secret.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let entry = |key: &str, value: String| (key.to_owned(), ByteString(value.into_bytes()));
        let mut data = BTreeMap::from([
            entry(CA, self.trusted()),
            entry(CA_KEY, self.authority_key.clone()),
            entry(CA_EXPIRES, self.authority_expires.to_string()),
            entry(CERTIFICATE, self.certificate.clone()),
            entry(KEY, self.key.clone()),
            entry(EXPIRES, self.expires.to_string()),
            entry(NAMES, self.names.join(",")),
        ]);
        data.extend(self.retire.map(|date| entry(RETIRE, date.to_string())));
        data
    }

    /// The certificates of the trusted authorities, the current one first.
    #[must_use]
    pub fn trusted(&self) -> String {
        self.authorities.concat()
    }

    /// The serving certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key, PEM.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The day on which the serving certificate expires.
    #[must_use]
    pub fn expires(&self) -> Date {
        self.expires
    }

    /// Also trusts authorities whose keys are lost, as long as their certificates may be in use.
    #[must_use]
    pub fn also_trusting(mut self, older: &str, lifetimes: Lifetimes, today: Date) -> Self {
        for authority in split_pem(older) {
            if self.authorities.len() <= OLDER && !self.authorities.contains(&authority) {
                self.authorities.push(authority);
                self.retire = Some(today.saturating_add(lifetimes.serving.days()));
            }
        }
        self
    }
}

/// The certificates in a text, each with its lines.
fn split_pem(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    text.split_inclusive(END)
        .map(|part| part.trim_start().to_owned() + "\n")
        .filter(|part| part.contains(END))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::tz::TimeZone;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

    fn names() -> Vec<String> {
        vec!["catalogs.system.svc".to_owned(), "localhost".to_owned()]
    }

    const SHORT: Lifetimes = Lifetimes::SHORT;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn trusted(stored: &Issued, authority: &str, on: &str) -> Result<(), String> {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(authority)).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let seconds = day(on).to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap()));
        verifier
            .verify_server_cert(
                &der(&stored.certificate),
                &[],
                &ServerName::try_from("localhost").unwrap(),
                &[],
                now,
            )
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn clients_trust_the_certificate_through_the_authority_until_it_expires() {
        let made = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        assert_eq!(trusted(&made, &made.authorities[0], "2026-01-01"), Ok(()));
        assert_eq!(trusted(&made, &made.authorities[0], "2026-03-31"), Ok(()));
        assert!(trusted(&made, &made.authorities[0], "2026-04-02").is_err());
    }

    #[test]
    fn a_renewed_certificate_is_trusted_by_those_who_know_the_same_authority() {
        let first = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let renewed = issue(
            Some(first.clone()),
            Renew::Certificate,
            &names(),
            SHORT,
            day("2026-03-05"),
        )
        .unwrap();
        assert_ne!(first.certificate, renewed.certificate);
        assert_eq!(trusted(&renewed, &first.authorities[0], "2026-04-15"), Ok(()));
    }

    #[test]
    fn a_renewed_authority_signs_only_after_everybody_could_read_it() {
        let first = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let fresh = issue(
            Some(first),
            Renew::Certificate,
            &names(),
            SHORT,
            day("2035-01-01"),
        )
        .unwrap();
        let renewed = issue(
            Some(fresh.clone()),
            Renew::Authority,
            &names(),
            SHORT,
            day("2035-01-01"),
        )
        .unwrap();
        assert_eq!(renewed.authorities.len(), 2);
        assert_eq!(renewed.authorities[1], fresh.authorities[0]);
        assert_eq!(renewed.certificate, fresh.certificate);
        assert_eq!(trusted(&renewed, &fresh.authorities[0], "2035-02-01"), Ok(()));
        let later = issue(
            Some(renewed),
            Renew::Certificate,
            &names(),
            SHORT,
            day("2035-03-05"),
        )
        .unwrap();
        assert_eq!(trusted(&later, &later.authorities[0], "2035-03-05"), Ok(()));
        assert!(trusted(&later, &fresh.authorities[0], "2035-03-05").is_err());
    }

    #[test]
    fn renewal_is_due_before_expiry_and_when_the_names_change() {
        let made = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let at = |on: &str| plan(Some(&made), &names(), SHORT, day(on));
        assert_eq!(at("2026-01-01"), Renew::Nothing);
        assert_eq!(at("2026-03-01"), Renew::Nothing);
        assert_eq!(at("2026-03-02"), Renew::Certificate);
        let fresh = issue(
            Some(made.clone()),
            Renew::Certificate,
            &names(),
            SHORT,
            day("2035-01-01"),
        )
        .unwrap();
        assert_eq!(at("2035-01-01"), Renew::Certificate);
        assert_eq!(
            plan(Some(&fresh), &names(), SHORT, day("2035-01-01")),
            Renew::Authority
        );
        let renewed = issue(Some(fresh), Renew::Authority, &names(), SHORT, day("2035-01-01")).unwrap();
        assert_eq!(
            plan(Some(&renewed), &names(), SHORT, day("2035-01-01")),
            Renew::Nothing
        );
        assert_eq!(at("2035-11-01"), Renew::Both);
        assert_eq!(
            plan(Some(&made), &["other".to_owned()], SHORT, day("2026-01-01")),
            Renew::Certificate
        );
        assert_eq!(plan(None, &names(), SHORT, day("2026-01-01")), Renew::Both);
    }

    #[test]
    fn a_stored_certificate_reads_back_equal() {
        let first = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let both = issue(Some(first), Renew::Both, &names(), SHORT, day("2035-06-01")).unwrap();
        let mut data = both.data();
        assert_eq!(Issued::read(&data), Some(both));
        assert_eq!(Issued::read(&BTreeMap::new()), None);
        data.insert(CA_KEY.to_owned(), ByteString(b"not a key".to_vec()));
        assert_eq!(Issued::read(&data), None, "what cannot be used is made anew");
    }

    #[test]
    fn an_old_authority_is_trusted_until_its_certificates_have_expired() {
        let first = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let forced = issue(
            Some(first.clone()),
            Renew::Both,
            &names(),
            SHORT,
            day("2026-01-10"),
        )
        .unwrap();
        assert_eq!(trusted(&first, &forced.authorities[1], "2026-01-10"), Ok(()));
        assert_eq!(trusted(&forced, &forced.authorities[0], "2026-01-10"), Ok(()));
        let plan = |issued: &Issued, on: &str| plan(Some(issued), &names(), SHORT, day(on));
        assert_eq!(plan(&forced, "2026-03-11"), Renew::Certificate);
        let renewed = issue(
            Some(forced),
            Renew::Certificate,
            &names(),
            SHORT,
            day("2026-03-11"),
        )
        .unwrap();
        assert_eq!(renewed.authorities.len(), 2);
        assert_eq!(plan(&renewed, "2026-04-01"), Renew::Nothing);
        assert_eq!(plan(&renewed, "2026-04-02"), Renew::Retire);
        let retired = issue(Some(renewed), Renew::Retire, &names(), SHORT, day("2026-04-02")).unwrap();
        assert_eq!(retired.authorities.len(), 1);
        assert_eq!(plan(&retired, "2026-04-02"), Renew::Nothing);
    }

    #[test]
    fn authorities_whose_keys_are_lost_stay_trusted_for_a_while_and_are_few() {
        let lost = |on: &str| issue(None, Renew::Both, &names(), SHORT, day(on)).unwrap();
        let mut trust = String::new();
        for _ in 0..6 {
            let made = lost("2026-01-01").also_trusting(&trust, SHORT, day("2026-01-01"));
            trust = made.trusted();
        }
        assert_eq!(split_pem(&trust).len(), OLDER + 1);
        let made = lost("2026-01-02").also_trusting(&trust, SHORT, day("2026-01-02"));
        assert!(
            made.trusted().contains(&split_pem(&trust)[0]),
            "the newest of the lost ones"
        );
        assert_eq!(made.retire, Some(day("2026-04-02")));
        let same = made
            .clone()
            .also_trusting(&made.trusted(), SHORT, day("2026-06-01"));
        assert_eq!(same, made, "what is trusted already changes nothing");
    }

    #[test]
    fn keys_are_never_shown() {
        let made = issue(None, Renew::Both, &names(), SHORT, day("2026-01-01")).unwrap();
        let shown = format!("{made:?}");
        assert!(
            !shown.contains("PRIVATE") && shown.contains("localhost"),
            "{shown}"
        );
    }
}
