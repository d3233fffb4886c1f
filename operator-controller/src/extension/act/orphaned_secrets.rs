//! Secrets without a revision: those of an interrupted run, whose revision was not created or does not own them yet,
//! and those of a deleted extension.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::{CLUSTER_OBJECT_SET, annotation, label};
use olm_api::{ClusterExtension, ClusterObjectSet, ObjectMeta};
use olm_platform::write::{as_seen, unless};

use super::ActError;
use super::write::own;
use crate::extension::context::Context;

/// The age from which a Secret without a revision counts as orphaned.
const AGE: SignedDuration = SignedDuration::from_mins(10);

/// The action for a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Disposal {
    /// Keep it: it is correct, or too young to decide.
    Leave,
    /// Make this revision its owner.
    Own(String),
    /// Delete it: its revision was never created, or is gone.
    Remove,
}

/// Makes revisions the owners of their Secrets and deletes Secrets without a revision. Runs once at the start of
/// leadership.
pub(crate) async fn tidy(context: &Context) -> Result<(), kube::Error> {
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
                        "cannot set the owner of a content Secret"
                    );
                }
            }
            Disposal::Remove => {
                let removed = secrets.delete(&name, &as_seen(&secret.metadata)).await;
                if unless(&[404, 409], removed)?.is_some() {
                    tracing::info!(secret = name, "removed a content Secret of an interrupted run");
                }
            }
        }
    }
    Ok(())
}

/// The Secrets with the labels of an extension. Labels prove nothing; see [`revision_of`].
async fn labelled_secrets(
    context: &Context,
    extension: &ClusterExtension,
) -> Result<(Api<Secret>, Vec<PartialObjectMeta<Secret>>), kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    let selector = label::selector(label::OWNER_NAME, extension.name());
    let Some(owner) = selector.filter(|_| extension.metadata.uid.is_some()) else {
        return Ok((secrets, Vec::new()));
    };
    let labelled = ListParams::default().labels(&format!("{owner},{}", label::REVISION_NAME));
    let found = secrets.list_metadata(&labelled).await?.items;
    Ok((secrets, found))
}

/// Makes the revisions of an extension the owners of their Secrets, after a run that ended between both writes. Returns
/// whether all have an owner; a revision may still be created.
///
/// # Errors
/// The server did not answer.
pub(super) async fn own_all(context: &Context, extension: &ClusterExtension) -> Result<bool, ActError> {
    let (secrets, labelled) = labelled_secrets(context, extension).await?;
    let uid = extension.metadata.uid.as_deref().unwrap_or_default();
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let mut are_owned = true;
    for secret in labelled {
        let revision = revision_of(&secret.metadata, uid).filter(|revision| revision.uid.is_none());
        let (Some(revision), Some(name)) = (revision, &secret.metadata.name) else {
            continue;
        };
        let set = sets.get_opt(&revision.name).await?;
        match set.filter(|set| controlling_extension(&set.metadata) == Some(uid)) {
            Some(set) => own(&secrets, &set, name).await?,
            None => are_owned = false,
        }
    }
    Ok(are_owned)
}

/// Deletes the Secrets of an extension whose revisions are gone. Kubernetes collects most of them later, but nothing
/// may remain when the extension is gone, and a Secret of an interrupted run has no owner.
///
/// Names prove nothing: an earlier extension of this name may have left its revisions, and so may this one if
/// Kubernetes has orphaned them before the controller looks.
///
/// # Errors
/// The server did not answer, or a Secret changed meanwhile.
pub(super) async fn remove(context: &Context, extension: &ClusterExtension) -> Result<(), kube::Error> {
    let (secrets, labelled) = labelled_secrets(context, extension).await?;
    let uid = extension.metadata.uid.as_deref().unwrap_or_default();
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let mut live: BTreeMap<String, Option<String>> = BTreeMap::new();
    for secret in labelled {
        let Some(revision) = revision_of(&secret.metadata, uid) else {
            continue;
        };
        if !live.contains_key(&revision.name) {
            let found = sets.get_metadata_opt(&revision.name).await?;
            live.insert(revision.name.clone(), found.and_then(|set| set.metadata.uid));
        }
        if revision.is(live.get(&revision.name).and_then(Option::as_deref)) {
            continue;
        }
        let name = secret.metadata.name.clone().unwrap_or_default();
        unless(&[404], secrets.delete(&name, &as_seen(&secret.metadata)).await)?;
    }
    Ok(())
}

/// The revision that a Secret belongs to.
struct SecretOwner {
    name: String,
    /// The UID, once it owns the Secret.
    uid: Option<String>,
}

impl SecretOwner {
    /// Whether the live object with its name has its UID.
    fn is(&self, live: Option<&str>) -> bool {
        live.is_some_and(|live| self.uid.as_deref().is_none_or(|uid| uid == live))
    }
}

/// The revision of a Secret that was created for the extension with this UID. Revisions of the reference implementation
/// own their Secrets without naming the extension; such a Secret is orphaned once its owner is gone.
fn revision_of(secret: &ObjectMeta, extension: &str) -> Option<SecretOwner> {
    let annotations = secret.annotations.as_ref();
    let maker = annotations.and_then(|annotations| annotations.get(annotation::OWNER_UID));
    if maker.is_some_and(|maker| maker != extension) {
        return None;
    }
    let mut owners = secret.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    match owner {
        Some(OwnerReference { kind, name, uid, .. }) if kind == CLUSTER_OBJECT_SET => Some(SecretOwner {
            name: name.clone(),
            uid: Some(uid.clone()),
        }),
        None if maker.is_some() => Some(SecretOwner {
            name: secret.labels.as_ref()?.get(label::REVISION_NAME)?.clone(),
            uid: None,
        }),
        _ => None,
    }
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

    #[test]
    fn a_secret_is_the_extensions_by_its_uid_and_stays_with_a_revision_that_lives() {
        let mut secret = ObjectMeta {
            labels: Some([(label::REVISION_NAME.to_owned(), "ext-1".to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert!(
            revision_of(&secret, "us").is_none(),
            "there is no record that we made it"
        );
        secret.annotations = Some([(annotation::OWNER_UID.to_owned(), "us".to_owned())].into());
        assert!(revision_of(&secret, "a namesake").is_none());
        let left = revision_of(&secret, "us").unwrap();
        assert!(left.is(Some("any")) && !left.is(None));
        secret.owner_references = Some(vec![OwnerReference {
            kind: CLUSTER_OBJECT_SET.to_owned(),
            name: "ext-1".to_owned(),
            uid: "set".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        let goes_with_its_owner = |secret: &ObjectMeta| {
            let owned = revision_of(secret, "us").unwrap();
            owned.is(Some("set")) && !owned.is(Some("a set of the same name")) && !owned.is(None)
        };
        assert!(goes_with_its_owner(&secret));
        assert!(revision_of(&secret, "a namesake").is_none());
        // The form of the reference implementation.
        secret.annotations = None;
        assert!(goes_with_its_owner(&secret));
        secret.owner_references.as_mut().unwrap()[0].kind = "Other".to_owned();
        assert!(revision_of(&secret, "us").is_none());
    }
}
