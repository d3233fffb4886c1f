//! The triggers of the controller: changes of ClusterCatalogs, leadership, and the clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::Event;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::ResolvedCatalogSource;
use olm_cluster::follow::follow;

use super::Context;

/// Watches the ClusterCatalogs until the process stops. An object that does not parse blocks no other, and its served
/// content stays.
pub(crate) async fn watch(context: Arc<Context>, writer: Writer<ClusterCatalog>) {
    // All replicas watch, and only a leader writes: operator-controller records the event of an unreadable object.
    let events = follow(&context.client, &context.unreadable, writer, |_, _| ());
    let events = events.take_until(context.stop.clone().cancelled_owned());
    let mut events = std::pin::pin!(events);
    let mut is_first = true;
    let mut triggers = Triggers::default();
    while let Some(event) = events.next().await {
        match event {
            Event::Apply(catalog) => changed(&context, &mut triggers, &catalog),
            Event::Delete(catalog) => {
                triggers.0.remove(catalog.name());
                give_up(&context, &catalog);
                context.queue.add(catalog.name().to_owned());
            }
            Event::InitDone => {
                let catalogs = context.catalogs.state();
                if std::mem::take(&mut is_first) {
                    begin(&context, &catalogs);
                }
                for catalog in &catalogs {
                    changed(&context, &mut triggers, catalog);
                }
                // An object that was deleted while the watch was interrupted leaves no event.
                let there: HashSet<&str> = catalogs.iter().map(|catalog| catalog.name()).collect();
                let snapshots = context.store.snapshots();
                let stored = snapshots.iter().map(|snapshot| &snapshot.record().catalog);
                for name in stored.filter(|name| !there.contains(name.as_str())) {
                    context.queue.add(name.clone());
                }
                for name in triggers.retain(&there) {
                    context.queue.add(name);
                }
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }
}

/// Makes readiness wait for catalogs that status reports as served and the store lacks.
fn begin(context: &Context, catalogs: &[Arc<ClusterCatalog>]) {
    let claimed = |catalog: &&Arc<ClusterCatalog>| {
        catalog
            .status
            .as_ref()
            .is_some_and(|status| status.resolved_source.is_some())
            && context.store.snapshot(catalog.name()).is_none()
    };
    context.startup.begin(
        catalogs
            .iter()
            .filter(claimed)
            .map(|catalog| catalog.name().to_owned()),
    );
}

/// The parts of an object that trigger a reconcile. The rest of its status is ours: a message about a failed pull is no
/// reason to pull again at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trigger {
    uid: Option<String>,
    generation: i64,
    is_deleting: bool,
    annotations: Option<BTreeMap<String, String>>,
    /// The content that followers copy.
    resolved: Option<ResolvedCatalogSource>,
}

impl Trigger {
    fn of(catalog: &ClusterCatalog) -> Self {
        let status = catalog.status.as_ref();
        Self {
            uid: catalog.metadata.uid.clone(),
            generation: catalog.generation(),
            is_deleting: catalog.is_deleting(),
            annotations: catalog.metadata.annotations.clone(),
            resolved: status.and_then(|status| status.resolved_source.clone()),
        }
    }
}

/// The triggers of all catalogs as last seen.
#[derive(Debug, Default)]
struct Triggers(HashMap<String, Trigger>);

impl Triggers {
    /// Whether the object differs in a trigger.
    fn is_news(&mut self, catalog: &ClusterCatalog) -> bool {
        let trigger = Trigger::of(catalog);
        let before = self.0.insert(catalog.name().to_owned(), trigger.clone());
        before != Some(trigger)
    }

    /// Forgets deleted catalogs, and returns their names.
    fn retain(&mut self, there: &HashSet<&str>) -> Vec<String> {
        let gone = self.0.extract_if(|name, _| !there.contains(name.as_str()));
        gone.map(|(name, _)| name).collect()
    }
}

/// Queues a catalog, if a trigger has changed.
fn changed(context: &Context, triggers: &mut Triggers, catalog: &ClusterCatalog) {
    give_up(context, catalog);
    let name = catalog.name().to_owned();
    if triggers.is_news(catalog) {
        context.queue.add(name);
    } else {
        context.queue.add_patiently(name);
    }
}

/// Gives up work for another generation of a catalog.
fn give_up(context: &Context, catalog: &ClusterCatalog) {
    if let Some(running) = context.states.of(catalog.name()).running
        && (running.generation != catalog.generation() || catalog.is_deleting())
    {
        running.stop.cancel();
    }
}

/// Looks at every catalog again when this process begins or ceases to lead.
pub(crate) async fn follow_leadership(context: Arc<Context>) {
    let mut leading = context.leading.clone();
    loop {
        tokio::select! {
            () = context.stop.cancelled() => return,
            changed = leading.changed() => {
                if changed.is_err() {
                    context.stop.cancelled().await;
                    return;
                }
            }
        }
        for catalog in context.catalogs.state() {
            context.queue.add(catalog.name().to_owned());
        }
    }
}

/// Frees space that belongs to no ClusterCatalog: once the catalogs are known, and then at each interval.
pub(crate) async fn collect_garbage(context: Arc<Context>, interval: Duration) {
    loop {
        if context.startup.is_known() {
            let (store, catalogs) = (Arc::clone(&context.store), context.catalogs.clone());
            let all = Arc::clone(&context);
            let known = move |name: &str| {
                all.unreadable.contains::<ClusterCatalog>(name)
                    || catalogs.get(&reflector::ObjectRef::new(name)).is_some()
            };
            if let Ok(removed) = tokio::task::spawn_blocking(move || store.retain(known)).await
                && !removed.is_empty()
            {
                tracing::info!(?removed, "removed the files of deleted catalogs");
            }
        }
        let pause = if context.startup.is_known() {
            interval
        } else {
            Duration::from_secs(1)
        };
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_own_status_triggers_nothing() {
        let mut triggers = Triggers::default();
        let mut catalog: ClusterCatalog = serde_json::from_value(json!({
            "metadata": { "name": "cat", "uid": "one", "generation": 1 },
            "spec": { "source": { "type": "Image", "image": { "ref": "registry.example/catalog:latest" } } },
        }))
        .unwrap();
        let mut check = |change: fn(&mut ClusterCatalog), expected: bool| {
            change(&mut catalog);
            assert_eq!(triggers.is_news(&catalog), expected);
            assert!(!triggers.is_news(&catalog), "it triggers once");
        };
        check(|_| {}, true);
        check(|c| c.metadata.finalizers = Some(vec!["ours".to_owned()]), false);
        check(|c| c.metadata.resource_version = Some("2".to_owned()), false);
        let failed = |c: &mut ClusterCatalog| {
            let condition = json!([{ "type": "Progressing", "status": "True", "reason": "Retrying", "message": "no route",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 }]);
            c.status = serde_json::from_value(json!({ "conditions": condition })).unwrap();
        };
        check(failed, false);
        let resolved = |c: &mut ClusterCatalog| {
            let source = json!({ "type": "Image", "image": { "ref": "registry.example/catalog@sha256:00" } });
            c.status = serde_json::from_value(json!({ "resolvedSource": source })).unwrap();
        };
        check(resolved, true);
        check(|c| c.metadata.generation = Some(2), true);
        check(
            |c| c.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()),
            true,
        );
        check(|c| c.metadata.uid = Some("two".to_owned()), true);
        assert_eq!(triggers.retain(&HashSet::from(["cat"])), [""; 0]);
        assert_eq!(triggers.retain(&HashSet::new()), ["cat"]);
    }
}
