//! Writes a planned revision, with the controller's own rights: revisions and their Secrets are our own records.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::{Client, Resource as _};
use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{
    API_VERSION, CLUSTER_OBJECT_SET, OBJECT_DATA_SECRET_TYPE, annotation, field_manager, label,
};
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde_json::json;

use crate::cluster::identity::AccountName;
use crate::extension::failure::{Severity, StageError};
use crate::extension::observe::revisions::Revisions;
use crate::extension::plan::content::Parcel;
use crate::extension::plan::{self, Plan, is_made};
use crate::object_set::status::is_archived;

/// How often a revision that somebody else changes at the same time is tried.
const TRIES: usize = 5;
/// How many Secrets are written at once.
const AT_ONCE: usize = 4;

/// Why a revision could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An archived revision could not be removed.
    #[error("garbage collecting old revisions: {name}")]
    Remove {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// A Secret could not be made.
    #[error("creating ref Secret {name:?}")]
    Secret {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// The revision could not be made.
    #[error("creating new Revision {name}")]
    Create {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// The revision could not be changed.
    #[error("patching {name} Revision")]
    Patch {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// Something else has the revision's name, or the revision changed meanwhile; the next plan sees it.
    #[error("creating new Revision {0}: a ClusterObjectSet of that name exists already")]
    Taken(String),
    /// Lost Secrets could not be looked for.
    #[error("looking for the ref Secrets of {name}")]
    List {
        /// The revision's name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// A Secret could not be given to its revision.
    #[error("patching ownerReferences on ref Secrets: {name}")]
    Own {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
}

impl StageError for WriteError {
    fn severity(&self) -> Severity {
        Severity::Transient
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is as planned.
    Yes,
    /// The revision has changed since it was seen; the change is on its way here.
    Stale,
}

/// Does what the plan says. Secrets come first, so that a revision never refers to one that is not there.
pub async fn write(client: &Client, system_namespace: &str, plan: &Plan) -> Result<Written, WriteError> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    match plan {
        Plan::Keep { .. } => Ok(Written::Yes),
        Plan::Patch { name, patch, .. } => {
            match sets.patch_metadata(name, &params(), &Patch::Merge(patch)).await {
                Ok(_) => Ok(Written::Yes),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Written::Stale),
                Err(source) => Err(WriteError::Patch {
                    name: name.clone(),
                    source,
                }),
            }
        }
        Plan::Create { set, parcels, remove } => {
            for old in remove {
                let failed = |source| WriteError::Remove {
                    name: old.name().to_owned(),
                    source,
                };
                match delete(&sets, old, PropagationPolicy::Background).await {
                    Ok(()) => {}
                    // It will be removed when the next revision is made.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            let secrets: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
            let stored: Vec<_> = parcels
                .iter()
                .map(|parcel| store(&secrets, set, parcel))
                .collect();
            stream::iter(stored)
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
            let made = create(&sets, set).await?;
            let owned: Vec<_> = parcels
                .iter()
                .map(|parcel| own(&secrets, &made, &parcel.name))
                .collect();
            stream::iter(owned)
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
            Ok(Written::Yes)
        }
    }
}

/// Makes the Secrets of a revision again that are not there any more. Gives the names of those.
pub async fn restore(
    client: &Client,
    system_namespace: &str,
    set: &ClusterObjectSet,
    parcels: &[Parcel],
) -> Result<Vec<String>, WriteError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
    let labelled = ListParams::default().labels(&format!("{}={}", label::REVISION_NAME, set.name()));
    let present = secrets
        .list_metadata(&labelled)
        .await
        .map_err(|source| WriteError::List {
            name: set.name().to_owned(),
            source,
        })?;
    let present: Vec<String> = present
        .items
        .into_iter()
        .filter_map(|secret| secret.metadata.name)
        .collect();
    let mut restored = Vec::new();
    for parcel in parcels.iter().filter(|parcel| !present.contains(&parcel.name)) {
        store(&secrets, set, parcel).await?;
        own(&secrets, set, &parcel.name).await?;
        restored.push(parcel.name.clone());
    }
    Ok(restored)
}

/// Makes a revision. One that is there already counts when it is the same.
async fn create(
    sets: &Api<ClusterObjectSet>,
    set: &ClusterObjectSet,
) -> Result<ClusterObjectSet, WriteError> {
    let failed = |source| WriteError::Create {
        name: set.name().to_owned(),
        source,
    };
    let params = PostParams {
        field_manager: Some(field_manager::REVISIONS.to_owned()),
        ..PostParams::default()
    };
    match sets.create(&params, set).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let found = sets.get_opt(set.name()).await.map_err(failed)?;
            found
                .filter(|found| is_made(found, set))
                .ok_or_else(|| WriteError::Taken(set.name().to_owned()))
        }
        made => made.map_err(failed),
    }
}

/// Lets a revision inherit what decides how its objects are kept and taken down. Gives the revision as it is then; nothing
/// when it has it all.
///
/// # Errors
/// It could not be written, or has changed since it was seen.
pub async fn inherit(
    sets: &Api<ClusterObjectSet>,
    extension: &ClusterExtension,
    set: &ClusterObjectSet,
) -> Result<Option<ClusterObjectSet>, kube::Error> {
    match plan::inherit(extension, set) {
        None => Ok(None),
        Some(patch) => sets
            .patch(set.name(), &params(), &Patch::Merge(&patch))
            .await
            .map(Some),
    }
}

/// Has revisions of the reference, which name no account, name the extension's: all that are still worked on, as they were
/// seen. Gives the revisions as they are then; nothing when there were none such.
pub async fn name_account(
    client: &Client,
    account: &AccountName,
    revisions: &Revisions,
) -> Result<Option<Revisions>, WriteError> {
    let unnamed = |set: &ClusterObjectSet| {
        set.annotation(annotation::SERVICE_ACCOUNT).is_none()
            && (set.spec.lifecycle_state == LifecycleState::Active || !is_archived(set.conditions()))
    };
    if !revisions.all().iter().any(|set| unnamed(set)) {
        return Ok(None);
    }
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let mut all = Vec::new();
    for set in revisions.all() {
        if !unnamed(set) {
            all.push(Arc::clone(set));
            continue;
        }
        let failed = |source| WriteError::Patch {
            name: set.name().to_owned(),
            source,
        };
        all.extend(named(&sets, account, set).await.map_err(failed)?.map(Arc::new));
    }
    Ok(Some(Revisions::new(all)))
}

/// Has a revision name an account. The other controller may write its status at the same time, so it is looked at again when
/// it has changed: it must still be the extension's. Nothing when it is gone.
async fn named(
    sets: &Api<ClusterObjectSet>,
    account: &AccountName,
    set: &ClusterObjectSet,
) -> Result<Option<ClusterObjectSet>, kube::Error> {
    let mut seen = set.clone();
    let mut tries = 0;
    loop {
        let patch = json!({"metadata": {
            "uid": seen.metadata.uid,
            "resourceVersion": seen.metadata.resource_version,
            "annotations": {annotation::SERVICE_ACCOUNT: account.to_string()},
        }});
        tries += 1;
        match sets.patch(set.name(), &params(), &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
            result => return found(result),
        }
        let is_same = |live: &ClusterObjectSet| {
            live.metadata.uid == set.metadata.uid
                && controlling_extension(&live.metadata) == controlling_extension(&set.metadata)
        };
        match sets.get_opt(set.name()).await?.filter(is_same) {
            Some(live) if live.annotation(annotation::SERVICE_ACCOUNT).is_some() => return Ok(Some(live)),
            Some(live) => seen = live,
            None => return Ok(None),
        }
    }
}

/// Nothing for what is gone.
fn found<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        result => result.map(Some),
    }
}

/// Deletes a revision, if it is still the one that was seen. One that is gone is fine.
///
/// # Errors
/// It could not be deleted, or has changed since it was seen.
pub async fn delete(
    sets: &Api<ClusterObjectSet>,
    set: &ClusterObjectSet,
    propagation: PropagationPolicy,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(Preconditions {
            uid: set.metadata.uid.clone(),
            resource_version: set.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    not_found_is_fine(sets.delete(set.name(), &params).await)
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(field_manager::REVISIONS.to_owned()),
        ..PatchParams::default()
    }
}

async fn store(secrets: &Api<Secret>, set: &ClusterObjectSet, parcel: &Parcel) -> Result<(), WriteError> {
    let owner = set.label(label::OWNER_NAME).unwrap_or_default();
    let labels = [(label::REVISION_NAME, set.name()), (label::OWNER_NAME, owner)];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(parcel.name.clone()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        type_: Some(OBJECT_DATA_SECRET_TYPE.to_owned()),
        immutable: Some(true),
        data: Some(
            parcel
                .data
                .iter()
                .map(|(k, v)| (k.clone(), ByteString(v.clone())))
                .collect::<BTreeMap<_, _>>(),
        ),
        ..Secret::default()
    };
    let params = PostParams {
        field_manager: Some(field_manager::OPERATOR_CONTROLLER.to_owned()),
        ..PostParams::default()
    };
    match secrets.create(&params, &secret).await {
        Ok(_) => Ok(()),
        // The name follows from the content: it is ours, from an attempt that was interrupted.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        Err(source) => Err(WriteError::Secret {
            name: parcel.name.clone(),
            source,
        }),
    }
}

/// Gives a Secret to its revision, so that it goes when the revision goes.
pub async fn own(secrets: &Api<Secret>, set: &ClusterObjectSet, name: &str) -> Result<(), WriteError> {
    let owner = json!({
        "apiVersion": API_VERSION,
        "kind": CLUSTER_OBJECT_SET,
        "name": set.name(),
        "uid": set.meta().uid,
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let params = PatchParams {
        field_manager: Some(field_manager::OPERATOR_CONTROLLER.to_owned()),
        ..PatchParams::default()
    };
    let patched = secrets.patch_metadata(name, &params, &Patch::Merge(&patch)).await;
    not_found_is_fine(patched).map_err(|source| WriteError::Own {
        name: name.to_owned(),
        source,
    })
}

fn not_found_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
