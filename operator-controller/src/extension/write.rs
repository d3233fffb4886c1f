//! Writes a planned revision, with the controller's own rights: revisions and their Secrets are our own records.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _};
use olm_api::ClusterObjectSet;
use olm_api::names::{API_VERSION, CLUSTER_OBJECT_SET, OBJECT_DATA_SECRET_TYPE, field_manager, label};
use serde_json::json;

use super::failure::{Severity, StageError};
use super::pack::Parcel;
use super::plan::Plan;

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

/// Does what the plan says. Secrets come first, so that a revision never refers to one that is not there.
pub async fn write(client: &Client, system_namespace: &str, plan: &Plan) -> Result<(), WriteError> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    match plan {
        Plan::Keep => Ok(()),
        Plan::Patch(set) => {
            let failed = |source| WriteError::Patch {
                name: set.name().to_owned(),
                source,
            };
            apply(&sets, set).await.map(drop).map_err(failed)
        }
        Plan::Create { set, parcels, remove } => {
            for name in remove {
                let failed = |source| WriteError::Remove {
                    name: name.clone(),
                    source,
                };
                not_found_is_fine(sets.delete(name, &DeleteParams::background()).await).map_err(failed)?;
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
            let failed = |source| WriteError::Create {
                name: set.name().to_owned(),
                source,
            };
            let made = apply(&sets, set).await.map_err(failed)?;
            let owned: Vec<_> = parcels
                .iter()
                .map(|parcel| own(&secrets, &made, &parcel.name))
                .collect();
            stream::iter(owned).buffer_unordered(AT_ONCE).try_collect().await
        }
    }
}

async fn apply(
    sets: &Api<ClusterObjectSet>,
    set: &ClusterObjectSet,
) -> Result<ClusterObjectSet, kube::Error> {
    sets.patch(
        set.name(),
        &PatchParams::apply(field_manager::REVISIONS).force(),
        &Patch::Apply(set),
    )
    .await
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
