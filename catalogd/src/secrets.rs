//! Pull secrets: the global one and those of the service account that catalogd runs as.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};
use olm_image::{Credentials, CredentialsError};

/// Why credentials could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// The API server did not answer with it.
    #[error("cannot read {kind} {namespace}/{name}")]
    Read {
        kind: &'static str,
        namespace: String,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// It is no pull secret.
    #[error("cannot use pull secret {namespace}/{name}")]
    Content {
        namespace: String,
        name: String,
        #[source]
        source: CredentialsError,
    },
}

/// Where credentials come from.
pub(crate) struct PullSecrets {
    pub(crate) client: Client,
    /// Namespace and name of the secret for all registries.
    pub(crate) global: Option<(String, String)>,
    /// Namespace and name of the service account.
    pub(crate) account: Option<(String, String)>,
}

impl PullSecrets {
    /// The credentials as they are now: the global secret first, then those of the service account in their order, a
    /// later one replacing an earlier one for the same registry. What does not exist counts as empty.
    pub(crate) async fn read(&self) -> Result<Credentials, SecretError> {
        let mut credentials = Credentials::default();
        if let Some((namespace, name)) = &self.global {
            credentials.merge(self.secret(namespace, name).await?);
        }
        let Some((namespace, name)) = &self.account else {
            return Ok(credentials);
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let account = accounts.get_opt(name).await.map_err(|source| SecretError::Read {
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

    async fn secret(&self, namespace: &str, name: &str) -> Result<Credentials, SecretError> {
        let secret = Api::<Secret>::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await;
        let secret = secret.map_err(|source| SecretError::Read {
            kind: "Secret",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        let Some(data) = secret.and_then(|secret| secret.data) else {
            tracing::debug!(namespace, name, "there is no such pull secret");
            return Ok(Credentials::default());
        };
        let entries = data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()));
        Credentials::parse_secret(entries).map_err(|source| SecretError::Content {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
        })
    }
}
