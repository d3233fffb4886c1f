//! Pull secrets: the global one and those of the service account that the controller runs as.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use olm_image::Credentials;
use olm_platform::pull_secrets::{self, ReadError};

/// How long credentials are kept, unless a registry refuses them.
const KEPT: Duration = Duration::from_secs(30);

/// Why credentials could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The API server did not give an object.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A Secret is no pull secret.
    #[error(transparent)]
    Content(#[from] olm_image::CredentialsError),
}

/// Where credentials come from.
pub struct PullSecrets {
    secrets: pull_secrets::PullSecrets,
    kept: tokio::sync::Mutex<Option<(Instant, Arc<Credentials>)>>,
}

impl PullSecrets {
    /// From the Secret for all registries and from a service account's, each given by namespace and name.
    pub fn new(client: Client, global: Option<(String, String)>, account: Option<(String, String)>) -> Self {
        Self {
            secrets: pull_secrets::PullSecrets::new(client, global, account),
            kept: tokio::sync::Mutex::default(),
        }
    }

    /// The credentials, a later Secret's replacing an earlier one's for the same registry. What does not exist counts as
    /// empty.
    pub async fn read(&self) -> Result<Arc<Credentials>, CredentialsError> {
        let mut kept = self.kept.lock().await;
        if let Some((at, credentials)) = kept.as_ref()
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(credentials));
        }
        let secrets = self.secrets.read().await?;
        let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
        let credentials = Arc::new(Credentials::from_secrets(secrets)?);
        *kept = Some((Instant::now(), Arc::clone(&credentials)));
        Ok(credentials)
    }

    /// Drops the kept credentials; the next pull reads them again.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
    }
}
