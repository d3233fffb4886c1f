//! The CatalogSource controller, and its catalogs.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use olm_classic::catalog_source::Source;
use olm_classic::cluster::{items, label, text};
use olm_classic::names;
use olm_classic::registry::BundleMessage;
use olm_classic::resolve::{self, CatalogContent};
use olm_image::Images;
use olm_platform::log::chain;
use olm_platform::queue::on_its_own;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::Key;
use super::controller::{Content, Context, pass};
use super::hub;
use super::policies::Policies;
use super::pull::Contents;
use crate::args::CatalogArgs;
use crate::base::Base;
use crate::objects::kinds::{self, Kind};
use crate::objects::store::Change;

/// The kinds that the controller reads. Its caller follows them.
pub const KINDS: &[Kind] = &[
    kinds::CATALOG_SOURCE,
    kinds::SERVICE,
    kinds::ENDPOINT_SLICE,
    kinds::POD,
];

/// Sources worked on at once: most of them only wait for a registry.
const AT_ONCE: usize = 64;
/// Time that the listing of a catalog is kept after the last resolution.
const LISTING_TIME: Duration = Duration::from_mins(2);
/// The time between two removals of content that no source uses, and from the start to the first.
const SWEEP_TIME: Duration = Duration::from_mins(30);

/// The catalogs that a namespace sees.
#[derive(Debug, Clone, Default)]
pub struct VisibleCatalogs {
    /// Their content. The bundles carry neither manifests nor `olm.csv.metadata`.
    pub contents: Arc<Vec<CatalogContent>>,
    /// Number of catalogs whose content is not known yet, and with which nothing is known to be wrong.
    pub coming: usize,
}

impl VisibleCatalogs {
    fn missing(&self) -> usize {
        self.contents
            .iter()
            .filter(|catalog| catalog.content.is_err())
            .count()
    }

    /// Whether catalogs are missing, and all of these are on their way. Their arrival or failure is announced.
    pub fn are_coming(&self) -> bool {
        self.coming > 0 && self.missing() == self.coming
    }

    /// Whether a catalog cannot be read. Nothing announces that it can be read again.
    pub fn has_fault(&self) -> bool {
        self.missing() > self.coming
    }
}

/// The CatalogSource controller, and its catalogs.
pub struct Sources {
    context: Arc<Context>,
}

impl Sources {
    /// Nothing is opened yet.
    pub fn new(base: Arc<Base>, args: &CatalogArgs, policies: Arc<Policies>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::new(Context::new(base, args, policies)),
        })
    }

    /// Works on CatalogSources until the process ends. Their kinds, [`KINDS`], are followed already.
    pub async fn run(self: Arc<Self>) {
        let (client, args, stop) = (
            self.context.writer().own().clone(),
            self.context.args.clone(),
            self.context.base.shutdown.token(),
        );
        let token = stop.clone();
        let opening = tokio::task::spawn_blocking(move || Contents::open(client, &args, token)).await;
        match opening {
            Ok(Ok(contents)) => {
                self.context.open(Arc::new(contents));
            }
            Ok(Err(error)) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "cannot open the cache directory: set `--cache-dir` to a directory that can be written"
                );
                self.context.base.shutdown.stop();
                return;
            }
            Err(_) => return,
        }
        let changes = self.context.base.store.subscribe();
        self.wake();
        let queue = self.context.queue.clone();
        let work = |key: Key| {
            let context = Arc::clone(&self.context);
            on_its_own(async move { pass(&context, &key).await })
        };
        tokio::select! {
            () = queue.run(AT_ONCE, stop, work) => {}
            () = self.follow(changes) => {}
            () = self.tidy() => {}
            () = hub::run(&self.context) => {}
        }
    }

    /// The client for images of catalogs, once the cache directory is open.
    pub fn images(&self) -> Option<Images> {
        self.context.contents().map(|contents| contents.images().clone())
    }

    /// Has all CatalogSources worked on.
    pub fn wake(&self) {
        let cluster = self.context.base.store.snapshot();
        for source in cluster.of_kind(names::CATALOG_SOURCE_KIND) {
            self.context.queue.add(key(source));
        }
    }

    /// The catalogs that Subscriptions of the namespace see: those of the namespace and of the global namespace.
    pub async fn catalogs(&self, namespace: &str, global: &str) -> VisibleCatalogs {
        let cluster = self.context.base.store.snapshot();
        let mut visible: Vec<&Value> = cluster
            .in_namespace(names::CATALOG_SOURCE_KIND, namespace)
            .collect();
        if global != namespace {
            visible.extend(cluster.in_namespace(names::CATALOG_SOURCE_KIND, global));
        }
        visible.retain(|object| {
            let source = Source {
                object,
                cluster: &cluster,
            };
            source.source_kind().is_ok() && text(object, "/metadata/deletionTimestamp").is_empty()
        });
        // Boxed: the compiler does not see that the joined future may move between threads.
        let reading = visible.into_iter().map(|source| self.catalog(source).boxed());
        let read = futures::future::join_all(reading).await;
        VisibleCatalogs {
            coming: read.iter().filter(|(_, is_coming)| *is_coming).count(),
            contents: Arc::new(read.into_iter().map(|(catalog, _)| catalog).collect()),
        }
    }

    /// The whole bundle message, with the manifests where the catalog has them inline.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn bundle(
        &self,
        namespace: &str,
        source: &str,
        package: &str,
        channel: &str,
        csv: &str,
    ) -> Result<BundleMessage, String> {
        let content = self.context.content(&(namespace.to_owned(), source.to_owned()));
        match content.map_err(|none| none.message)? {
            Content::Remote(remote) => remote.bundle(package, channel, csv).await,
            Content::Stored(content) => {
                let [package, channel, csv] = [package, channel, csv].map(str::to_owned);
                let asking = move || content.get_bundle(&package, &channel, &csv);
                let answer = tokio::task::spawn_blocking(asking).await;
                let answer = answer.map_err(|_| "the program stops".to_owned())?;
                answer.map_err(|error| chain(&error))
            }
        }
    }

    /// Sources, by namespace and name, whose content or connection changed.
    pub fn subscribe(&self) -> UnboundedReceiver<Key> {
        self.context.subscribe()
    }

    /// A catalog, and whether its content is on its way.
    async fn catalog(&self, source: &Value) -> (CatalogContent, bool) {
        let key = key(source);
        let priority = source.pointer("/spec/priority").and_then(Value::as_i64);
        let (content, is_coming) = match self.context.content(&key) {
            Ok(content) => {
                let listing = listing(content).await;
                if let Ok(listing) = &listing {
                    self.context.metrics.snapshot(&key, listing);
                }
                let listing = listing.map_err(|error| format!("failed to list bundles: {error}"));
                (listing, false)
            }
            Err(none) => (Err(none.message), none.is_coming),
        };
        let catalog = CatalogContent {
            name: key.1,
            namespace: key.0,
            priority: priority.unwrap_or_default(),
            content,
        };
        (catalog, is_coming)
    }

    /// Wakes sources when they, or the objects that lead to them, change.
    async fn follow(&self, mut changes: UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            let object = change.object();
            if change.kind == names::CATALOG_SOURCE_KIND {
                if is_own_news(&change) {
                    self.context.queue.add_patiently(key(object));
                } else {
                    self.context.queue.add(key(object));
                }
                continue;
            }
            let owners = items(object, "/metadata/ownerReferences")
                .filter(|owner| text(owner, "/kind") == names::CATALOG_SOURCE_KIND);
            for owner in owners {
                let namespace = text(object, "/metadata/namespace").to_owned();
                self.context
                    .queue
                    .add_patiently((namespace, text(owner, "/name").to_owned()));
            }
            self.wake_of_service(object);
        }
    }

    /// Wakes the sources whose Service an EndpointSlice is of: slices of Pods belong to the Service.
    fn wake_of_service(&self, slice: &Value) {
        let service = label(slice, names::SERVICE_NAME_LABEL);
        if service.is_empty() {
            return;
        }
        let cluster = self.context.base.store.snapshot();
        let namespace = text(slice, "/metadata/namespace");
        for object in cluster.in_namespace(names::CATALOG_SOURCE_KIND, namespace) {
            let source = Source {
                object,
                cluster: &cluster,
            };
            if source.service_name() == service {
                self.context.queue.add_patiently(key(object));
            }
        }
    }

    /// Frees resources that are no longer used.
    async fn tidy(&self) {
        let mut swept = Instant::now();
        loop {
            tokio::time::sleep(LISTING_TIME / 2).await;
            let now = Instant::now();
            for content in self.context.sources.contents() {
                match content {
                    Content::Remote(remote) => remote.forget_listing(now),
                    Content::Stored(content) => {
                        if let Some(since) = now.checked_sub(LISTING_TIME) {
                            content.forget_listing(since);
                        }
                    }
                }
            }
            if let Some(contents) = self
                .context
                .contents()
                .filter(|_| now.duration_since(swept) > SWEEP_TIME)
            {
                contents.sweep().await;
                swept = now;
            }
        }
    }
}

/// Content for a resolution.
async fn listing(content: Content) -> Result<Arc<resolve::EntryIndex>, String> {
    match content {
        Content::Remote(remote) => remote.listing().await,
        Content::Stored(content) => {
            let reading = tokio::task::spawn_blocking(move || content.listing()).await;
            let listing = reading.map_err(|_| "the program stops".to_owned())?;
            listing.map_err(|error| chain(&error))
        }
    }
}

/// Whether a change of a source is only the write of a pass: its status.
fn is_own_news(change: &Change) -> bool {
    let (Some(before), Some(now)) = (&change.before, &change.now) else {
        return false;
    };
    let same = |pointer: &str| before.pointer(pointer) == now.pointer(pointer);
    same("/spec")
        && same("/metadata/annotations")
        && same("/metadata/uid")
        && same("/metadata/deletionTimestamp")
}

fn key(source: &Value) -> Key {
    let part = |pointer: &str| text(source, pointer).to_owned();
    (part("/metadata/namespace"), part("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pass_does_not_wake_itself() {
        let object = |image: &str, state: &str| {
            Arc::new(json!({
                "metadata": {"name": "c", "uid": "u"}, "spec": {"image": image}, "status": {"reason": state},
            }))
        };
        let change = |before: &Arc<Value>, now: &Arc<Value>| Change {
            kind: names::CATALOG_SOURCE_KIND,
            before: Some(Arc::clone(before)),
            now: Some(Arc::clone(now)),
        };
        let (old, reported, edited) = (object("a", ""), object("a", "x"), object("b", ""));
        assert!(is_own_news(&change(&old, &reported)));
        assert!(!is_own_news(&change(&old, &edited)));
        assert_eq!(key(&old), (String::new(), "c".to_owned()));
    }
}
