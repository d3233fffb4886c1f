//! The content of a certificate, and the certificate without its CA flag.

use std::ops::Range;

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{X509Name, X509Version};

/// The longest quoted name in characters.
const NAME_LENGTH: usize = 120;
/// The most quoted alternative names.
const NAMES: usize = 5;

/// A well-formed certificate. Its trust is not checked.
pub(crate) struct Certificate<'der> {
    der: &'der [u8],
    parsed: X509Certificate<'der>,
}

impl<'der> Certificate<'der> {
    /// Parses a certificate. `None` if the bytes are not exactly one certificate.
    pub(crate) fn read(der: &'der [u8]) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        rest.is_empty().then_some(Self { der, parsed })
    }

    pub(crate) fn is_ca(&self) -> bool {
        self.parsed.is_ca()
    }

    /// Whether it may issue certificates: version 1 has no CA flag.
    pub(crate) fn may_issue(&self) -> bool {
        self.is_ca() || self.parsed.version() == X509Version::V1
    }

    pub(crate) fn has_expired(&self, now: UnixTime) -> bool {
        seconds(self.parsed.validity().not_after) < signed(now)
    }

    pub(crate) fn is_not_valid_yet(&self, now: UnixTime) -> bool {
        seconds(self.parsed.validity().not_before) > signed(now)
    }

    /// Whether the extended key usage, if there is one, has `serverAuth`.
    pub(crate) fn is_for_servers(&self) -> bool {
        match self.parsed.extended_key_usage() {
            Ok(None) => true,
            Ok(Some(usage)) => usage.value.server_auth,
            Err(_) => false,
        }
    }

    /// The hosts of the certificate.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let Ok(Some(names)) = self.parsed.subject_alternative_name() else {
            return Vec::new();
        };
        let names = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(plain(name)),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        });
        names.collect()
    }

    /// Subject, issuer, dates, hosts and CA flag, for a message.
    pub(crate) fn description(&self) -> String {
        let hosts = self.hosts();
        let mut listed = hosts.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
        if hosts.len() > NAMES {
            listed.push_str(", …");
        } else if hosts.is_empty() {
            listed.push_str("no host");
        }
        let validity = self.parsed.validity();
        format!(
            "subject `{}`, issuer `{}`, for {listed}, valid from {} to {}, CA: {}",
            name(self.parsed.subject()),
            name(self.parsed.issuer()),
            date(validity.not_before),
            date(validity.not_after),
            if self.is_ca() { "true" } else { "false" },
        )
    }

    /// The same certificate with the CA flag of its basic constraints set to false, in place; `None` if it is not a CA
    /// certificate. Its signature only matches [`NonCaCertificate::issued`].
    pub(crate) fn without_ca_flag(&self) -> Option<NonCaCertificate<'der>> {
        let constraints = self.parsed.extensions().iter().find(|extension| {
            matches!(extension.parsed_extension(), ParsedExtension::BasicConstraints(value) if value.ca)
        })?;
        // SEQUENCE (tag, length), then BOOLEAN TRUE as its first element.
        let (head, flag) = (constraints.value.get(..2)?, constraints.value.get(2..5)?);
        let &[0x30, length] = head else { return None };
        if usize::from(length) != constraints.value.len() - 2 || flag != [0x01, 0x01, 0xff] {
            return None;
        }
        let place = position(self.der, constraints.value)?.start + 4;
        let signed = position(self.der, self.parsed.tbs_certificate.as_ref())?;
        let mut der = self.der.to_vec();
        *der.get_mut(place)? = 0;
        Some(NonCaCertificate {
            altered: der.get(signed.clone())?.to_vec(),
            der: der.into(),
            issued: self.der.get(signed)?,
        })
    }
}

/// A CA's certificate with its CA flag set to false.
pub(crate) struct NonCaCertificate<'der> {
    pub(crate) der: CertificateDer<'static>,
    /// The bytes of `der` that a signature covers.
    pub(crate) altered: Vec<u8>,
    /// The bytes that its issuer signed.
    pub(crate) issued: &'der [u8],
}

/// The range of a part in the whole text from which it was sliced.
fn position(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    (whole.get(range.clone())? == part).then_some(range)
}

fn name(name: &X509Name<'_>) -> String {
    plain(&name.to_string())
}

fn seconds(time: ASN1Time) -> i64 {
    time.timestamp()
}

fn signed(now: UnixTime) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// `2026-11-22 18:30 UTC`.
fn date(time: ASN1Time) -> String {
    let time = time.to_datetime();
    format!(
        "{}-{:02}-{:02} {:02}:{:02} UTC",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute()
    )
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::IpAddr::from(bytes).to_string());
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::IpAddr::from(bytes).to_string())
}

/// A name in an untrusted certificate, in a form for messages: short, in visible ASCII, without our quotation mark.
fn plain(text: &str) -> String {
    let visible = |character: char| (character.is_ascii_graphic() || character == ' ') && character != '`';
    let mut name: String = text
        .chars()
        .take(NAME_LENGTH)
        .map(|character| if visible(character) { character } else { '?' })
        .collect();
    if text.chars().nth(NAME_LENGTH).is_some() {
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ca_flag_changes() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut terms = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        for constraint in [
            rcgen::BasicConstraints::Unconstrained,
            rcgen::BasicConstraints::Constrained(3),
        ] {
            terms.is_ca = rcgen::IsCa::Ca(constraint);
            let whole = terms.self_signed(&key).unwrap().der().to_vec();
            let unflagged = Certificate::read(&whole).unwrap().without_ca_flag().unwrap();
            let differing = whole
                .iter()
                .zip(unflagged.der.iter())
                .filter(|(one, other)| one != other);
            assert_eq!(differing.collect::<Vec<_>>(), [(&0xff, &0)]);
            assert_eq!(whole.len(), unflagged.der.len());
            let again = Certificate::read(&unflagged.der).unwrap();
            assert!(!again.is_ca() && again.without_ca_flag().is_none());
        }
        terms.is_ca = rcgen::IsCa::ExplicitNoCa;
        let leaf = terms.self_signed(&key).unwrap().der().to_vec();
        assert!(Certificate::read(&leaf).unwrap().without_ca_flag().is_none());
        assert!(Certificate::read(b"\x30\x00").is_none());
    }

    #[test]
    fn a_name_of_a_certificate_cannot_write_into_a_message() {
        assert_eq!(plain("CN=a`\n\u{202e}b"), "CN=a???b");
        assert_eq!(
            plain(&"x".repeat(NAME_LENGTH + 1)).chars().count(),
            NAME_LENGTH + 1
        );
    }
}
