//! Secrets for pulling images, read from the cluster: one by name, and those that a service account lists.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};

/// An object could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {kind} {namespace}/{name}")]
pub struct ReadError {
    /// The kind.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The cause.
    pub source: Box<kube::Error>,
}

/// The data of one Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretData {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// The data of the Secret.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for SecretData {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The data never reaches a log.
        write!(formatter, "SecretData({})", self.name)
    }
}

/// The references to pull Secrets.
#[derive(Clone)]
pub struct PullSecrets {
    client: Client,
    global: Option<(String, String)>,
    account: Option<(String, String)>,
    named: Vec<(String, String)>,
}

impl PullSecrets {
    /// The Secret for all registries and those of a service account, both given by namespace and name.
    pub const fn new(
        client: Client,
        global: Option<(String, String)>,
        account: Option<(String, String)>,
    ) -> Self {
        Self {
            client,
            global,
            account,
            named: Vec::new(),
        }
    }

    /// Also reads these Secrets, given by namespace and name.
    #[must_use]
    pub fn and(mut self, named: impl IntoIterator<Item = (String, String)>) -> Self {
        self.named.extend(named);
        self
    }

    /// Reads the present Secrets: first the one for all registries, then those of the account in their order, then the
    /// named ones. Missing Secrets are skipped.
    ///
    /// # Errors
    /// When the API server refuses to return one of them, or does not answer.
    pub async fn read(&self) -> Result<Vec<SecretData>, ReadError> {
        let mut found = Vec::new();
        if let Some((namespace, name)) = &self.global {
            found.extend(self.secret(namespace, name).await?);
        }
        if let Some((namespace, name)) = &self.account {
            found.extend(self.of_account(namespace, name).await?);
        }
        for (namespace, name) in &self.named {
            found.extend(self.secret(namespace, name).await?);
        }
        Ok(found)
    }

    async fn of_account(&self, namespace: &str, name: &str) -> Result<Vec<SecretData>, ReadError> {
        let mut found = Vec::new();
        let account = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await
            .map_err(|source| wrong("ServiceAccount", namespace, name, source))?;
        let listed = account.and_then(|account| account.image_pull_secrets);
        for secret in listed.unwrap_or_default() {
            found.extend(self.secret(namespace, &secret.name).await?);
        }
        Ok(found)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<SecretData>, ReadError> {
        let secret = Api::<Secret>::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await
            .map_err(|source| wrong("Secret", namespace, name, source))?;
        if secret.is_none() {
            tracing::debug!(namespace, name, "there is no such pull secret");
        }
        Ok(secret.and_then(|secret| secret.data).map(|data| SecretData {
            name: format!("{namespace}/{name}"),
            data: data.into_iter().map(|(key, value)| (key, value.0)).collect(),
        }))
    }
}

fn wrong(kind: &'static str, namespace: &str, name: &str, source: kube::Error) -> ReadError {
    ReadError {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}
