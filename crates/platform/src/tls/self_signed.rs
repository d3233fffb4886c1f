//! Certificates that the manager creates if none are configured: an authority and a serving certificate in a Secret
//! that all replicas share, and the authority's public part in a ConfigMap for clients.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

pub use super::issue::CA;
use super::issue::{Issued, Lifetimes, Renew, issue, plan};
use super::{ReloadingCertificate, TlsError, stored_certificate};

const LIFETIMES: Lifetimes = Lifetimes::SHORT;
const LOOK_EVERY: Duration = Duration::from_mins(10);

/// The pause before the Secret is read again after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// A serving certificate with its metadata.
pub struct Loaded {
    /// The certificate.
    pub certificate: Arc<ReloadingCertificate>,
    serving: String,
    is_copy: bool,
}

/// The Secret of the certificate, and its names.
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
    /// The DNS names of the server. The first is also the common name.
    pub dns_names: Vec<String>,
    /// A file for a copy of the certificate and its key, so that a restart need not wait for the API server.
    pub copy: Option<PathBuf>,
}

impl SelfSigned {
    /// Reads the certificate from the copy or from the Secret, or creates it. Concurrent replicas get the same one.
    ///
    /// # Errors
    /// When the Secret or ConfigMap cannot be read or written, or the certificate cannot be created.
    pub async fn load(&self) -> Result<Loaded, TlsError> {
        let today = today();
        let copy = self
            .copy
            .as_deref()
            .and_then(|path| stored_certificate::read(path, &self.dns_names, LIFETIMES, today));
        if let Some(copy) = copy
            && let Ok(certificate) =
                ReloadingCertificate::new(copy.certificate.as_bytes(), copy.key.as_bytes(), "copy")
        {
            return Ok(Loaded {
                certificate: Arc::new(certificate),
                serving: copy.certificate,
                is_copy: true,
            });
        }
        let stored = self.ensure(today).await?;
        self.keep(&stored);
        let certificate = ReloadingCertificate::new(
            stored.certificate().as_bytes(),
            stored.key().as_bytes(),
            &self.object(),
        )?;
        Ok(Loaded {
            certificate: Arc::new(certificate),
            serving: stored.certificate().to_owned(),
            is_copy: false,
        })
    }

    /// Renews the certificate in time, and serves one that another replica renewed, until the process stops. Compares a
    /// copy with the Secret at once.
    pub async fn watch(self, loaded: Loaded, stop: CancellationToken) {
        let Loaded {
            certificate,
            mut serving,
            is_copy,
        } = loaded;
        let mut wait = if is_copy { Duration::ZERO } else { LOOK_EVERY };
        loop {
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(wait) => {} }
            let looked = self.ensure(today()).await;
            // A copy that the Secret no longer contains may not be trusted by clients, so it is replaced soon.
            wait = if looked.is_err() { RETRY } else { LOOK_EVERY };
            let renewed = match looked {
                Ok(stored) if serving == stored.certificate() => continue,
                Ok(stored) => {
                    self.keep(&stored);
                    certificate
                        .replace(
                            stored.certificate().as_bytes(),
                            stored.key().as_bytes(),
                            &self.object(),
                        )
                        .map(|()| stored.certificate().clone_into(&mut serving))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = renewed {
                tracing::warn!(
                    error = crate::log::chain(&error),
                    "cannot maintain the serving certificate; retrying"
                );
            }
        }
    }

    /// Writes a copy. Without one the next start is slower, but nothing else changes.
    fn keep(&self, stored: &Issued) {
        let Some(path) = &self.copy else { return };
        if let Err(error) = stored_certificate::write(path, stored, &self.dns_names) {
            tracing::warn!(file = %path.display(), %error, "cannot keep a copy of the serving certificate");
        }
    }

    fn object(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.secret)
    }

    async fn ensure(&self, today: Date) -> Result<Issued, TlsError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let failed = |source| TlsError::Store {
            object: self.object(),
            source,
        };
        // Two replicas may both find no Secret; the slower one uses the Secret of the faster one.
        for _ in 0..5 {
            let found = secrets.get_opt(&self.secret).await.map_err(failed)?;
            let stored = found
                .as_ref()
                .and_then(|secret| Issued::read(secret.data.as_ref()?));
            let renew = plan(stored.as_ref(), &self.dns_names, LIFETIMES, today);
            if let (Renew::Nothing, Some(stored)) = (renew, stored.clone()) {
                self.publish(&stored).await?;
                return Ok(stored);
            }
            let made = issue(stored, renew, &self.dns_names, LIFETIMES, today)?;
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
                    tracing::info!(secret = self.object(), ?renew, expires = %made.expires(), "made a serving certificate");
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

    async fn publish(&self, stored: &Issued) -> Result<(), TlsError> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let failed = |source| TlsError::Store {
            object: format!("ConfigMap {}/{}", self.namespace, self.config_map),
            source,
        };
        let authorities = stored.trusted();
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
