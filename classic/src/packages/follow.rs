//! Follows CatalogSources, and asks the registry of each when it may have something new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use olm_classic::cluster::{Cluster, label, text};
use olm_classic::names;
use olm_platform::queue::{Outcome, Queue};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::index::PackageIndex;
use super::load::{Connect, load};
use crate::objects::kinds;
use crate::objects::store::Store;
use crate::registry::client::ClientError;
use crate::registry::{Key, endpoint};

/// Time limit for a registry to list its packages.
const PATIENCE: Duration = Duration::from_mins(5);
/// States of a connection in which a catalog has no packages.
const BROKEN: &[&str] = &["TRANSIENT_FAILURE", "SHUTDOWN"];

/// State of the last load.
#[derive(Debug)]
struct LoadState {
    /// The fields of the CatalogSource that it depends on.
    of: Value,
    at: Instant,
}

/// Follows CatalogSources.
pub(super) struct Follower<C> {
    store: Arc<Store>,
    connect: C,
    index: Arc<PackageIndex>,
    /// The time that packages count as fresh although the CatalogSource does not change.
    interval: Duration,
    queue: Queue<Key>,
    loaded: Mutex<BTreeMap<Key, LoadState>>,
    tried: Mutex<BTreeSet<Key>>,
    progress: Notify,
}

impl<C: Connect> Follower<C> {
    /// Puts the packages of the CatalogSources in `store` in the index.
    pub(super) fn new(store: Arc<Store>, connect: C, index: Arc<PackageIndex>, interval: Duration) -> Self {
        Self {
            store,
            connect,
            index,
            interval,
            queue: Queue::default(),
            loaded: Mutex::default(),
            tried: Mutex::default(),
            progress: Notify::new(),
        }
    }

    /// The work to do, by namespace and name of the CatalogSource.
    pub(super) fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    /// Works until `stop` is cancelled.
    pub(super) async fn run(&self, concurrency: usize, stop: CancellationToken) {
        let mut changes = self.store.subscribe();
        self.add_all();
        let listen = async {
            while let Some(change) = changes.recv().await {
                let object = change.object();
                if change.kind == kinds::CATALOG_SOURCE.kind {
                    self.queue.add(key(object));
                } else if change.kind == kinds::ENDPOINT_SLICE.kind {
                    let source = label(object, names::CATALOG_SOURCE_LABEL);
                    let namespace = text(object, "/metadata/namespace");
                    self.queue.add((namespace.to_owned(), source.to_owned()));
                } else if change.kind == kinds::OLM_CONFIG.kind {
                    self.add_all();
                }
            }
        };
        tokio::select! {
            () = self.queue.run(concurrency, stop, |key| self.pass(key)) => {}
            () = listen => {}
        }
    }

    fn add_all(&self) {
        let cluster = self.store.snapshot();
        for source in cluster.of_kind(names::CATALOG_SOURCE_KIND) {
            self.queue.add(key(source));
        }
    }

    /// Waits until every CatalogSource that is known was asked once, whatever it said.
    pub(super) async fn wait_until_tried(&self) {
        loop {
            let progress = self.progress.notified();
            let is_tried = {
                let (cluster, tried) = (self.store.snapshot(), self.tried.lock());
                let mut sources = cluster.of_kind(names::CATALOG_SOURCE_KIND);
                sources.all(|source| tried.contains(&key(source)))
            };
            if is_tried {
                return;
            }
            progress.await;
        }
    }

    async fn pass(&self, key: Key) -> Outcome {
        let outcome = self.reload(&key).await;
        let cluster = self.store.snapshot();
        let is_there = cluster.get(names::CATALOG_SOURCE_KIND, &key.0, &key.1).is_some();
        let mut tried = self.tried.lock();
        if is_there {
            tried.insert(key);
        } else {
            tried.remove(&key);
        }
        drop(tried);
        self.progress.notify_waiters();
        outcome
    }

    async fn reload(&self, key: &Key) -> Outcome {
        let (namespace, name) = (key.0.as_str(), key.1.as_str());
        let cluster = self.store.snapshot();
        let source = cluster.get(names::CATALOG_SOURCE_KIND, namespace, name);
        let source = source.filter(|source| !is_broken(source));
        let found = source.and_then(|source| Some((source, endpoint::find(&cluster, source)?)));
        let Some((source, address)) = found else {
            self.loaded.lock().remove(key);
            self.index.remove(namespace, name);
            return Outcome::Done;
        };
        let of = relevant(source, &address, endpoint::content(&cluster, source));
        let interval = interval(&cluster, self.interval);
        if let Some(left) = self.left(key, &of, interval) {
            return Outcome::After(left);
        }
        match timeout(PATIENCE, self.ask(source, &address)).await {
            Ok(Ok(count)) => {
                tracing::info!(namespace, name, count, "listed the packages of a catalog");
                let at = Instant::now();
                self.loaded.lock().insert(key.clone(), LoadState { of, at });
                Outcome::After(interval)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, namespace, name, "cannot list the packages of a catalog; retrying");
                Outcome::Failed
            }
            Err(_) => {
                tracing::warn!(
                    namespace,
                    name,
                    "a registry takes too long to list its packages; retrying"
                );
                Outcome::Failed
            }
        }
    }

    /// Time that loaded packages stay fresh; `None` where they are not.
    fn left(&self, key: &Key, of: &Value, interval: Duration) -> Option<Duration> {
        let loaded = self.loaded.lock();
        let loaded = loaded.get(key).filter(|loaded| loaded.of == *of)?;
        interval
            .checked_sub(loaded.at.elapsed())
            .filter(|left| !left.is_zero())
    }

    async fn ask(&self, source: &Value, address: &str) -> Result<usize, ClientError> {
        let registry = self.connect.connect(address).await?;
        let items = load(source, &registry).await?;
        let count = items.len();
        self.index.put(source, items);
        Ok(count)
    }
}

fn key(source: &Value) -> Key {
    (
        text(source, "/metadata/namespace").to_owned(),
        text(source, "/metadata/name").to_owned(),
    )
}

/// Whether the catalog cannot be reached, as far as its status says.
fn is_broken(source: &Value) -> bool {
    BROKEN.contains(&text(source, "/status/connectionState/lastObservedState"))
}

/// Facts of a CatalogSource that change its packages: what they show of it, and the name of its content. Where that is
/// not known, the address of its registry, and the signs that the registry may serve new content.
fn relevant(source: &Value, address: &str, content: Option<&str>) -> Value {
    let shown = [
        source.pointer("/metadata/uid"),
        source.pointer("/metadata/labels"),
        source.pointer("/spec"),
    ];
    if let Some(content) = content {
        return json!([shown, content]);
    }
    json!([
        shown,
        address,
        source.pointer("/status/connectionState"),
        source.pointer("/status/latestImageRegistryPoll"),
        source.pointer("/status/registryService"),
        source.pointer("/status/configMapReference"),
    ])
}

/// Time that packages count as fresh: from the OLMConfig, else the default.
fn interval(cluster: &Cluster, default: Duration) -> Duration {
    let config = cluster.get(kinds::OLM_CONFIG.kind, "", "cluster");
    let given = config.map(|config| text(config, "/spec/features/packageServerSyncInterval"));
    given.and_then(duration).unwrap_or(default)
}

/// A positive duration in the grammar of Go; nothing for another text.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(olm_text::duration::parse(text).ok()?).ok()?;
    Some(Duration::from_nanos(nanoseconds)).filter(|parsed| !parsed.is_zero())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use olm_classic::registry::{BundleMessage, ChannelMessage, PackageMessage};

    use super::super::load::Registry;
    use super::super::scope::Scope;
    use super::*;

    /// Registries by the address of their CatalogSource: packages, each with a channel; none is out of order.
    #[derive(Clone)]
    struct Registries {
        packages: Arc<Mutex<BTreeMap<String, Vec<&'static str>>>>,
        asked: Arc<AtomicUsize>,
    }

    struct Double(Vec<&'static str>);

    impl Connect for Registries {
        type Registry = Double;

        async fn connect(&self, address: &str) -> Result<Double, ClientError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let packages = self.packages.lock();
            let found = packages.get(address).cloned();
            found.map(Double).ok_or_else(|| ClientError::Connect {
                address: address.to_owned(),
                message: "nobody listens".to_owned(),
            })
        }
    }

    impl Registry for Double {
        async fn packages(&self) -> Result<Vec<String>, ClientError> {
            Ok(self.0.iter().map(|name| (*name).to_owned()).collect())
        }

        async fn package(&self, name: &str) -> Result<PackageMessage, ClientError> {
            let channels = ["broken", "stable"].map(|channel| ChannelMessage {
                name: channel.to_owned(),
                csv_name: format!("{name}.v1"),
                deprecation: None,
            });
            Ok(PackageMessage {
                name: name.to_owned(),
                channels: channels.into(),
                ..PackageMessage::default()
            })
        }

        async fn head(&self, package: &str, channel: &str) -> Result<BundleMessage, ClientError> {
            if channel == "broken" || package == "headless" {
                return Err(ClientError::Call {
                    code: tonic::Code::Unknown,
                    message: "no head".to_owned(),
                });
            }
            Ok(BundleMessage {
                csv_json: r#"{"metadata":{},"spec":{"provider":{"name":"p"}}}"#.to_owned(),
                ..BundleMessage::default()
            })
        }

        async fn bundles(
            &self,
            mut each: impl FnMut(BundleMessage) -> Result<(), ClientError> + Send,
        ) -> Result<(), ClientError> {
            for name in &self.0 {
                each(BundleMessage {
                    package_name: (*name).to_owned(),
                    channel_name: "stable".to_owned(),
                    csv_name: format!("{name}.v1"),
                    version: "1.0.0".to_owned(),
                    ..BundleMessage::default()
                })?;
            }
            Ok(())
        }
    }

    struct World {
        follower: Arc<Follower<Registries>>,
        registries: Registries,
        versions: u64,
    }

    impl World {
        fn new(packages: &[(&str, &[&'static str])]) -> Self {
            let packages = packages
                .iter()
                .map(|(address, packages)| ((*address).to_owned(), packages.to_vec()));
            let registries = Registries {
                packages: Arc::new(Mutex::new(packages.collect())),
                asked: Arc::default(),
            };
            let follower = Follower::new(
                Arc::default(),
                registries.clone(),
                Arc::new(PackageIndex::new(1)),
                Duration::from_hours(12),
            );
            Self {
                follower: Arc::new(follower),
                registries,
                versions: 0,
            }
        }

        fn source(&mut self, name: &str, state: &str) {
            self.versions += 1;
            let source = json!({
                "metadata": {"namespace": "olm", "name": name, "resourceVersion": self.versions.to_string()},
                "spec": {"sourceType": "grpc", "address": name}, "status": {"connectionState": {"lastObservedState": state}},
            });
            self.follower.store.take(&kinds::CATALOG_SOURCE, source);
        }

        /// Serves content of a CatalogSource `c` with an image, which was polled at a time.
        fn serve(&mut self, port: u16, content: &str, polled: &str) {
            self.versions += 1;
            let version = self.versions.to_string();
            let source = json!({
                "metadata": {"namespace": "olm", "name": "c", "resourceVersion": version},
                "spec": {"sourceType": "grpc", "image": "i"},
                "status": {
                    "connectionState": {"lastObservedState": "READY", "lastConnect": polled},
                    "latestImageRegistryPoll": polled,
                },
            });
            let labels = json!({
                names::SERVICE_NAME_LABEL: "c", names::SLICE_MANAGER_LABEL: names::SLICE_MANAGER,
                names::MANAGED_LABEL: "true",
            });
            let slice = json!({
                "metadata": {
                    "namespace": "olm", "name": "c", "resourceVersion": version, "labels": labels,
                    "annotations": {names::CATALOG_CONTENT_ANNOTATION: content},
                },
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
                "ports": [{"name": "grpc", "port": port}],
            });
            self.follower.store.take(&kinds::CATALOG_SOURCE, source);
            self.follower.store.take(&kinds::ENDPOINT_SLICE, slice);
        }

        async fn pass(&self, name: &str) -> Outcome {
            self.follower.pass(("olm".to_owned(), name.to_owned())).await
        }

        fn names(&self) -> Vec<String> {
            let seen = self.follower.index.now().seen(&Scope::default());
            seen.iter().map(|item| item.name.to_string()).collect()
        }

        fn asked(&self) -> usize {
            self.registries.asked.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_catalog_is_asked_when_its_status_changes_and_after_the_interval() {
        let mut world = World::new(&[("c", &["a", "headless", "b"])]);
        world.source("c", "READY");
        let fresh = Outcome::After(Duration::from_hours(12));
        assert_eq!(world.pass("c").await, fresh);
        assert_eq!(world.names(), ["a", "b"]);
        let before = world.follower.index.now().version;
        assert!(matches!(world.pass("c").await, Outcome::After(_)));
        assert_eq!(world.asked(), 1, "nothing has changed");
        world.source("c", "IDLE");
        assert_eq!(world.pass("c").await, fresh);
        assert_eq!((world.asked(), world.follower.index.now().version), (2, before));
        tokio::time::sleep(Duration::from_hours(13)).await;
        assert_eq!(world.pass("c").await, fresh);
        assert_eq!(world.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_catalog_with_named_content_is_asked_when_that_changes_and_at_no_poll() {
        let mut world = World::new(&[("10.0.0.1:1", &["a"]), ("10.0.0.1:2", &["b"])]);
        world.serve(1, "first", "1");
        world.pass("c").await;
        assert_eq!((world.names(), world.asked()), (vec!["a".to_owned()], 1));
        // A poll, and a restart of catalog-operator: the content is the same.
        for (port, polled) in [(1, "2"), (2, "3")] {
            world.serve(port, "first", polled);
            world.pass("c").await;
            assert_eq!(world.asked(), 1);
        }
        world.serve(2, "second", "3");
        world.pass("c").await;
        assert_eq!((world.names(), world.asked()), (vec!["b".to_owned()], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_catalog_has_no_packages_and_disturbs_no_other() {
        let mut world = World::new(&[("c", &["a"])]);
        world.source("c", "READY");
        world.source("lost", "");
        assert_eq!(world.pass("lost").await, Outcome::Failed);
        world.pass("c").await;
        assert_eq!(world.names(), ["a"]);
        // Its registry does not answer for a moment, and then its status says so.
        let packages = world.registries.packages.lock().remove("c").unwrap();
        world.source("c", "CONNECTING");
        assert_eq!(world.pass("c").await, Outcome::Failed);
        assert_eq!(world.names(), ["a"]);
        world.source("c", "TRANSIENT_FAILURE");
        assert_eq!(world.pass("c").await, Outcome::Done);
        assert!(world.names().is_empty());
        world.registries.packages.lock().insert("c".to_owned(), packages);
        world.source("c", "READY");
        world.pass("c").await;
        assert_eq!(world.names(), ["a"]);
        world.follower.store.forget(&kinds::CATALOG_SOURCE, "olm", "c");
        assert_eq!(world.pass("c").await, Outcome::Done);
        assert!(world.names().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn every_catalog_was_tried_once_also_those_that_fail() {
        let mut world = World::new(&[("c", &["a"])]);
        world.follower.wait_until_tried().await;
        world.source("c", "READY");
        world.source("lost", "");
        let (stop, follower) = (CancellationToken::new(), Arc::clone(&world.follower));
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { follower.run(2, stop).await }
        });
        world.follower.wait_until_tried().await;
        assert_eq!(world.names(), ["a"]);
        stop.cancel();
        running.await.unwrap();
    }

    #[test]
    fn the_configuration_says_how_long_packages_are_fresh() {
        let config = |text: &str| {
            [json!({
                "kind": "OLMConfig", "metadata": {"name": "cluster"},
                "spec": {"features": {"packageServerSyncInterval": text}},
            })]
            .into_iter()
            .collect()
        };
        let default = Duration::from_hours(12);
        assert_eq!(interval(&config("1h30m"), default), Duration::from_mins(90));
        assert_eq!(interval(&config("0s"), default), default);
        assert_eq!(interval(&Cluster::default(), default), default);
    }
}
