//! A certificate that can be replaced while connections are served.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::TlsError;
use crate::metrics::Certificates;

/// The interval in which files are read. Secret volumes swap a link, so contents are compared instead of waiting for
/// file events.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Gives each new connection the newest certificate.
#[derive(Debug)]
pub struct ReloadingCertificate {
    current: ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl ReloadingCertificate {
    /// A certificate chain and its key, both PEM. `origin` names them in errors.
    ///
    /// # Errors
    /// When they are malformed or do not match.
    pub fn new(certificate: &[u8], key: &[u8], origin: &str) -> Result<Self, TlsError> {
        Ok(Self {
            current: ArcSwap::from_pointee(certified(certificate, key, origin)?),
        })
    }

    /// Replaces the certificate; on an error the old one stays.
    ///
    /// # Errors
    /// When the new one is malformed or does not match its key.
    pub fn replace(&self, certificate: &[u8], key: &[u8], origin: &str) -> Result<(), TlsError> {
        self.current.store(Arc::new(certified(certificate, key, origin)?));
        Ok(())
    }

    /// The expiry of the certificate in seconds since 1970; `None` if it cannot be read.
    pub fn expires(&self) -> Option<i64> {
        let current = self.current.load();
        let (_, parsed) = X509Certificate::from_der(current.cert.first()?).ok()?;
        Some(parsed.validity().not_after.timestamp())
    }
}

/// The expiry of the first certificate of a PEM text in seconds since 1970; `None` if there is no readable one.
pub fn not_after(pem: &[u8]) -> Option<i64> {
    let certificate = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The DNS names that the first certificate of a PEM text is for; none if it cannot be read.
#[must_use]
pub fn dns_names(pem: &[u8]) -> Vec<String> {
    let Some(Ok(certificate)) = CertificateDer::pem_slice_iter(pem).next() else {
        return Vec::new();
    };
    let parsed = X509Certificate::from_der(&certificate);
    let Ok(Some(names)) = parsed
        .as_ref()
        .map_or(Ok(None), |(_, parsed)| parsed.subject_alternative_name())
    else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(host) => Some((*host).to_owned()),
            _ => None,
        })
        .collect()
}

fn certified(certificate: &[u8], key: &[u8], origin: &str) -> Result<CertifiedKey, TlsError> {
    let pem = |what, reason: String| TlsError::Pem {
        origin: origin.to_owned(),
        what,
        reason,
    };
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem("certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(pem("certificate", "no certificate found".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| pem("private key", error.to_string()))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(TlsError::Unusable)
}

/// Certificate and key in two files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl Files {
    /// Loads both files; [`Files::watch`] updates the result.
    ///
    /// # Errors
    /// When a file cannot be read or has no usable certificate or key.
    pub fn load(&self) -> Result<Arc<ReloadingCertificate>, TlsError> {
        let (certificate, key) = self.read()?;
        Ok(Arc::new(ReloadingCertificate::new(
            &certificate,
            &key,
            &self.certificate.display().to_string(),
        )?))
    }

    /// Replaces the certificate when a file's content changes, until the process stops. If certificate and key do not
    /// match (for example because only one was replaced yet), the failure is logged and retried, and the old pair is
    /// served.
    pub(crate) async fn watch(
        self,
        certificate: Arc<ReloadingCertificate>,
        count: Certificates,
        stop: CancellationToken,
    ) {
        let mut loaded = self.read().ok();
        loop {
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(LOOK_EVERY) => {} }
            let now = self.read();
            count.read(&now);
            let now = match now {
                Ok(now) => now,
                Err(error) => {
                    tracing::warn!(
                        error = crate::log::chain(&error),
                        "cannot read the certificate; the old one is served"
                    );
                    continue;
                }
            };
            if loaded.as_ref() == Some(&now) {
                continue;
            }
            let replaced = certificate.replace(&now.0, &now.1, &self.certificate.display().to_string());
            if replaced.is_err() {
                count.unusable();
            }
            match replaced {
                Ok(()) => {
                    tracing::info!(file = %self.certificate.display(), "serving a new certificate");
                    loaded = Some(now);
                }
                Err(error) => {
                    tracing::warn!(
                        error = crate::log::chain(&error),
                        "the new certificate is unusable; the old one is served"
                    );
                }
            }
        }
    }

    fn read(&self) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| TlsError::Read {
                path: path.display().to_string(),
                source,
            })
        };
        Ok((read(&self.certificate)?, read(&self.key)?))
    }
}
