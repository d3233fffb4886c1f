//! Extensions that the reference's Helm runtime installed: their newest deployed release becomes the first revision. It
//! counts as complete from the start, and its objects are taken over where they are once there is an account.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::conditions::{self, Report, SUCCEEDED, Status, reason, set_condition};
use olm_api::names::{label, release as names};
use olm_api::{ClusterExtension, ClusterObjectSet};
use tokio::sync::Mutex;

use crate::cluster::identity::is_name;
use crate::extension::act::write::{self, WriteError};
use crate::extension::bundle::phases::{Marks, PhasesError, phases};
use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};
use crate::extension::observe::release::{self, Entry, Heir, Release, ReleaseError};
use crate::extension::observe::revisions::Revisions;
use crate::extension::plan::{Plan, PlanError, Wanted, plan};
use crate::object_set::records;

/// For how long releases that were listed are not listed again for extensions that never said that they have one.
const FRESH: Duration = Duration::from_secs(10);
/// How often the first status of a revision is tried when somebody else changes it at the same time.
const TRIES: usize = 5;

/// Why a release could not be made a revision.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// It is not known which releases there are.
    #[error("migrating storage: cannot list the releases of the Helm runtime")]
    List(#[source] kube::Error),
    /// A Secret could not be read.
    #[error("migrating storage: cannot read Secret {name:?}")]
    Read {
        /// The Secret.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// A Secret could not be removed.
    #[error("cannot remove the release in Secret {name:?}, whose objects belong to a revision by now")]
    Remove {
        /// The Secret.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// A release does not hold what it should.
    #[error(
        "migrating storage: the Helm release in Secret {name:?} cannot be read; restore the Secrets of the release, or delete them to have the bundle installed anew over the objects that are there"
    )]
    Release {
        /// The Secret that it begins with.
        name: String,
        /// Why not.
        #[source]
        source: ReleaseError,
    },
    /// The program ends.
    #[error("migrating storage: reading the release was cut off; it is tried again")]
    CutOff,
    /// Its objects make no phases.
    #[error("migrating storage")]
    Phases(#[from] PhasesError),
    /// They make no revision.
    #[error("migrating storage")]
    Plan(#[from] PlanError),
    /// The revision could not be written.
    #[error("migrating storage")]
    Write(#[from] WriteError),
    /// The revision's status could not be written.
    #[error("migrating storage: cannot write the status of {name}")]
    Status {
        /// The revision.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
}

impl StageError for MigrateError {
    fn severity(&self) -> Severity {
        match self {
            Self::List(_)
            | Self::Read { .. }
            | Self::Remove { .. }
            | Self::CutOff
            | Self::Write(_)
            | Self::Status { .. } => Severity::Transient,
            Self::Release { source, .. } => source.severity(),
            Self::Phases(error) => error.severity(),
            Self::Plan(error) => error.severity(),
        }
    }
}

/// The releases that are deployed, by the names of their extensions.
type Entries = Arc<HashMap<String, Vec<Entry>>>;

/// Which releases there were, and when that was found out.
#[derive(Debug, Default)]
pub struct Known(Mutex<Option<(Instant, Entries)>>);

/// The revisions of an extension; when it has none but a release, that as a revision.
pub async fn migrate(
    context: &Context,
    extension: &ClusterExtension,
    revisions: Revisions,
) -> Result<Revisions, MigrateError> {
    if revisions.all().is_empty() {
        // Only who had revisions says which were active: those that are gone were removed, and the release is older.
        let status = extension.status.as_ref();
        if status.is_some_and(|status| !status.active_revisions.is_empty()) {
            return Ok(revisions);
        }
        let Some(entry) = newest(context, extension).await? else {
            return Ok(revisions);
        };
        let made = revise(context, extension, &entry).await?;
        tracing::info!(
            extension = extension.name(),
            revision = made.name(),
            release = entry.secret,
            "made a revision from a Helm release"
        );
        return Ok(Revisions::new(vec![Arc::new(succeed(context, made).await?)]));
    }
    let unfinished = |set: &ClusterObjectSet| {
        set.label(label::MIGRATED_FROM_HELM).is_some() && !conditions::is_true(set.conditions(), SUCCEEDED)
    };
    if !revisions.active().any(unfinished) {
        return Ok(revisions);
    }
    let mut all = Vec::new();
    for set in revisions.all() {
        all.push(if unfinished(set) {
            Arc::new(succeed(context, (**set).clone()).await?)
        } else {
            Arc::clone(set)
        });
    }
    Ok(Revisions::new(all))
}

/// The release that an extension is to go on from, when it has no revision yet.
pub async fn newest(context: &Context, extension: &ClusterExtension) -> Result<Option<Entry>, MigrateError> {
    Ok(ours(context, extension).await?.into_iter().max())
}

async fn ours(context: &Context, extension: &ClusterExtension) -> Result<Vec<Entry>, MigrateError> {
    let entries = entries(context, extension).await?;
    let heir = Heir {
        uid: extension.metadata.uid.as_deref().unwrap_or_default(),
        made: extension.metadata.creation_timestamp.as_ref().map(|time| time.0),
        follows: context.others(extension).highest > 0,
    };
    let entries = entries.get(extension.name()).map_or(&[][..], Vec::as_slice);
    Ok(release::ours(entries, heir).cloned().collect())
}

/// Removes the releases of an extension that revisions have taken the place of. They would be collected with it; but who
/// finds one beside an extension without revisions takes it for what is installed.
pub async fn forget(context: &Context, extension: &ClusterExtension) -> Result<(), MigrateError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    for entry in ours(context, extension).await? {
        // What was listed is out of date with that.
        *context.releases.0.lock().await = None;
        match secrets.delete(&entry.secret, &DeleteParams::background()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => {
                return Err(MigrateError::Remove {
                    name: entry.secret,
                    source,
                });
            }
        }
    }
    Ok(())
}

/// The releases that are deployed. New extensions, which come many at a time, ask in vain: what was listed just now will
/// do for them.
async fn entries(context: &Context, extension: &ClusterExtension) -> Result<Entries, MigrateError> {
    let had_something = extension
        .status
        .as_ref()
        .is_some_and(|status| status.install.is_some());
    let mut known = context.releases.0.lock().await;
    if let Some((at, entries)) = &*known
        && !had_something
        && at.elapsed() < FRESH
    {
        return Ok(Arc::clone(entries));
    }
    let asked = Instant::now();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    let listed = secrets
        .list_metadata(&ListParams::default().labels(names::INDEX_SELECTOR))
        .await
        .map_err(MigrateError::List)?;
    let mut entries: HashMap<String, Vec<Entry>> = HashMap::new();
    for (name, entry) in listed
        .items
        .iter()
        .filter_map(|secret| release::entry(&secret.metadata))
    {
        entries.entry(name).or_default().push(entry);
    }
    let entries = Arc::new(entries);
    *known = Some((asked, Arc::clone(&entries)));
    Ok(entries)
}

/// Makes a release a revision.
async fn revise(
    context: &Context,
    extension: &ClusterExtension,
    entry: &Entry,
) -> Result<ClusterObjectSet, MigrateError> {
    let unreadable = |source| MigrateError::Release {
        name: entry.secret.clone(),
        source,
    };
    let release = read(context, extension, entry).await?;
    let installed = extension
        .status
        .as_ref()
        .and_then(|status| status.install.as_ref());
    let source = extension.spec.source.catalog.as_ref();
    let bundle = release
        .bundle(
            installed.map(|install| &install.bundle),
            source
                .map(|catalog| catalog.package_name.as_str())
                .unwrap_or_default(),
        )
        .map_err(unreadable)?;
    let groups = phases(
        release.objects,
        Marks {
            extension: extension.name(),
            package: &bundle.package,
            version: &bundle.metadata.version,
        },
    )?;
    let wanted = Wanted {
        extension,
        // Whoever it is to be is named once it is known; what is there is installed whether or not.
        account: None,
        bundle: &bundle,
        properties: None,
        certificates: None,
        operator_condition: None,
        groups: &groups,
        // The objects are the extension's, but for those that the bundle wants kept: they have no owner.
        adopt: CollisionProtection::IfNoController,
        system_namespace: &context.system_namespace,
    };
    let mut plan = plan(&wanted, &Revisions::default(), &context.others(extension))?;
    let mut name = String::new();
    if let Plan::Create { set, .. } = &mut plan {
        let labels = set.metadata.labels.get_or_insert_default();
        labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
        set.name().clone_into(&mut name);
    }
    write::write(&context.client, &context.system_namespace, &plan).await?;
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let found = sets.get(&name).await;
    found.map_err(|source| MigrateError::Status { name, source })
}

/// Reads a release from its Secrets.
async fn read(
    context: &Context,
    extension: &ClusterExtension,
    entry: &Entry,
) -> Result<Release, MigrateError> {
    let unreadable = |source| MigrateError::Release {
        name: entry.secret.clone(),
        source,
    };
    let first = secret(context, &entry.secret).await?;
    let (first, others) = first
        .and_then(|first| release::index(&first))
        .map_err(unreadable)?;
    let mut parts = vec![first];
    for name in &others {
        let part = secret(context, name).await?;
        parts.push(part.and_then(|part| release::chunk(&part)).map_err(unreadable)?);
    }
    let name = extension.name().to_owned();
    tokio::task::spawn_blocking(move || release::decode(&name, &parts))
        .await
        .map_err(|_| MigrateError::CutOff)?
        .map_err(unreadable)
}

async fn secret(context: &Context, name: &str) -> Result<Result<Secret, ReleaseError>, MigrateError> {
    let missing = || ReleaseError::Missing(name.to_owned());
    if !is_name(name) {
        // No Secret has such a name, and it might lead elsewhere.
        return Ok(Err(missing()));
    }
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    let found = secrets.get_opt(name).await.map_err(|source| MigrateError::Read {
        name: name.to_owned(),
        source,
    })?;
    Ok(found.ok_or_else(missing))
}

/// Has a revision count as complete: its objects are there.
async fn succeed(context: &Context, mut set: ClusterObjectSet) -> Result<ClusterObjectSet, MigrateError> {
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let mut tries = 0;
    loop {
        let status = set.status.clone().unwrap_or_default();
        let mut list = status.conditions;
        let report = Report {
            condition_type: SUCCEEDED,
            status: Status::True,
            reason: reason::SUCCEEDED,
            message: "Revision succeeded - migrated from Helm release",
            observed_generation: set.generation(),
        };
        set_condition(&mut list, report, Timestamp::now());
        tries += 1;
        match records::status(&context.client, &mut set, list, status.observed_phases).await {
            Ok(()) => return Ok(set),
            // The other controller has begun to work on it.
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {
                let name = set.name().to_owned();
                set = sets
                    .get(&name)
                    .await
                    .map_err(|source| MigrateError::Status { name, source })?;
            }
            Err(source) => {
                return Err(MigrateError::Status {
                    name: set.name().to_owned(),
                    source,
                });
            }
        }
    }
}
