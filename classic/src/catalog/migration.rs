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
mod requests;
mod say;
mod there;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use olm_classic::cluster::text;
use olm_classic::names;
use olm_classic::subscription::without_migration;
use olm_platform::queue::{Outcome, Queue, on_its_own};
use tokio::sync::mpsc::UnboundedReceiver;

pub use self::context::Mover;
use self::requests::{Requests, is_request};
use super::write::write_status;
use crate::objects::kinds::{self, Kind};
use crate::objects::store::Change;

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
/// The pause after which a blocked move is looked at without news: an OperatorCondition or a Secret may have changed.
const SLOWLY: Duration = Duration::from_mins(10);
/// The time in which the objects of OLM v1 are listed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after another client wrote an object first.
const SOON: Duration = Duration::from_secs(1);

/// The result of work on requests of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// All are done.
    Done,
    /// Some wait for a change.
    Waits,
    /// Another client wrote an object first.
    Overtaken,
    /// A step has failed.
    Failed,
}

impl Turn {
    fn of(error: &anyhow::Error) -> Self {
        if olm_migrate::course::is_conflict(error) {
            Self::Overtaken
        } else {
            Self::Failed
        }
    }
}

impl Mover {
    /// Works on requests until the process ends.
    pub async fn run(self: Arc<Self>) {
        let is_served = self.is_served();
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
            // Without the right to list them, the conditions say what is missing.
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

    /// Whether the cluster has the kinds of OLM v1.
    fn is_served(&self) -> bool {
        let cluster = self.base.store.snapshot();
        cluster.get(names::CRD_KIND, "", DEFINITION).is_some()
    }

    /// Follows the kinds of OLM v1 once the cluster serves them. Its caller has announced them if it does now.
    async fn follow(&self, is_served: bool) {
        if !is_served {
            let mut changes = self.base.store.subscribe();
            while !self.is_served() {
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
        if let Err(failure) = self.withdraw().await {
            tracing::warn!(
                error = failure.message,
                "cannot write a Subscription; will try again"
            );
            return Outcome::Failed;
        }
        if requests.is_empty() {
            return Outcome::Done;
        }
        let back = self.back(requests).await;
        let there = self.there(requests).await;
        match back.max(there) {
            Turn::Done => Outcome::Done,
            Turn::Waits => Outcome::After(SLOWLY),
            Turn::Overtaken => Outcome::After(SOON),
            Turn::Failed => Outcome::Failed,
        }
    }

    /// Removes the condition of Subscriptions whose move nobody requests any more.
    async fn withdraw(&self) -> Result<(), olm_rollout::failure::RequestFailure> {
        let cluster = self.base.store.snapshot();
        for subscription in cluster.of_kind(names::SUBSCRIPTION_KIND) {
            if let Some(written) = without_migration(subscription, Timestamp::now()) {
                write_status(&self.base, &written).await?;
            }
        }
        Ok(())
    }
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
