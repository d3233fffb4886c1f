//! Watches ClusterObjectSets and reconciles them: each one at a time, many concurrently.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use olm_api::{ClusterObjectSet, cluster_extension::controlling_extension};
use olm_platform::queue::{Outcome, on_its_own};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{observe::accounts, reconcile::reconcile, store::Change};

pub use super::context::{Context, ControllerOptions};

/// The time for which new kinds are collected before sets that miss some are reconciled, because kinds come in groups.
const GATHERING: Duration = Duration::from_millis(500);

impl Context {
    async fn work(&self, name: String) -> Outcome {
        if self.sets.is_unreadable(&name) {
            // A set that cannot be read waits.
            return Outcome::Done;
        }
        let Some(set) = self.sets.get(&name) else {
            self.watches.forget(&name);
            self.states.lock().remove(&name);
            accounts::forget_unused(self);
            return Outcome::Done;
        };
        let mut set_state = self.states.lock().remove(&name).unwrap_or_default();
        let kinds = self.kinds.load(Ordering::SeqCst);
        let outcome = reconcile(self, &set, &mut set_state).await;
        let misses_kinds = set_state.rollout.misses_kinds;
        self.states.lock().insert(name.clone(), set_state);
        if misses_kinds && self.kinds.load(Ordering::SeqCst) != kinds {
            // The kinds came before the watch began.
            self.queue.add_after(name, GATHERING);
        }
        outcome
    }

    /// Adds changed sets to the queue. None is reconciled before all are known, because the actions on an object depend
    /// on the other revisions.
    async fn follow_sets(&self, mut changes: UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            let Change {
                name,
                before,
                now,
                unreadable,
            } = change;
            // Most other events are our own status.
            let is_news = match (&before, &now) {
                (Some(before), Some(now)) => mark(before) != mark(now),
                _ => true,
            };
            if is_news || unreadable.is_some() {
                self.queue.add(name);
            }
            // Its objects may be free now, or known now, or no longer.
            let siblings = match (&before, &now, &unreadable) {
                (_, _, Some(unreadable)) => self.sets.siblings_of(unreadable),
                (Some(before), None, None) => self.sets.siblings(before),
                _ => Vec::new(),
            };
            for sibling in siblings {
                self.queue.add(sibling.name().to_owned());
            }
        }
    }

    /// Watches the kinds of the cluster.
    async fn follow_kinds(&self) {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.own.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        let mut settled = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(_) | Event::Delete(_)) if settled => {}
                Ok(Event::InitDone) => settled = true,
                Ok(_) => continue,
                Err(error) => {
                    tracing::debug!(%error, "the watch of CustomResourceDefinitions is interrupted");
                    continue;
                }
            }
            self.kinds.fetch_add(1, Ordering::SeqCst);
            let missing: Vec<String> = {
                let states = self.states.lock();
                states
                    .iter()
                    .filter(|(_, set_state)| set_state.rollout.misses_kinds)
                    .map(|(name, _)| name.clone())
                    .collect()
            };
            for name in missing {
                self.queue.add_after(name, GATHERING);
            }
        }
    }
}

/// A hash of everything except the status.
fn mark(set: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = &set.metadata;
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    metadata.labels.hash(&mut hasher);
    metadata.annotations.hash(&mut hasher);
    metadata.finalizers.hash(&mut hasher);
    set.is_deleting().hash(&mut hasher);
    controlling_extension(&set.metadata).hash(&mut hasher);
    hasher.finish()
}

/// Reconciles ClusterObjectSets until `stop` is cancelled, then completes the runs under way. Another task fills
/// [`Context::sets`].
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let work = context
        .queue
        .run(context.options.concurrency, stop.clone(), |name| {
            let context = Arc::clone(&context);
            on_its_own(async move { context.work(name).await })
        });
    let changes = context.changes.lock().take();
    let follow = async {
        tokio::select! {
            () = async { if let Some(changes) = changes { context.follow_sets(changes).await } } => {}
            () = context.follow_kinds() => {}
            () = accounts::follow(&context) => {}
            () = stop.cancelled() => {}
        }
        // A watch never ends. Without one, the controller would miss changes.
        stop.cancel();
    };
    futures::join!(work, follow);
}
