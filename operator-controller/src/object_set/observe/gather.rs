//! Reads the Secrets with the objects of a ClusterObjectSet.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use olm_api::{ClusterObjectSet, names};
use olm_cluster::identity::is_name;
use olm_rollout::content::{self, ContentError, MAX_TOTAL, SecretContent, SecretName, secrets_of};
use serde_json::Value;

/// The reason why Secrets could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    /// The server did not answer.
    #[error("getting Secret {name}: {source}")]
    Unread {
        /// The Secret.
        name: SecretName,
        /// The error of the request.
        source: kube::Error,
    },
    /// Only an account may read it, and there is none.
    #[error(
        "getting Secret {0}: it does not belong to this revision, and there is no account to read it with"
    )]
    NotOurs(SecretName),
    /// All Secrets together are too large.
    #[error("the content Secrets hold more than {MAX_TOTAL} bytes (up to Secret {0})")]
    TooMuch(SecretName),
    /// Their content is invalid.
    #[error(transparent)]
    Content(#[from] ContentError),
}

/// The most Secrets of a set that are read at the same time.
const AT_ONCE: usize = 4;

/// The Secrets of a content with their UIDs. The content of an immutable Secret changes only with its UID.
pub(crate) type Sources = BTreeMap<SecretName, String>;

/// Reads the existing Secrets, and the data to which the set refers. The controller itself reads only Secrets that were
/// created for this set in the namespace of OLM. All others are read under the account, so that a user cannot see more
/// than the account.
///
/// # Errors
/// A Secret could not be read, or they are too large.
pub(crate) async fn secrets(
    set: &ClusterObjectSet,
    system_namespace: &str,
    own: &Client,
    account: Option<&Client>,
) -> Result<(BTreeMap<SecretName, SecretContent>, Sources), GatherError> {
    let (mut found, mut sources) = (BTreeMap::new(), Sources::new());
    let mut total = 0;
    for (name, keys) in secrets_of(&set.spec, system_namespace) {
        let Some(secret) = one(set, system_namespace, &name, own, account).await? else {
            continue;
        };
        let data: BTreeMap<String, Vec<u8>> = secret
            .data
            .into_iter()
            .flatten()
            .filter(|(key, _)| keys.contains(key))
            .map(|(key, value)| (key, value.0))
            .collect();
        total += data.values().map(|value| value.len() as u64).sum::<u64>();
        if total > MAX_TOTAL {
            return Err(GatherError::TooMuch(name));
        }
        let immutable = secret.immutable == Some(true);
        sources.insert(name.clone(), secret.metadata.uid.unwrap_or_default());
        found.insert(name, SecretContent { immutable, data });
    }
    Ok((found, sources))
}

/// Whether the Secrets are still those from which content was read. Reads only metadata: with the controller's rights
/// in the namespace of OLM, under the account elsewhere.
///
/// # Errors
/// One could not be read.
pub(crate) async fn are_same(
    sources: &Sources,
    system_namespace: &str,
    own: &Client,
    account: &Client,
) -> Result<bool, GatherError> {
    // Collected first: a closure inside the stream would make the future not `Send`.
    let asked: Vec<_> = sources
        .iter()
        .map(|(name, uid)| {
            let ours = name.namespace == system_namespace;
            is_same(if ours { own } else { account }, name, uid)
        })
        .collect();
    let answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    answers.try_fold(true, async |all, one| Ok(all && one)).await
}

async fn is_same(client: &Client, name: &SecretName, uid: &str) -> Result<bool, GatherError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    let found = api.get_metadata_opt(&name.name).await;
    let found = found.map_err(|source| GatherError::Unread {
        name: name.clone(),
        source,
    })?;
    Ok(found.is_some_and(|secret| secret.metadata.uid.as_deref() == Some(uid)))
}

/// The objects of a set that OLM created, read with the controller's rights.
///
/// # Errors
/// A Secret could not be read, or its content is invalid.
pub(crate) async fn objects(
    set: &ClusterObjectSet,
    system_namespace: &str,
    own: &Client,
) -> Result<Vec<Value>, GatherError> {
    let (secrets, _) = secrets(set, system_namespace, own, None).await?;
    let content = content::resolve(&set.spec, &secrets, system_namespace)?;
    let objects = content.phases.into_iter().flat_map(|phase| phase.objects);
    Ok(objects.map(|object| object.object).collect())
}

async fn one(
    set: &ClusterObjectSet,
    system_namespace: &str,
    name: &SecretName,
    own: &Client,
    account: Option<&Client>,
) -> Result<Option<Secret>, GatherError> {
    let ours = name.namespace == system_namespace;
    let mut exists = true;
    if ours {
        let secret = read(own, name).await?;
        exists = secret.is_some();
        if let Some(secret) = secret.filter(|secret| made_for(set, secret)) {
            return Ok(Some(secret));
        }
    }
    match account {
        // Without the right to read, a missing Secret and another user's Secret look the same.
        Some(account) => match read(account, name).await {
            Err(GatherError::Unread {
                source: kube::Error::Api(status),
                ..
            }) if status.code == 403 && ours => Ok(None),
            other => other,
        },
        None if exists => Err(GatherError::NotOurs(name.clone())),
        None => Ok(None),
    }
}

async fn read(client: &Client, name: &SecretName) -> Result<Option<Secret>, GatherError> {
    if !is_name(&name.namespace) || !is_name(&name.name) {
        // No Secret has such a name, and the text could lead to another path.
        return Ok(None);
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    api.get_opt(&name.name)
        .await
        .map_err(|source| GatherError::Unread {
            name: name.clone(),
            source,
        })
}

/// Whether a Secret was created for this set: the set controls it, or it has no controller yet and names the set. The
/// labels of a Secret with an owner prove nothing.
fn made_for(set: &ClusterObjectSet, secret: &Secret) -> bool {
    let controller = secret
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true));
    let revision = secret
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::label::REVISION_NAME));
    secret.type_.as_deref() == Some(names::OBJECT_DATA_SECRET_TYPE)
        && match controller {
            Some(owner) => Some(&owner.uid) == set.metadata.uid.as_ref(),
            None => revision.map(String::as_str) == Some(set.name()),
        }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn only_secrets_made_for_the_very_set_are_its_own() {
        let mut set = ClusterObjectSet::default();
        set.metadata.name = Some("e-1".to_owned());
        set.metadata.uid = Some("us".to_owned());
        set.metadata.labels = Some([(names::label::OWNER_NAME.to_owned(), "e".to_owned())].into());
        let data = names::OBJECT_DATA_SECRET_TYPE;
        for (kind, controller, revision, expected) in [
            (data, Some("us"), "e-1", true),
            (data, Some("us"), "e-0", true),
            (data, Some("other"), "e-1", false),
            (data, None, "e-1", true),
            (data, None, "e-0", false),
            ("Opaque", Some("us"), "e-1", false),
        ] {
            let mut secret = Secret {
                type_: Some(kind.to_owned()),
                ..Secret::default()
            };
            secret.metadata.labels = Some(
                [
                    (names::label::OWNER_NAME.to_owned(), "e".to_owned()),
                    (names::label::REVISION_NAME.to_owned(), revision.to_owned()),
                ]
                .into(),
            );
            secret.metadata.owner_references = controller.map(|uid| {
                vec![OwnerReference {
                    uid: uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            });
            assert_eq!(
                made_for(&set, &secret),
                expected,
                "{kind} {controller:?} {revision}"
            );
        }
    }
}
