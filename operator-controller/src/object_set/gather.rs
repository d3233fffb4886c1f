//! Reads the Secrets that a ClusterObjectSet's objects lie in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use olm_api::{ClusterObjectSet, names};

use super::content::{SecretContent, SecretName, secrets_of};
use crate::cluster::identity::is_name;

/// A Secret could not be read.
#[derive(Debug, thiserror::Error)]
#[error("getting Secret {name}")]
pub struct GatherError {
    name: SecretName,
    #[source]
    source: kube::Error,
}

impl GatherError {
    /// What the server said.
    pub fn reason(&self) -> &kube::Error {
        &self.source
    }
}

/// Reads them, those that exist. The controller reads only Secrets that were made for this set or its extension in the
/// managers' own namespace; all others are read as the account, so that nobody learns what he may not read himself.
///
/// # Errors
/// One could not be read.
pub async fn secrets(
    set: &ClusterObjectSet,
    system_namespace: &str,
    own: &Client,
    account: &Client,
) -> Result<BTreeMap<SecretName, SecretContent>, GatherError> {
    let mut found = BTreeMap::new();
    for name in secrets_of(&set.spec, system_namespace) {
        let mut secret = None;
        if name.namespace == system_namespace {
            secret = read(own, &name).await?.filter(|secret| made_for(set, secret));
        }
        if secret.is_none() {
            secret = match read(account, &name).await {
                // Without the right to look, a Secret that is not there and one that is not his are the same.
                Err(GatherError {
                    source: kube::Error::Api(status),
                    ..
                }) if status.code == 403 && name.namespace == system_namespace => None,
                other => other?,
            };
        }
        if let Some(secret) = secret {
            let data = secret
                .data
                .into_iter()
                .flatten()
                .map(|(key, value)| (key, value.0))
                .collect();
            found.insert(
                name,
                SecretContent {
                    immutable: secret.immutable == Some(true),
                    data,
                },
            );
        }
    }
    Ok(found)
}

async fn read(client: &Client, name: &SecretName) -> Result<Option<Secret>, GatherError> {
    if !is_name(&name.namespace) || !is_name(&name.name) {
        // No Secret has such a name, and it might lead elsewhere.
        return Ok(None);
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    api.get_opt(&name.name).await.map_err(|source| GatherError {
        name: name.clone(),
        source,
    })
}

fn made_for(set: &ClusterObjectSet, secret: &Secret) -> bool {
    let label = |key: &str| {
        secret
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let owner = set
        .label(names::label::OWNER_NAME)
        .filter(|owner| !owner.is_empty());
    secret.type_.as_deref() == Some(names::OBJECT_DATA_SECRET_TYPE)
        && (label(names::label::REVISION_NAME) == Some(set.name())
            || (owner.is_some() && label(names::label::OWNER_NAME) == owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: &str, labels: &[(&str, &str)]) -> Secret {
        let mut secret = Secret {
            type_: Some(kind.to_owned()),
            ..Secret::default()
        };
        secret.metadata.labels = Some(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        );
        secret
    }

    #[test]
    fn only_secrets_made_for_the_set_or_its_extension_are_its_own() {
        let mut set = ClusterObjectSet::default();
        set.metadata.name = Some("e-1".to_owned());
        set.metadata.labels = Some([(names::label::OWNER_NAME.to_owned(), "e".to_owned())].into());
        let (data, revision, owner) = (
            names::OBJECT_DATA_SECRET_TYPE,
            names::label::REVISION_NAME,
            names::label::OWNER_NAME,
        );
        for (kind, labels, expected) in [
            (data, vec![(revision, "e-1")], true),
            (data, vec![(owner, "e"), (revision, "e-0")], true),
            (data, vec![(owner, "f")], false),
            (data, vec![], false),
            ("Opaque", vec![(revision, "e-1")], false),
        ] {
            assert_eq!(made_for(&set, &secret(kind, &labels)), expected);
        }
        set.metadata.labels = None;
        assert!(!made_for(&set, &secret(data, &[(owner, "")])));
    }
}
