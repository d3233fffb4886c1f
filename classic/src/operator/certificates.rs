//! The certificates of an installation, signed by an authority of its own.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use olm_classic::install::{IssuedCertificate, Issuer};
use olm_platform::tls::certificate::not_after;
use olm_platform::tls::issue::{Issued, Lifetimes, Renew, issue};
use parking_lot::Mutex;

/// Time before its expiry at which a certificate is renewed.
const ROTATION: SignedDuration = SignedDuration::from_hours(24);
/// Two years, as clients know it; certificates and their authority end together.
const LIFETIMES: Lifetimes = Lifetimes {
    authority: 730,
    authority_renew: 1,
    serving: 730,
    serving_renew: 1,
};

/// Makes the certificates of one installation.
#[derive(Debug)]
pub struct Authority {
    today: Date,
    issued: Mutex<Option<Issued>>,
}

impl Authority {
    /// An authority that is made when it first signs, at this time.
    pub fn new(now: Timestamp) -> Self {
        Self {
            today: now.to_zoned(TimeZone::UTC).date(),
            issued: Mutex::default(),
        }
    }
}

impl Issuer for Authority {
    fn issue(&self, hosts: &[String]) -> Result<IssuedCertificate, String> {
        let mut issued = self.issued.lock();
        let renew = if issued.is_some() {
            Renew::Certificate
        } else {
            Renew::Both
        };
        let made = issue(issued.take(), renew, hosts, LIFETIMES, self.today);
        let made = made.map_err(|error| format!("cannot make a certificate: {error}"))?;
        let expires = made.expires().to_zoned(TimeZone::UTC);
        let certificate = IssuedCertificate {
            authority: made.trusted(),
            certificate: made.certificate().to_owned(),
            key: made.key().to_owned(),
            expires: expires.map_err(|error| error.to_string())?.timestamp(),
        };
        *issued = Some(made);
        Ok(certificate)
    }

    fn due(&self, certificate: &str, authority: &str) -> Option<Timestamp> {
        let ends = [certificate, authority].map(|text| {
            let end = not_after(text.as_bytes());
            end.and_then(|end| Timestamp::from_second(end).ok())
                .unwrap_or(Timestamp::MIN)
        });
        let first = ends.into_iter().min()?;
        first.checked_sub(ROTATION).ok().or(Some(Timestamp::MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_authority_signs_for_all_and_is_due_a_day_before_its_end() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let authority = Authority::new(now);
        let first = authority.issue(&["a.n".to_owned()]).unwrap();
        let second = authority.issue(&["b.n".to_owned()]).unwrap();
        assert_eq!(first.authority, second.authority);
        assert_ne!(first.certificate, second.certificate);
        let due = authority.due(&first.certificate, &first.authority).unwrap();
        assert_eq!(due, first.expires - ROTATION);
        assert_eq!(due.to_string(), "2027-12-31T00:00:00Z");
    }

    #[test]
    fn what_is_no_certificate_is_due_at_once() {
        let authority = Authority::new(Timestamp::UNIX_EPOCH);
        assert_eq!(authority.due("", "x"), Some(Timestamp::MIN));
    }
}
