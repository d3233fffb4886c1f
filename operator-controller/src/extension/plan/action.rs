//! All writes of a run or a deletion to the cluster, except status, events and the creation of a checked revision.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::PropagationPolicy;
use olm_api::{ClusterObjectSet, PendingChange};
use olm_preflight::crd_upgrade::migration::Rewrite;
use serde_json::Value;

use super::revision::Creation;
use crate::extension::bundle::OperatorCondition;
use olm_cluster::identity::AccountName;
use olm_plan::pack::ContentSecret;

/// One step of a plan.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sets the finalizers of the extension.
    SetFinalizers(Vec<String>),
    /// Creates the first revision from a Helm release. It counts as complete, because its objects exist.
    AdoptRelease(Creation),
    /// Marks a revision from a Helm release as complete.
    CompleteAdopted(Arc<ClusterObjectSet>),
    /// Records the extension's account in a revision of the reference implementation, which names none.
    NameAccount {
        /// The account.
        account: AccountName,
        /// The revision as it was seen.
        set: Arc<ClusterObjectSet>,
    },
    /// Patches a revision. The patch requires the revision that was read. A changed or deleted one starts another run.
    PatchRevision {
        /// The name.
        name: String,
        /// The merge patch.
        patch: Value,
    },
    /// Deletes the OperatorConditions of former bundles.
    RemoveOperatorConditions {
        /// The names to keep.
        needed: BTreeSet<String>,
    },
    /// Writes the objects of CRDs under the account, so that stored versions can be removed.
    MigrateStoredVersions {
        /// The account.
        account: AccountName,
        /// The CRDs.
        definitions: Vec<StoredVersions>,
    },
    /// Creates the OperatorCondition of a bundle and lets its operator write it.
    KeepOperatorCondition(OperatorCondition),
    /// Creates missing content Secrets of a revision again.
    RestoreSecrets {
        /// The revision.
        set: Arc<ClusterObjectSet>,
        /// All Secrets that it refers to.
        secrets: Vec<ContentSecret>,
    },
    /// Deletes Helm releases that revisions have replaced.
    RemoveReleases(Vec<String>),
    /// Deletes a revision, after copying the options of the teardown to it.
    TakeDown {
        /// The revision as it was seen.
        set: Arc<ClusterObjectSet>,
        /// The merge patch with the options.
        patch: Option<Value>,
        /// The propagation of the deletion; `None` if the deletion is under way.
        delete: Option<PropagationPolicy>,
    },
    /// Deletes the content Secrets of the extension whose revisions are gone.
    RemoveSecrets,
    /// Creates a PendingChange.
    OfferChange(Box<PendingChange>),
    /// Writes the status of a PendingChange.
    RecordPendingChange(Box<PendingChange>),
    /// Deletes a PendingChange.
    RemovePendingChange(Arc<PendingChange>),
    /// Deletes the OperatorConditions of the extension, and the Role of its operator.
    RemoveAllOperatorConditions,
}

/// A CRD whose stored versions must be removed.
#[derive(Debug, Clone)]
pub struct StoredVersions {
    /// The CRD on the cluster.
    pub live: Value,
    /// The migration.
    pub rewrite: Rewrite,
}
