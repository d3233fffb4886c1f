//! Pull secrets: the global one and those of the service account that the controller runs as.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use olm_image::Credentials;
use olm_platform::fresh::Fresh;
use olm_platform::pull_secrets::{self, ReadError};

/// The time for which credentials are cached, unless a registry rejects them.
const KEPT: Duration = Duration::from_secs(30);

/// An error while reading credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    /// The API server did not return an object.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A Secret is not a pull secret.
    #[error(transparent)]
    Content(#[from] olm_image::CredentialsError),
}

/// The source of credentials.
pub(crate) struct PullSecrets {
    secrets: pull_secrets::PullSecrets,
    kept: Fresh<Arc<Credentials>>,
}

impl PullSecrets {
    /// Reads the Secret for all registries and those of a service account, each by namespace and name.
    pub(crate) fn new(
        client: Client,
        global: Option<(String, String)>,
        account: Option<(String, String)>,
    ) -> Self {
        Self {
            secrets: pull_secrets::PullSecrets::new(client, global, account),
            kept: Fresh::new(KEPT),
        }
    }

    /// The credentials. A later Secret overrides an earlier one for the same registry. An absent Secret is empty.
    pub(crate) async fn read(&self) -> Result<Arc<Credentials>, CredentialsError> {
        let read = async || {
            let secrets = self.secrets.read().await?;
            let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
            Ok(Arc::new(Credentials::from_secrets(secrets)?))
        };
        self.kept.get_or(read).await
    }

    /// Drops the cached credentials. The next pull reads them again.
    pub(crate) fn forget(&self) {
        self.kept.forget();
    }
}
