//! What can be done: all that a run or a deletion writes to the cluster, but for its status and its events.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::PropagationPolicy;
use olm_api::{ClusterObjectSet, PendingChange};
use olm_preflight::crd_upgrade::migration::Rewrite;
use serde_json::Value;

use super::content::ContentSecret;
use super::revision::Creation;
use crate::extension::bundle::OperatorCondition;
use olm_cluster::identity::AccountName;

/// One step of a plan.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sets the finalizers of the extension.
    SetFinalizers(Vec<String>),
    /// Creates the first revision from a Helm release; it counts as complete, since its objects are there.
    AdoptRelease(Creation),
    /// Has a revision made from a Helm release count as complete.
    CompleteAdopted(Arc<ClusterObjectSet>),
    /// Has a revision of the reference, which names no account, name the extension's.
    NameAccount {
        /// The account.
        account: AccountName,
        /// The revision as it was seen.
        set: Arc<ClusterObjectSet>,
    },
    /// Changes a revision. The patch insists on the revision that was seen; its change, or that it is gone, will come to the
    /// next run.
    PatchRevision {
        /// Its name.
        name: String,
        /// The merge patch.
        patch: Value,
    },
    /// Removes the OperatorConditions of former bundles.
    RemoveOperatorConditions {
        /// The names that stay.
        needed: BTreeSet<String>,
    },
    /// Rewrites the objects of definitions under the account, so that stored versions can be removed.
    MigrateStoredVersions {
        /// The account.
        account: AccountName,
        /// The definitions.
        definitions: Vec<StoredVersions>,
    },
    /// Creates the OperatorCondition of a bundle and lets its operator write it.
    KeepOperatorCondition(OperatorCondition),
    /// Creates a revision with its content Secrets.
    CreateRevision(Creation),
    /// Creates the content Secrets of a revision again that are missing.
    RestoreSecrets {
        /// The revision.
        set: Arc<ClusterObjectSet>,
        /// All that it refers to.
        secrets: Vec<ContentSecret>,
    },
    /// Removes Helm releases that revisions have taken the place of.
    RemoveReleases(Vec<String>),
    /// Takes a revision down: it inherits what decides about that, and is deleted.
    TakeDown {
        /// The revision as it was seen.
        set: Arc<ClusterObjectSet>,
        /// The merge patch by which it inherits.
        patch: Option<Value>,
        /// How it is deleted; `None` for one whose deletion is under way.
        delete: Option<PropagationPolicy>,
    },
    /// Removes the content Secrets of the extension whose revisions are gone.
    RemoveSecrets,
    /// Creates a PendingChange.
    OfferChange(Box<PendingChange>),
    /// Writes the status of a PendingChange.
    RecordPendingChange(Box<PendingChange>),
    /// Removes a PendingChange.
    RemovePendingChange(Arc<PendingChange>),
    /// Removes everything by which its operator could report conditions.
    RemoveAllOperatorConditions,
}

/// A definition whose stored versions have to be removed.
#[derive(Debug, Clone)]
pub struct StoredVersions {
    /// The definition as the cluster has it.
    pub live: Value,
    /// How its objects are rewritten.
    pub rewrite: Rewrite,
}
