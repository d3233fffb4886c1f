//! Executes a checked plan without decisions of its own. Only this stage writes, apart from status and events.

pub(crate) mod changes;
pub(crate) mod migrate;
pub(crate) mod orphaned_secrets;
pub(crate) mod progress;
pub(crate) mod write;

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::api::{Api, Patch};
use olm_api::conditions::{Report, SUCCEEDED, Status, reason, set_condition};
use olm_api::names::{field_manager, migration};
use olm_api::text::counted;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_platform::write::patched_by;
use serde_json::json;

use self::migrate::MigrationError;
use self::progress::Migration;
use self::write::WriteError;
use super::approval::HeldChange;
use super::context::Context;
use super::context::helm::HelmError;
use super::failure::{RequestError, Severity, StageError};
use super::plan::action::{Action, StoredVersions};
use super::plan::revision::Creation;
use super::preflight::{Announcement, Checked, PreflightError};
use crate::conditions::records::{self, Record};
use crate::extension::bundle::OperatorCondition;
use crate::object_set::records as sets;
use olm_cluster::identity::AccountName;

/// The number of attempts to write the first status of a revision when another writer changes it at the same time.
const TRIES: usize = 5;

/// State of this stage between runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActCache {
    /// The progress of a migration of stored versions.
    migration: Migration,
    /// The migrations for the next revision, a line for each CRD.
    migrated: Vec<String>,
    /// The OperatorConditions that were needed at the last cleanup.
    operator_conditions: Option<BTreeSet<String>>,
    /// Whether a content Secret may lack its owner, because the creation of a revision ended half-way.
    secrets_without_owner: bool,
    /// Whether a write failed that nothing else depends on.
    has_failed_write: bool,
}

impl ActCache {
    /// The migrations for the next revision.
    pub(crate) fn migrated(&self) -> &[String] {
        &self.migrated
    }

    /// The OperatorConditions that were needed at the last cleanup.
    pub(crate) fn operator_conditions(&self) -> Option<&BTreeSet<String>> {
        self.operator_conditions.as_ref()
    }

    /// Records and logs that a write failed that nothing else depends on.
    pub(crate) fn note_failed_write(
        &mut self,
        extension: &ClusterExtension,
        error: &ActError,
        action: &'static str,
    ) {
        self.has_failed_write = true;
        let (extension, error) = (extension.name(), error as &dyn std::error::Error);
        tracing::debug!(extension, error, "cannot {action}");
    }

    /// Whether such a write failed since the last call.
    pub(crate) fn take_failed_write(&mut self) -> bool {
        std::mem::take(&mut self.has_failed_write)
    }

    /// Records the progress of a migration on the extension, for the next leader.
    pub(crate) async fn record(&self, context: &Context, extension: &ClusterExtension) {
        progress::record(&self.migration, context, extension).await;
    }
}

/// The result of the execution.
#[derive(Debug)]
pub(crate) enum Applied {
    /// Everything was executed.
    Done(Announcement),
    /// Only preparations were executed. The next run continues.
    Prepared,
    /// Nothing was executed, because the extension, a policy or the decision changed. The next run decides again.
    Outdated,
    /// Nothing was executed, because the change has to wait.
    Held(HeldChange),
    /// Nothing was executed, because the API server refuses the OperatorCondition with this name. The next run plans
    /// without it.
    ConditionRefused(String),
}

impl Applied {
    /// Whether the request of the extension was processed completely, without a new revision.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Done(done) => done.started.is_none(),
            Self::Held(_) => true,
            Self::Prepared | Self::Outdated | Self::ConditionRefused(_) => false,
        }
    }
}

impl Default for Applied {
    /// Nothing had to be done.
    fn default() -> Self {
        Self::Done(Announcement::default())
    }
}

/// The reason why an action could not be executed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    /// A revision or its Secrets could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The revision of a Helm release could not be written.
    #[error("migrating storage")]
    Adopt(#[source] WriteError),
    /// The revision's status could not be written.
    #[error("migrating storage: cannot write the status of {name}")]
    Complete {
        /// The revision.
        name: String,
        source: kube::Error,
    },
    /// A PendingChange or a record for the operator could not be written.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The account cannot be used.
    #[error(transparent)]
    Account(#[from] PreflightError),
    /// Stored versions could not be removed.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// A Helm release could not be removed.
    #[error(transparent)]
    Release(#[from] HelmError),
    /// Another write failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl ActError {
    /// The error of a plain request, if it is one.
    pub(crate) fn into_api(self) -> Result<kube::Error, Self> {
        match self {
            Self::Api(error) => Ok(error),
            other => Err(other),
        }
    }
}

impl StageError for ActError {
    fn severity(&self) -> Severity {
        match self {
            Self::Account(error) => error.severity(),
            Self::Migration(error) => error.severity(),
            Self::Release(error) => error.severity(),
            Self::Write(_) | Self::Adopt(_) | Self::Complete { .. } | Self::Request(_) | Self::Api(_) => {
                Severity::Transient
            }
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Release(error) => error.reason(),
            _ => reason::RETRYING,
        }
    }
}

/// Executes all actions in order, then creates the revision if there is one to create.
///
/// # Errors
/// An action failed; nothing after it was executed.
pub(crate) async fn act(
    context: &Context,
    extension: &ClusterExtension,
    checked: Checked,
    cache: &mut ActCache,
) -> Result<Applied, ActError> {
    let (actions, creation, announcement) = checked.into_parts();
    if cache.secrets_without_owner {
        match orphaned_secrets::own_all(context, extension).await {
            Ok(are_owned) => cache.secrets_without_owner = !are_owned,
            Err(error) => {
                cache.note_failed_write(extension, &error, "set the owner of a content Secret");
            }
        }
    }
    for action in actions {
        if let Some(refused) = execute(context, extension, action, cache).await? {
            return Ok(Applied::ConditionRefused(refused));
        }
    }
    if let Some(creation) = creation {
        cache.secrets_without_owner = true;
        write::create(&context.client, &context.system_namespace, &creation).await?;
        cache.secrets_without_owner = false;
    }
    let Some(announcement) = announcement else {
        return Ok(Applied::Prepared);
    };
    // Only a new revision ends a migration. Until then its progress is kept, also for the next leader.
    if announcement.started.is_some() {
        cache.migrated.clear();
        cache.migration = Migration::Over;
    }
    Ok(Applied::Done(announcement))
}

/// Executes an action. Returns the name of an OperatorCondition that the API server refuses.
async fn execute(
    context: &Context,
    extension: &ClusterExtension,
    action: Action,
    cache: &mut ActCache,
) -> Result<Option<String>, ActError> {
    let client = &context.client;
    match action {
        Action::SetFinalizers(list) => set_finalizers(context, extension, &list).await?,
        Action::AdoptRelease(creation) => {
            cache.secrets_without_owner = true;
            let made = adopt(context, extension, &creation).await?;
            cache.secrets_without_owner = false;
            complete(context, made).await?;
        }
        Action::CompleteAdopted(set) => complete(context, (*set).clone()).await?,
        Action::NameAccount { account, set } => write::name_account(client, &account, &set).await?,
        Action::PatchRevision { name, patch } => write::patch(client, &name, &patch).await?,
        Action::RemoveOperatorConditions { needed } => {
            records::tidy(client, extension, &needed).await?;
            cache.operator_conditions = Some(needed);
        }
        Action::MigrateStoredVersions { account, definitions } => {
            migrate(context, extension, &account, &definitions, cache).await?;
        }
        Action::KeepOperatorCondition(condition) => {
            return keep_condition(context, extension, condition).await;
        }
        Action::RestoreSecrets { set, secrets } => {
            cache.secrets_without_owner = true;
            write::restore(client, &context.system_namespace, &set, &secrets).await?;
            cache.secrets_without_owner = false;
        }
        Action::RemoveReleases(secrets) => {
            for secret in &secrets {
                context.releases.remove(secret).await?;
            }
        }
        Action::TakeDown { set, patch, delete } => {
            write::take_down(client, &set, patch.as_ref(), delete).await?;
        }
        Action::OfferChange(change) => changes::offer(client, &change).await?,
        Action::RecordPendingChange(change) => changes::record(client, &change).await?,
        Action::RemovePendingChange(change) => changes::remove(client, &change).await?,
        Action::RemoveSecrets => orphaned_secrets::remove(context, extension).await?,
        Action::RemoveAllOperatorConditions => records::remove(client, extension).await?,
    }
    Ok(None)
}

/// Sets the finalizers, unless the extension changed since it was read.
async fn set_finalizers(
    context: &Context,
    extension: &ClusterExtension,
    list: &[String],
) -> Result<(), kube::Error> {
    let extensions: Api<ClusterExtension> = Api::all(context.client.clone());
    let version = &extension.metadata.resource_version;
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": version}});
    let params = patched_by(field_manager::OPERATOR_CONTROLLER);
    let patch = Patch::Merge(&patch);
    extensions
        .patch_metadata(extension.name(), &params, &patch)
        .await
        .map(drop)
}

/// Creates the first revision from a Helm release.
async fn adopt(
    context: &Context,
    extension: &ClusterExtension,
    creation: &Creation,
) -> Result<ClusterObjectSet, ActError> {
    let made = write::create(&context.client, &context.system_namespace, creation).await;
    let made = made.map_err(ActError::Adopt)?;
    tracing::info!(
        extension = extension.name(),
        revision = made.name(),
        "created a revision from a Helm release"
    );
    Ok(made)
}

/// Marks a revision as complete, because its objects exist.
async fn complete(context: &Context, mut set: ClusterObjectSet) -> Result<(), ActError> {
    let name = set.name().to_owned();
    let failed = |source| ActError::Complete {
        name: name.clone(),
        source,
    };
    let message = match set.annotation(migration::SUBSCRIPTION) {
        Some(_) => "Revision succeeded - migrated from a Subscription",
        None => "Revision succeeded - migrated from Helm release",
    };
    let mut tries = 0;
    loop {
        let status = set.status.clone().unwrap_or_default();
        let mut list = status.conditions;
        let report = Report {
            condition_type: SUCCEEDED,
            status: Status::True,
            reason: reason::SUCCEEDED,
            message,
            observed_generation: set.generation(),
        };
        set_condition(&mut list, report, Timestamp::now());
        tries += 1;
        match sets::status(&context.client, &mut set, list, status.observed_phases).await {
            Ok(()) => return Ok(()),
            // The ClusterObjectSet controller has begun to work on it.
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {
                let live: Api<ClusterObjectSet> = Api::all(context.client.clone());
                set = live.get(&name).await.map_err(failed)?;
            }
            Err(source) => return Err(failed(source)),
        }
    }
}

/// Rewrites the objects of definitions under the account, and removes stored versions.
async fn migrate(
    context: &Context,
    extension: &ClusterExtension,
    account: &AccountName,
    definitions: &[StoredVersions],
    cache: &mut ActCache,
) -> Result<(), ActError> {
    let client = context.accounts.client(account).await;
    let client = client.map_err(PreflightError::from)?;
    for StoredVersions { live, rewrite } in definitions {
        let mut progress = std::mem::take(&mut cache.migration).of(extension);
        let limits = migrate::Limits::within(context.migration_time);
        let migrated = migrate::migrate(&client, rewrite, live, &mut progress, limits).await;
        cache.migration = progress.map_or(Migration::Over, Migration::Reached);
        let (count, name, gone) = (migrated?, &rewrite.definition, rewrite.gone.join(", "));
        tracing::info!(
            extension = extension.name(),
            definition = name,
            count,
            gone,
            "migrated the stored objects of a CRD and removed versions from status.storedVersions"
        );
        cache.migrated.push(format!(
            "migrated {} of CRD {name:?} to {}; removed {gone} from status.storedVersions",
            counted(count, "object"),
            rewrite.storage
        ));
    }
    Ok(())
}

/// Creates an OperatorCondition and lets the operator write it. Returns its name if the API server refuses it.
async fn keep_condition(
    context: &Context,
    extension: &ClusterExtension,
    condition: OperatorCondition,
) -> Result<Option<String>, ActError> {
    let OperatorCondition {
        name,
        account,
        operators,
        writable,
        is_named,
    } = condition;
    let kept = records::keep(&context.client, extension, is_named, &name).await;
    match or_account_error(context, &account, kept).await? {
        Record::Yes => {
            let bound = records::bind(&context.client, extension, &operators, &writable).await;
            or_account_error(context, &account, bound).await?;
            Ok(None)
        }
        Record::No => Ok(Some(name)),
    }
}

/// The result, or the error of the account: if its namespace is gone, that is the cause, and its error has the better
/// hint.
async fn or_account_error<T>(
    context: &Context,
    account: &AccountName,
    written: Result<T, RequestError>,
) -> Result<T, ActError> {
    match written {
        Err(error) if error.is_refused_or_not_found() => {
            let account = context.accounts.client(account).await;
            account.map_err(PreflightError::from)?;
            Err(error.into())
        }
        written => Ok(written?),
    }
}
