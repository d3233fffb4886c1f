//! Certificates that the manager makes for itself where nobody gives it any: an authority and a serving certificate,
//! kept in a Secret that all replicas share, the authority's public part in a ConfigMap for those who connect.
//!
//! Both are renewed before they expire, never at the same time: a renewed authority is published beside the old one while
//! the certificate of the old one stays in use, so that everybody has read the new one before it signs anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_util::sync::CancellationToken;

use super::{ReloadingCertificate, TlsError};

const AUTHORITY_DAYS: i64 = 3650;
const SERVING_DAYS: i64 = 90;
/// Serving certificates are renewed when a third of their life is left, the authority in its last year.
const SERVING_RENEW_DAYS: i64 = 30;
const AUTHORITY_RENEW_DAYS: i64 = 365;
const LOOK_EVERY: Duration = Duration::from_mins(10);

/// Key of the authority's certificates in the Secret and the ConfigMap: the current one first, then the one before.
pub const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA_EXPIRES: &str = "ca-expires";
const EXPIRES: &str = "expires";
const NAMES: &str = "dns-names";

/// Where the certificate is kept and which names it is for.
#[derive(Clone)]
pub struct SelfSigned {
    /// Client with the right to read and write the two objects.
    pub client: Client,
    /// Their namespace.
    pub namespace: String,
    /// The Secret, type `Opaque`.
    pub secret: String,
    /// The ConfigMap with the authority's certificates under [`CA`].
    pub config_map: String,
    /// The names clients connect to, the first also the common name.
    pub dns_names: Vec<String>,
}

/// What the Secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    authorities: Vec<String>,
    authority_key: String,
    authority_expires: Date,
    certificate: String,
    key: String,
    expires: Date,
    names: Vec<String>,
}

/// What has to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renew {
    Nothing,
    Certificate,
    Authority,
    /// At first, and when the authority would not outlive a certificate.
    Both,
}

fn plan(stored: Option<&Stored>, names: &[String], today: Date) -> Renew {
    let Some(stored) = stored else { return Renew::Both };
    if due(stored.authority_expires, SERVING_DAYS, today) {
        Renew::Both
    } else if due(stored.expires, SERVING_RENEW_DAYS, today) || stored.names != names {
        Renew::Certificate
    } else if due(stored.authority_expires, AUTHORITY_RENEW_DAYS, today) {
        Renew::Authority
    } else {
        Renew::Nothing
    }
}

fn due(expires: Date, days_before: i64, today: Date) -> bool {
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

fn make(stored: Option<Stored>, renew: Renew, names: &[String], today: Date) -> Result<Stored, TlsError> {
    let (authorities, authority_key, authority_expires) = match (stored, renew) {
        (Some(stored), Renew::Certificate | Renew::Nothing) => {
            let key = KeyPair::from_pem(&stored.authority_key).map_err(TlsError::Generate)?;
            (stored.authorities, key, stored.authority_expires)
        }
        (before, _) => {
            let key = KeyPair::generate().map_err(TlsError::Generate)?;
            let expires = today.saturating_add(AUTHORITY_DAYS.days());
            let params = lasting(authority_params(), today, expires);
            let mut all = vec![params.self_signed(&key).map_err(TlsError::Generate)?.pem()];
            all.extend(
                before
                    .iter()
                    .flat_map(|before| before.authorities.iter().take(1).cloned()),
            );
            if let (Some(before), Renew::Authority) = (before, renew) {
                return Ok(Stored {
                    authorities: all,
                    authority_key: key.serialize_pem(),
                    authority_expires: expires,
                    ..before
                });
            }
            (all, key, expires)
        }
    };
    let expires = today.saturating_add(SERVING_DAYS.days());
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
    // The issuer is described by what never changes, its name and key usages, and by its key.
    let authority_pem = authority_key.serialize_pem();
    let issuer = Issuer::new(authority_params(), authority_key);
    let certificate = lasting(params, today, expires)
        .signed_by(&key, &issuer)
        .map_err(TlsError::Generate)?;
    Ok(Stored {
        authorities,
        authority_key: authority_pem,
        authority_expires,
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        expires,
        names: names.to_vec(),
    })
}

impl Stored {
    fn read(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| Some(String::from_utf8_lossy(&data.get(key)?.0).into_owned());
        Some(Self {
            authorities: split_pem(&text(CA)?),
            authority_key: text(CA_KEY)?,
            authority_expires: text(CA_EXPIRES)?.parse().ok()?,
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            expires: text(EXPIRES)?.parse().ok()?,
            names: text(NAMES)?.split(',').map(str::to_owned).collect(),
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let entry = |key: &str, value: String| (key.to_owned(), ByteString(value.into_bytes()));
        BTreeMap::from([
            entry(CA, self.authorities.concat()),
            entry(CA_KEY, self.authority_key.clone()),
            entry(CA_EXPIRES, self.authority_expires.to_string()),
            entry(CERTIFICATE, self.certificate.clone()),
            entry(KEY, self.key.clone()),
            entry(EXPIRES, self.expires.to_string()),
            entry(NAMES, self.names.join(",")),
        ])
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

impl SelfSigned {
    /// Takes the certificate from the Secret, or makes it. Replicas that do so at the same time end with the same one.
    ///
    /// # Errors
    /// When the Secret or ConfigMap cannot be read or written, or the certificate cannot be made.
    pub async fn load(&self) -> Result<Arc<ReloadingCertificate>, TlsError> {
        let stored = self.ensure(today()).await?;
        let certificate = ReloadingCertificate::new(
            stored.certificate.as_bytes(),
            stored.key.as_bytes(),
            &self.object(),
        )?;
        Ok(Arc::new(certificate))
    }

    /// Renews in time, and serves what another replica renewed, until told to stop.
    pub async fn watch(self, certificate: Arc<ReloadingCertificate>, stop: CancellationToken) {
        let mut serving = None;
        loop {
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(LOOK_EVERY) => {} }
            let renewed = match self.ensure(today()).await {
                Ok(stored) if serving.as_ref() == Some(&stored.certificate) => continue,
                Ok(stored) => certificate
                    .replace(
                        stored.certificate.as_bytes(),
                        stored.key.as_bytes(),
                        &self.object(),
                    )
                    .map(|()| serving = Some(stored.certificate)),
                Err(error) => Err(error),
            };
            if let Err(error) = renewed {
                tracing::warn!(
                    error = crate::log::chain(&error),
                    "cannot look after the serving certificate; will try again"
                );
            }
        }
    }

    fn object(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.secret)
    }

    async fn ensure(&self, today: Date) -> Result<Stored, TlsError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let failed = |source| TlsError::Store {
            object: self.object(),
            source,
        };
        // Two replicas may both find nothing; the slower one takes what the faster one made.
        for _ in 0..5 {
            let found = secrets.get_opt(&self.secret).await.map_err(failed)?;
            let stored = found.as_ref().and_then(Stored::read);
            let renew = plan(stored.as_ref(), &self.dns_names, today);
            if let (Renew::Nothing, Some(stored)) = (renew, stored.clone()) {
                self.publish(&stored).await?;
                return Ok(stored);
            }
            let made = make(stored, renew, &self.dns_names, today)?;
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(self.secret.clone()),
                    resource_version: found
                        .as_ref()
                        .and_then(|secret| secret.metadata.resource_version.clone()),
                    labels: found.as_ref().and_then(|secret| secret.metadata.labels.clone()),
                    ..ObjectMeta::default()
                },
                data: Some(made.data()),
                ..Secret::default()
            };
            let written = match found {
                None => secrets.create(&PostParams::default(), &secret).await,
                Some(_) => {
                    secrets
                        .replace(&self.secret, &PostParams::default(), &secret)
                        .await
                }
            };
            match written {
                Ok(_) => {
                    tracing::info!(secret = self.object(), ?renew, expires = %made.expires, "made a serving certificate");
                    self.publish(&made).await?;
                    return Ok(made);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let exhausted = kube::core::Status::failure("changed by others each time it was written", "Conflict")
            .with_code(409);
        Err(failed(kube::Error::Api(Box::new(exhausted))))
    }

    async fn publish(&self, stored: &Stored) -> Result<(), TlsError> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let failed = |source| TlsError::Store {
            object: format!("ConfigMap {}/{}", self.namespace, self.config_map),
            source,
        };
        let authorities = stored.authorities.concat();
        let found = maps.get_opt(&self.config_map).await.map_err(failed)?;
        let published = found
            .as_ref()
            .and_then(|map| map.data.as_ref())
            .and_then(|data| data.get(CA));
        if published == Some(&authorities) {
            return Ok(());
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.config_map.clone()),
                resource_version: found
                    .as_ref()
                    .and_then(|map| map.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(CA.to_owned(), authorities)])),
            ..ConfigMap::default()
        };
        let written = match found {
            None => maps.create(&PostParams::default(), &map).await,
            Some(_) => maps.replace(&self.config_map, &PostParams::default(), &map).await,
        };
        match written {
            Ok(_) => Ok(()),
            // Another replica published the same.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

    fn names() -> Vec<String> {
        vec!["catalogs.system.svc".to_owned(), "localhost".to_owned()]
    }

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn trusted(stored: &Stored, authority: &str, on: &str) -> Result<(), String> {
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
        let made = make(None, Renew::Both, &names(), day("2026-01-01")).unwrap();
        assert_eq!(trusted(&made, &made.authorities[0], "2026-01-01"), Ok(()));
        assert_eq!(trusted(&made, &made.authorities[0], "2026-03-31"), Ok(()));
        assert!(trusted(&made, &made.authorities[0], "2026-04-02").is_err());
    }

    #[test]
    fn a_renewed_certificate_is_trusted_by_those_who_know_the_same_authority() {
        let first = make(None, Renew::Both, &names(), day("2026-01-01")).unwrap();
        let renewed = make(
            Some(first.clone()),
            Renew::Certificate,
            &names(),
            day("2026-03-05"),
        )
        .unwrap();
        assert_ne!(first.certificate, renewed.certificate);
        assert_eq!(trusted(&renewed, &first.authorities[0], "2026-04-15"), Ok(()));
    }

    #[test]
    fn a_renewed_authority_signs_only_after_everybody_could_read_it() {
        let first = make(None, Renew::Both, &names(), day("2026-01-01")).unwrap();
        let fresh = make(Some(first), Renew::Certificate, &names(), day("2035-01-01")).unwrap();
        let renewed = make(Some(fresh.clone()), Renew::Authority, &names(), day("2035-01-01")).unwrap();
        assert_eq!(renewed.authorities.len(), 2);
        assert_eq!(renewed.authorities[1], fresh.authorities[0]);
        assert_eq!(renewed.certificate, fresh.certificate);
        assert_eq!(trusted(&renewed, &fresh.authorities[0], "2035-02-01"), Ok(()));
        let later = make(Some(renewed), Renew::Certificate, &names(), day("2035-03-05")).unwrap();
        assert_eq!(trusted(&later, &later.authorities[0], "2035-03-05"), Ok(()));
        assert!(trusted(&later, &fresh.authorities[0], "2035-03-05").is_err());
    }

    #[test]
    fn renewal_is_due_before_expiry_and_when_the_names_change() {
        let made = make(None, Renew::Both, &names(), day("2026-01-01")).unwrap();
        let at = |on: &str| plan(Some(&made), &names(), day(on));
        assert_eq!(at("2026-01-01"), Renew::Nothing);
        assert_eq!(at("2026-03-01"), Renew::Nothing);
        assert_eq!(at("2026-03-02"), Renew::Certificate);
        let fresh = make(
            Some(made.clone()),
            Renew::Certificate,
            &names(),
            day("2035-01-01"),
        )
        .unwrap();
        assert_eq!(at("2035-01-01"), Renew::Certificate);
        assert_eq!(plan(Some(&fresh), &names(), day("2035-01-01")), Renew::Authority);
        let renewed = make(Some(fresh), Renew::Authority, &names(), day("2035-01-01")).unwrap();
        assert_eq!(plan(Some(&renewed), &names(), day("2035-01-01")), Renew::Nothing);
        assert_eq!(at("2035-11-01"), Renew::Both);
        assert_eq!(
            plan(Some(&made), &["other".to_owned()], day("2026-01-01")),
            Renew::Certificate
        );
        assert_eq!(plan(None, &names(), day("2026-01-01")), Renew::Both);
    }

    #[test]
    fn what_is_stored_reads_back_the_same() {
        let first = make(None, Renew::Both, &names(), day("2026-01-01")).unwrap();
        let both = make(Some(first), Renew::Both, &names(), day("2035-06-01")).unwrap();
        let secret = Secret {
            data: Some(both.data()),
            ..Secret::default()
        };
        assert_eq!(Stored::read(&secret), Some(both));
        assert_eq!(Stored::read(&Secret::default()), None);
    }
}
