//! Pull secrets: the global one and those of the service account that the controller runs as.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};
use olm_image::Credentials;

/// For how long what was read is used.
const KEPT: Duration = Duration::from_secs(30);

/// Why credentials could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The API server did not give an object.
    #[error("cannot read {kind} {namespace}/{name}")]
    Read {
        /// Its kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// A Secret is no pull secret.
    #[error("cannot use pull secret {namespace}/{name}")]
    Content {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        #[source]
        source: olm_image::CredentialsError,
    },
}

/// Where credentials come from.
pub struct PullSecrets {
    client: Client,
    global: Option<(String, String)>,
    account: Option<(String, String)>,
    kept: tokio::sync::Mutex<Option<(Instant, Arc<Credentials>)>>,
}

impl PullSecrets {
    /// From the Secret for all registries and from a service account's, each given by namespace and name.
    pub fn new(client: Client, global: Option<(String, String)>, account: Option<(String, String)>) -> Self {
        Self {
            client,
            global,
            account,
            kept: tokio::sync::Mutex::default(),
        }
    }

    /// The credentials: those of the global Secret, then those of the account's Secrets in their order, a later one
    /// replacing an earlier one for the same registry. What does not exist counts as empty.
    pub async fn read(&self) -> Result<Arc<Credentials>, CredentialsError> {
        let mut kept = self.kept.lock().await;
        if let Some((at, credentials)) = kept.as_ref()
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(credentials));
        }
        let credentials = Arc::new(self.read_now().await?);
        *kept = Some((Instant::now(), Arc::clone(&credentials)));
        Ok(credentials)
    }

    async fn read_now(&self) -> Result<Credentials, CredentialsError> {
        let mut credentials = Credentials::default();
        if let Some((namespace, name)) = &self.global {
            credentials.merge(self.secret(namespace, name).await?);
        }
        let Some((namespace, name)) = &self.account else {
            return Ok(credentials);
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account = accounts
            .get_opt(name)
            .await
            .map_err(|source| CredentialsError::Read {
                kind: "ServiceAccount",
                namespace: namespace.clone(),
                name: name.clone(),
                source: Box::new(source),
            })?;
        for secret in account
            .and_then(|account| account.image_pull_secrets)
            .unwrap_or_default()
        {
            credentials.merge(self.secret(namespace, &secret.name).await?);
        }
        Ok(credentials)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Credentials, CredentialsError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets
            .get_opt(name)
            .await
            .map_err(|source| CredentialsError::Read {
                kind: "Secret",
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                source: Box::new(source),
            })?;
        let Some(data) = secret.and_then(|secret| secret.data) else {
            return Ok(Credentials::default());
        };
        let entries = data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()));
        Credentials::parse_secret(entries).map_err(|source| CredentialsError::Content {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
        })
    }
}
