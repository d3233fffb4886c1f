//! What sets the controller going: changes of ClusterCatalogs, leadership, and the clock.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use olm_api::ClusterCatalog;

use super::{Context, Unreadable};

/// Follows the ClusterCatalogs until told to stop. One that cannot be read stands in nobody's way, and what is served of
/// it stays.
pub(crate) async fn watch(context: Arc<Context>, writer: Writer<ClusterCatalog>) {
    let api = Api::<DeserializeGuard<ClusterCatalog>>::all(context.client.clone());
    let sorter = Arc::clone(&context);
    let events = watcher(api, watcher::Config::default()).filter_map(move |event| {
        let event = event.map(|event| readable(&sorter.unreadable, event)).transpose();
        std::future::ready(event)
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

/// The event, unless its object cannot be read.
fn readable(
    unreadable: &Unreadable,
    event: Event<DeserializeGuard<ClusterCatalog>>,
) -> Option<Event<ClusterCatalog>> {
    let sort = |guard: DeserializeGuard<ClusterCatalog>| match guard.0 {
        Ok(mut catalog) => {
            catalog.metadata.managed_fields = None;
            unreadable.remove(catalog.name());
            Some(catalog)
        }
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::error!(
                catalog = name,
                error = invalid.error,
                "a ClusterCatalog cannot be read; it stays as it is"
            );
            unreadable.add(name);
            None
        }
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(sort(guard)?),
        Event::InitApply(guard) => Event::InitApply(sort(guard)?),
        Event::Delete(DeserializeGuard(found)) => {
            // What is gone need not be read.
            let catalog = found.unwrap_or_else(|invalid| ClusterCatalog {
                metadata: invalid.metadata,
                ..ClusterCatalog::default()
            });
            unreadable.remove(catalog.name());
            Event::Delete(catalog)
        }
        Event::Init => {
            unreadable.begin();
            Event::Init
        }
        Event::InitDone => {
            unreadable.end();
            Event::InitDone
        }
    })
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
            let all = Arc::clone(&context);
            let known = move |name: &str| {
                all.unreadable.contains(name) || catalogs.get(&reflector::ObjectRef::new(name)).is_some()
            };
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guard(name: &str, source_type: &str) -> DeserializeGuard<ClusterCatalog> {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterCatalog",
            "metadata": { "name": name },
            "spec": { "source": { "type": source_type, "image": { "ref": "registry.example/catalog:latest" } } },
        }))
        .unwrap()
    }

    #[test]
    fn one_unreadable_catalog_stands_in_nobodys_way() {
        let unreadable = Unreadable::default();
        let check = |event, expected: Option<&str>| {
            let seen = readable(&unreadable, event);
            let name = seen.as_ref().map(|event| match event {
                Event::Apply(c) | Event::InitApply(c) | Event::Delete(c) => c.name(),
                Event::Init => "(init)",
                Event::InitDone => "(done)",
            });
            assert_eq!(name, expected);
        };
        check(Event::Init, Some("(init)"));
        check(Event::InitApply(guard("good", "Image")), Some("good"));
        check(Event::InitApply(guard("bad", "Tape")), None);
        check(Event::InitDone, Some("(done)"));
        assert!(unreadable.contains("bad") && !unreadable.contains("good"));
        check(Event::Apply(guard("good", "Tape")), None);
        assert!(unreadable.contains("good"), "what is served of it stays");
        check(Event::Apply(guard("good", "Image")), Some("good"));
        check(Event::Init, Some("(init)"));
        assert!(unreadable.contains("bad"), "a list that comes in forgets nothing");
        check(Event::InitApply(guard("bad", "Tape")), None);
        check(Event::InitDone, Some("(done)"));
        check(Event::Delete(guard("bad", "Tape")), Some("bad"));
        assert!(!unreadable.contains("good") && !unreadable.contains("bad"));
    }
}
