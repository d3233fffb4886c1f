//! What sets the controller going: changes of ClusterCatalogs, leadership, and the clock.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use olm_api::ClusterCatalog;

use super::Context;

/// Follows the ClusterCatalogs until told to stop.
pub(crate) async fn watch(context: Arc<Context>, writer: Writer<ClusterCatalog>) {
    let api = Api::<ClusterCatalog>::all(context.client.clone());
    let events = watcher(api, watcher::Config::default()).map(|event| {
        event.map(|event| match event {
            Event::Apply(catalog) => Event::Apply(trim(catalog)),
            Event::InitApply(catalog) => Event::InitApply(trim(catalog)),
            other => other,
        })
    });
    let events = kube::runtime::WatchStreamExt::default_backoff(events);
    let events = reflector::reflector(writer, events).take_until(context.stop.clone().cancelled_owned());
    let mut events = std::pin::pin!(events);
    let mut is_first = true;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(catalog) | Event::Delete(catalog)) => changed(&context, &catalog),
            Ok(Event::InitDone) => {
                let catalogs = context.catalogs.state();
                if std::mem::take(&mut is_first) {
                    begin(&context, &catalogs);
                }
                // What disappeared while nobody watched leaves no event behind.
                for snapshot in context.store.snapshots() {
                    context.queue.add(snapshot.record().catalog.clone());
                }
                for catalog in &catalogs {
                    changed(&context, catalog);
                }
            }
            Ok(Event::Init | Event::InitApply(_)) => {}
            Err(error) => {
                tracing::warn!(%error, "the watch of ClusterCatalogs was interrupted; it goes on by itself");
            }
        }
    }
}

fn trim(mut catalog: ClusterCatalog) -> ClusterCatalog {
    catalog.metadata.managed_fields = None;
    catalog
}

/// Readiness waits for what is claimed to be served and is not here.
fn begin(context: &Context, catalogs: &[Arc<ClusterCatalog>]) {
    let claimed = |catalog: &&Arc<ClusterCatalog>| {
        catalog
            .status
            .as_ref()
            .is_some_and(|status| status.resolved_source.is_some())
            && context.store.snapshot(catalog.name()).is_none()
    };
    context.starting.begin(
        catalogs
            .iter()
            .filter(claimed)
            .map(|catalog| catalog.name().to_owned()),
    );
}

/// Has a catalog worked on; work for another generation of it is given up.
fn changed(context: &Context, catalog: &ClusterCatalog) {
    if let Some(running) = context.memories.of(catalog.name()).running
        && (running.generation != catalog.generation() || catalog.is_deleting())
    {
        running.stop.cancel();
    }
    context.queue.add(catalog.name().to_owned());
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
        if context.starting.is_known() {
            let (store, catalogs) = (Arc::clone(&context.store), context.catalogs.clone());
            let known = move |name: &str| catalogs.get(&reflector::ObjectRef::new(name)).is_some();
            if let Ok(removed) = tokio::task::spawn_blocking(move || store.retain(known)).await
                && !removed.is_empty()
            {
                tracing::info!(?removed, "freed the space of catalogs that are gone");
            }
        }
        let pause = if context.starting.is_known() {
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
