//! Writes a planned revision and its Secrets with the controller's own rights.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::{annotation, field_manager, label};
use olm_platform::write::{as_seen, created_by, patched_by, unless};
use serde_json::{Value, json};

use crate::extension::failure::{RequestError, Severity, StageError, failed};
use crate::extension::plan::revision::{Creation, is_same_revision};
use olm_cluster::identity::AccountName;
use olm_plan::pack::{ContentSecret, ownership};

/// The number of attempts to write a revision when another writer changes it at the same time.
const TRIES: usize = 5;
/// The most concurrent writes of Secrets.
const AT_ONCE: usize = 4;

/// The reason why a revision could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Another object has the revision's name, or the revision changed. The next plan sees it.
    #[error("creating new Revision {0}: a ClusterObjectSet of that name exists already")]
    Taken(String),
}

impl StageError for WriteError {
    fn severity(&self) -> Severity {
        Severity::Transient
    }
}

/// Patches a revision, if it is unchanged since it was read. A changed or deleted one starts another run.
pub(crate) async fn patch(client: &Client, name: &str, patch: &Value) -> Result<(), WriteError> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let patched = sets.patch_metadata(name, &params(), &Patch::Merge(patch)).await;
    let patched = unless(&[404, 409], patched).map_err(failed(format!("patching {name} Revision")))?;
    if patched.is_some() {
        tracing::info!(revision = name, "changed a revision");
    }
    Ok(())
}

/// Creates a revision and returns it. Its Secrets are created first, so that it never refers to a missing one.
pub(crate) async fn create(
    client: &Client,
    system_namespace: &str,
    creation: &Creation,
) -> Result<ClusterObjectSet, WriteError> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let Creation { set, secrets, remove } = creation;
    for old in remove {
        let deleted = delete(&sets, old, PropagationPolicy::Background).await;
        // A changed one is deleted when the next revision is created.
        let deleted = unless(&[409], deleted);
        deleted.map_err(failed(format!(
            "garbage collecting old revisions: {}",
            old.name()
        )))?;
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
    let stored: Vec<_> = secrets.iter().map(|secret| store(&api, set, secret)).collect();
    let stored = at_once(stored).await?;
    let mut set = set.clone();
    if !stored.is_empty() && stored.iter().all(|stored| *stored == SecretOrigin::Predecessor) {
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RESTORED.to_owned(), "true".to_owned());
    }
    let made = create_set(&sets, &set).await?;
    let owned: Vec<_> = secrets
        .iter()
        .map(|secret| own(&api, &made, &secret.name))
        .collect();
    at_once(owned).await?;
    Ok(made)
}

async fn at_once<T>(work: Vec<impl Future<Output = Result<T, WriteError>>>) -> Result<Vec<T>, WriteError> {
    stream::iter(work).buffer_unordered(AT_ONCE).try_collect().await
}

/// Creates the missing Secrets of a revision again.
pub(crate) async fn restore(
    client: &Client,
    system_namespace: &str,
    set: &ClusterObjectSet,
    wanted: &[ContentSecret],
) -> Result<(), WriteError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
    let present = match label::selector(label::REVISION_NAME, set.name()) {
        Some(labelled) => {
            let listed = secrets
                .list_metadata(&ListParams::default().labels(&labelled))
                .await;
            let what = format!("looking for the ref Secrets of {}", set.name());
            listed.map_err(failed(what))?.items
        }
        None => Vec::new(),
    };
    let is_there = |name: &str| {
        present
            .iter()
            .any(|found| found.metadata.name.as_deref() == Some(name))
    };
    for secret in wanted.iter().filter(|secret| !is_there(&secret.name)) {
        store(&secrets, set, secret).await?;
        own(&secrets, set, &secret.name).await?;
        tracing::warn!(
            revision = set.name(),
            secret = secret.name,
            "created a missing content Secret again"
        );
    }
    Ok(())
}

/// Creates a revision. An equal one that exists already counts.
async fn create_set(
    sets: &Api<ClusterObjectSet>,
    set: &ClusterObjectSet,
) -> Result<ClusterObjectSet, WriteError> {
    let failed = failed(format!("creating new Revision {}", set.name()));
    match sets.create(&created_by(field_manager::REVISIONS), set).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let found = sets.get_opt(set.name()).await.map_err(failed)?;
            found
                .filter(|found| is_same_revision(found, set))
                .ok_or_else(|| WriteError::Taken(set.name().to_owned()))
        }
        made => Ok(made.map_err(failed)?),
    }
}

/// Copies the options that decide on the teardown to a revision, and deletes it.
///
/// # Errors
/// It could not be written, or has changed since it was seen.
pub(crate) async fn take_down(
    client: &Client,
    set: &ClusterObjectSet,
    patch: Option<&Value>,
    propagation: Option<PropagationPolicy>,
) -> Result<(), kube::Error> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let changed = match patch {
        Some(patch) => Some(sets.patch(set.name(), &params(), &Patch::Merge(patch)).await?),
        None => None,
    };
    match propagation {
        Some(propagation) => delete(&sets, changed.as_ref().unwrap_or(set), propagation).await,
        None => Ok(()),
    }
}

/// Records the account in a revision. The other controller may write its status at the same time, so a changed revision
/// is read again; it must still belong to the extension. A missing one is ignored.
pub(crate) async fn name_account(
    client: &Client,
    account: &AccountName,
    set: &ClusterObjectSet,
) -> Result<(), WriteError> {
    let failed = || failed(format!("patching {} Revision", set.name()));
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
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
            result => return Ok(unless(&[404], result).map(drop).map_err(failed())?),
        }
        let is_same = |live: &ClusterObjectSet| {
            live.metadata.uid == set.metadata.uid
                && controlling_extension(&live.metadata) == controlling_extension(&set.metadata)
        };
        match sets.get_opt(set.name()).await.map_err(failed())?.filter(is_same) {
            Some(live) if live.annotation(annotation::SERVICE_ACCOUNT).is_none() => seen = live,
            Some(_) | None => return Ok(()),
        }
    }
}

/// Deletes a revision as it was seen. A missing one is ignored.
///
/// # Errors
/// It could not be deleted, or has changed since it was seen.
async fn delete(
    sets: &Api<ClusterObjectSet>,
    set: &ClusterObjectSet,
    propagation: PropagationPolicy,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        ..as_seen(&set.metadata)
    };
    unless(&[404], sets.delete(set.name(), &params).await).map(drop)
}

fn params() -> PatchParams {
    patched_by(field_manager::REVISIONS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretOrigin {
    /// This extension, in this run or an interrupted one.
    Ours,
    /// An earlier extension of the same name. The name of a Secret is derived from its content, so an earlier revision
    /// of this name had the same content.
    Predecessor,
}

async fn store(
    secrets: &Api<Secret>,
    set: &ClusterObjectSet,
    content: &ContentSecret,
) -> Result<SecretOrigin, WriteError> {
    let secret = content.object(set);
    let failed = failed(format!("creating ref Secret {:?}", content.name));
    match secrets
        .create(&created_by(field_manager::OPERATOR_CONTROLLER), &secret)
        .await
    {
        Ok(_) => Ok(SecretOrigin::Ours),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let found = secrets.get_metadata_opt(&content.name).await.map_err(failed)?;
            let annotations = found.and_then(|found| found.metadata.annotations);
            let maker = annotations.and_then(|mut all| all.remove(annotation::OWNER_UID));
            let is_ours = maker.as_deref() == controlling_extension(&set.metadata);
            Ok(if is_ours {
                SecretOrigin::Ours
            } else {
                SecretOrigin::Predecessor
            })
        }
        Err(source) => Err(failed(source).into()),
    }
}

/// Makes the revision the owner of a Secret, so that both are deleted together, and records the extension.
pub(crate) async fn own(secrets: &Api<Secret>, set: &ClusterObjectSet, name: &str) -> Result<(), WriteError> {
    let patch = Patch::Merge(ownership(set));
    let params = patched_by(field_manager::OPERATOR_CONTROLLER);
    let patched = secrets.patch_metadata(name, &params, &patch).await;
    let what = format!("patching ownerReferences on ref Secrets: {name}");
    Ok(unless(&[404], patched).map(drop).map_err(failed(what))?)
}
