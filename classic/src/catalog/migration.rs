//! Moves by annotation: Subscriptions become ClusterExtensions, and such ClusterExtensions become Subscriptions again.
//!
//! ```text
//! wake ─► requests ─► back:  findings ─► return
//!                 └─► there: assess ─► record ─► hand over
//! ```
//!
//! Requests are worked on one after another, since operators may need each other.

mod back;
mod context;
mod forward;
mod report;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use olm_api::names::migration;
use olm_api::object::qualified_name;
use olm_classic::cluster::{Cluster, text};
use olm_classic::names;
use olm_classic::subscription::{MigrationState, invalid_request, without_migration};
use olm_platform::queue::{Outcome, Queue, on_its_own};
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

pub use self::context::Mover;
use self::requests::{Requests, is_request, unrequested};
use super::write::update_status;
use crate::objects::kinds::{self, Kind};
use crate::objects::store::{Change, Store};

/// The kinds of OLM v1 that decide on moves. The cluster may not serve them.
const KINDS: &[Kind] = &[kinds::CLUSTER_EXTENSION, kinds::CLUSTER_CATALOG];
/// The kinds whose changes may let a blocked move begin.
const AWAITED: &[&str] = &[
    names::SUBSCRIPTION_KIND,
    names::CSV_KIND,
    names::INSTALL_PLAN_KIND,
    names::OPERATOR_GROUP_KIND,
    names::CATALOG_SOURCE_KIND,
    olm_api::names::CLUSTER_EXTENSION,
    olm_api::names::CLUSTER_CATALOG,
];
/// The definition of ClusterExtensions.
const DEFINITION: &str = "clusterextensions.olm.operatorframework.io";
/// The interval at which a blocked move is checked again: an OperatorCondition or a Secret may have changed.
const SLOWLY: Duration = Duration::from_mins(1);
/// The time in which the objects of OLM v1 are listed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after another client wrote an object first.
const SOON: Duration = Duration::from_secs(1);

/// The result of work on requests of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PassOutcome {
    /// All are done.
    Done,
    /// Some wait for a change.
    Waits,
    /// Another client wrote an object first.
    Overtaken,
    /// A step has failed.
    Failed,
}

impl PassOutcome {
    fn of(error: &anyhow::Error) -> Self {
        if olm_migrate::steps::is_conflict(error) {
            Self::Overtaken
        } else {
            Self::Failed
        }
    }
}

/// Whether the store has the ClusterExtensions of the cluster. Take a snapshot after the call.
pub fn has_extensions(store: &Store) -> bool {
    store.has_listed(olm_api::names::CLUSTER_EXTENSION) || !is_served(&store.snapshot())
}

/// Whether the cluster has the kinds of OLM v1.
fn is_served(cluster: &Cluster) -> bool {
    cluster.get(names::CRD_KIND, "", DEFINITION).is_some()
}

impl Mover {
    /// Works on requests until the process ends.
    pub async fn run(self: Arc<Self>) {
        let is_served = is_served(&self.base.store.snapshot());
        if is_served {
            self.base.store.expect(KINDS.len());
        }
        tokio::join!(self.follow(is_served), self.follow_requests(is_served));
    }

    /// Works on requests, once the objects of OLM v1 are known.
    async fn follow_requests(self: &Arc<Self>, is_served: bool) {
        let changes = self.base.store.subscribe();
        let is_pending = AtomicBool::new(false);
        let queue: Queue<()> = Queue::default();
        queue.report_to(&self.base.metrics, "migration");
        queue.add(());
        if is_served {
            // Without the right to list them, the conditions name the missing right.
            let _ = tokio::time::timeout(PATIENCE, self.base.store.wait_until_listed()).await;
        }
        let working = queue.run(1, self.base.shutdown.token(), |()| {
            let mover = Arc::clone(self);
            let is_pending = &is_pending;
            async move {
                let requests = Requests::of(&mover.base.store.snapshot());
                is_pending.store(!requests.is_empty(), Ordering::Release);
                on_its_own(async move { mover.work(&requests).await }).await
            }
        });
        tokio::join!(working, wake(&queue, &is_pending, changes));
    }

    /// Follows the kinds of OLM v1 once the cluster serves them. Its caller has announced them if it does now.
    async fn follow(&self, was_served: bool) {
        if !was_served {
            let mut changes = self.base.store.subscribe();
            while !is_served(&self.base.store.snapshot()) {
                if changes.recv().await.is_none() {
                    return;
                }
            }
            self.base.store.expect(KINDS.len());
        }
        self.base.store.follow(self.base.writer.own(), KINDS).await;
    }

    /// Works on all requests once.
    async fn work(&self, requests: &Requests) -> Outcome {
        let withdrawn = self.withdraw(requests).await;
        let back = self.back(requests).await;
        let forward = self.forward(requests).await;
        match withdrawn.max(back).max(forward) {
            PassOutcome::Done => Outcome::Done,
            PassOutcome::Waits => Outcome::After(SLOWLY),
            PassOutcome::Overtaken => Outcome::After(SOON),
            PassOutcome::Failed => Outcome::Failed,
        }
    }

    /// Removes the conditions and annotations about moves and returns whose request was withdrawn, and reports values
    /// that are no request.
    async fn withdraw(&self, requests: &Requests) -> PassOutcome {
        let cluster = self.base.store.snapshot();
        let mut outcome = PassOutcome::Done;
        for subscription in requests.at_rest(&cluster) {
            let written = if let Some(message) = invalid_request(subscription, migration::MIGRATE) {
                let key = qualified_name(subscription);
                self.report(&key, MigrationState::Invalid, &message).await
            } else {
                let change = |live: &Value| without_migration(live, Timestamp::now());
                update_status(&self.base, subscription, change).await.map(drop)
            };
            outcome = outcome.max(withdrawn(subscription, written));
        }
        for extension in unrequested(&cluster) {
            outcome = outcome.max(self.without_request(extension).await);
        }
        outcome
    }
}

/// The result of a write of the condition or annotation about a move that is not requested.
fn withdrawn(object: &Value, written: Result<(), RequestFailure>) -> PassOutcome {
    let Err(failure) = written else {
        return PassOutcome::Done;
    };
    if failure.kind == FailureKind::MissingNamespace {
        return PassOutcome::Done;
    }
    tracing::warn!(
        kind = text(object, "/kind"),
        namespace = text(object, "/metadata/namespace"),
        name = text(object, "/metadata/name"),
        error = failure.message,
        "cannot change the report about a move that is not requested; retrying"
    );
    PassOutcome::Failed
}

/// Adds work for changes that concern a request. Never returns while changes may come.
async fn wake(queue: &Queue<()>, is_pending: &AtomicBool, mut changes: UnboundedReceiver<Change>) {
    while let Some(change) = changes.recv().await {
        if is_request(change.before.as_deref(), change.now.as_deref()) {
            queue.add(());
        } else if is_pending.load(Ordering::Acquire) && AWAITED.contains(&change.kind) {
            // It may be a write of the move itself, which must not shorten the pause after a failure.
            tracing::trace!(
                kind = change.kind,
                name = text(change.object(), "/metadata/name"),
                "a change"
            );
            queue.add_patiently(());
        }
    }
}
