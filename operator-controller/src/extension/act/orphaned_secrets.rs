//! Orphaned Secrets, which an interrupted run leaves behind: Secrets whose revision was not made or does not own them yet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use olm_api::ObjectMeta;
use olm_api::names::label;

use super::write::own;
use crate::extension::context::Context;

/// How old a Secret without a revision must be to count as left behind.
const AGE: SignedDuration = SignedDuration::from_mins(10);

/// What becomes of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Disposal {
    /// It is as it should be, or too young to tell.
    Leave,
    /// It belongs to this revision, which does not own it yet.
    Own(String),
    /// Its revision was never made, or is gone.
    Remove,
}

/// Gives Secrets to their revisions and removes those that have none. Run once when leadership begins.
pub async fn tidy(context: &Context) -> Result<(), kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    let listed = secrets
        .list_metadata(&ListParams::default().labels(label::REVISION_NAME))
        .await?;
    for secret in listed.items {
        let name = secret.metadata.name.clone().unwrap_or_default();
        match disposal(
            &secret.metadata,
            |revision| context.sets.contains(revision),
            Timestamp::now(),
        ) {
            Disposal::Leave => {}
            Disposal::Own(revision) => {
                if let Some(set) = context.sets.get(&revision)
                    && let Err(error) = own(&secrets, &set, &name).await
                {
                    tracing::warn!(
                        secret = name,
                        error = &error as &dyn std::error::Error,
                        "cannot give a Secret to its revision"
                    );
                }
            }
            Disposal::Remove => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: secret.metadata.uid.clone(),
                        resource_version: secret.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                match secrets.delete(&name, &params).await {
                    Ok(_) => tracing::info!(
                        secret = name,
                        "removed a Secret that an interrupted run left behind"
                    ),
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

fn disposal(secret: &ObjectMeta, exists: impl Fn(&str) -> bool, now: Timestamp) -> Disposal {
    let owned = secret
        .owner_references
        .as_ref()
        .is_some_and(|owners| !owners.is_empty());
    let revision = secret
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::REVISION_NAME));
    let Some(revision) = revision.filter(|_| !owned && secret.deletion_timestamp.is_none()) else {
        return Disposal::Leave;
    };
    if exists(revision) {
        return Disposal::Own(revision.clone());
    }
    let old = secret
        .creation_timestamp
        .as_ref()
        .is_some_and(|created| now.duration_since(created.0) > AGE);
    if old { Disposal::Remove } else { Disposal::Leave }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use olm_api::Time;

    use super::*;

    #[test]
    fn a_secret_goes_to_its_revision_or_when_there_is_none_away() {
        let now = Timestamp::from_second(10_000).unwrap();
        let mut secret = ObjectMeta {
            labels: Some([(label::REVISION_NAME.to_owned(), "ext-1".to_owned())].into()),
            creation_timestamp: Some(Time(Timestamp::from_second(9_990).unwrap())),
            ..ObjectMeta::default()
        };
        assert_eq!(
            disposal(&secret, |_| true, now),
            Disposal::Own("ext-1".to_owned())
        );
        assert_eq!(
            disposal(&secret, |_| false, now),
            Disposal::Leave,
            "its revision may be under way"
        );
        secret.creation_timestamp = Some(Time(Timestamp::from_second(0).unwrap()));
        assert_eq!(disposal(&secret, |_| false, now), Disposal::Remove);
        secret.owner_references = Some(vec![OwnerReference::default()]);
        assert_eq!(disposal(&secret, |_| false, now), Disposal::Leave);
        assert_eq!(disposal(&ObjectMeta::default(), |_| false, now), Disposal::Leave);
    }
}
