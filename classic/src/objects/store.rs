//! Follows objects and hands out snapshots of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use olm_classic::cluster::{Cluster, text};
use olm_cluster::watch::number;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::kinds::Kind;

/// A change of a followed object.
#[derive(Debug, Clone)]
pub struct Change {
    /// Its kind.
    pub kind: &'static str,
    /// The object before; nothing when it was not known.
    pub before: Option<Arc<Value>>,
    /// The object now; nothing when it is gone.
    pub now: Option<Arc<Value>>,
}

impl Change {
    /// The newest version of the object.
    pub fn object(&self) -> &Value {
        const NONE: &Value = &Value::Null;
        self.now.as_deref().or(self.before.as_deref()).unwrap_or(NONE)
    }
}

/// The followed objects.
#[derive(Default)]
pub struct Store {
    cluster: RwLock<Cluster>,
    subscribers: Mutex<Vec<UnboundedSender<Change>>>,
    gone: Mutex<Tombstones>,
    /// The number of announced kinds whose objects are not listed yet.
    unlisted: AtomicUsize,
    listed: Notify,
    listed_kinds: Mutex<BTreeSet<&'static str>>,
}

/// Objects that are gone, with the version of their deletion: an answer to a write that comes in after the deletion was
/// seen must not bring them back.
#[derive(Default)]
struct Tombstones(VecDeque<((&'static str, String, String), u64)>);

/// Most deletions that are remembered. An answer to a write may be this many deletions late.
const MAX_GONE: usize = 512;

impl Tombstones {
    fn note(&mut self, kind: &'static str, namespace: &str, name: &str, version: u64) {
        if self.0.len() >= MAX_GONE {
            self.0.pop_front();
        }
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.0.push_back((key, version));
    }

    fn covers(&self, kind: &str, object: &Value) -> bool {
        let (namespace, name) = (
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        let mut newest_first = self.0.iter().rev();
        let found = newest_first.find(|((known, at, of), _)| *known == kind && at == namespace && of == name);
        found.is_some_and(|(_, deleted)| *deleted >= version(object))
    }
}

impl Store {
    /// The followed objects, as of now. It costs little.
    pub fn snapshot(&self) -> Cluster {
        self.cluster.read().clone()
    }

    /// All changes from now on. Objects that are listed already are no change.
    pub fn subscribe(&self) -> UnboundedReceiver<Change> {
        let (sender, receiver) = unbounded_channel();
        self.subscribers.lock().push(sender);
        receiver
    }

    /// Announces kinds that will be followed, so that their lists are waited for.
    pub fn expect(&self, kinds: usize) {
        self.unlisted.fetch_add(kinds, Ordering::AcqRel);
    }

    /// Follows these kinds, which were announced by [`Self::expect`]. Never returns.
    pub async fn follow(&self, client: &Client, kinds: &[Kind]) {
        futures::future::join_all(kinds.iter().map(|kind| self.follow_kind(client, *kind))).await;
    }

    /// Waits until the objects of all announced kinds are listed.
    pub async fn wait_until_listed(&self) {
        loop {
            let listed = self.listed.notified();
            if self.is_listed() {
                return;
            }
            listed.await;
        }
    }

    /// Whether the objects of all announced kinds are listed.
    pub fn is_listed(&self) -> bool {
        self.unlisted.load(Ordering::Acquire) == 0
    }

    /// Whether the objects of a kind are listed.
    pub fn has_listed(&self, kind: &str) -> bool {
        self.listed_kinds.lock().contains(kind)
    }

    /// Takes an object that was just written, so that the next pass does not read an older one.
    pub fn take(&self, kind: &Kind, object: Value) {
        if is_gone(&object) {
            self.forget(
                kind,
                text(&object, "/metadata/namespace"),
                text(&object, "/metadata/name"),
            );
        } else if matches_selector(kind.selector, &object) {
            self.put(kind, object);
        }
    }

    /// Forgets an object that was just deleted.
    pub fn forget(&self, kind: &Kind, namespace: &str, name: &str) {
        let before = self.cluster.write().remove(kind.kind, namespace, name);
        if let Some(before) = before {
            self.gone
                .lock()
                .note(kind.kind, namespace, name, version(&before));
            self.publish(kind.kind, Some(before), None);
        }
    }

    async fn follow_kind(&self, client: &Client, kind: Kind) {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api());
        let mut config = Config::default();
        if !kind.selector.is_empty() {
            config = config.labels(kind.selector);
        }
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let mut is_listed = false;
        let (mut known, mut seen) = (BTreeMap::new(), BTreeSet::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    known = self.versions(&kind);
                    seen.clear();
                }
                Ok(Event::InitApply(object)) => {
                    seen.insert((
                        object.metadata.namespace.clone().unwrap_or_default(),
                        object.metadata.name.clone().unwrap_or_default(),
                    ));
                    self.put_dynamic(&kind, &object);
                }
                Ok(Event::InitDone) => {
                    let unconfirmed = self.forget_unlisted(&kind, &known, &seen);
                    self.look_at(client, &kind, unconfirmed).await;
                    if !is_listed {
                        is_listed = true;
                        self.listed_kinds.lock().insert(kind.kind);
                        self.unlisted.fetch_sub(1, Ordering::AcqRel);
                        self.listed.notify_waiters();
                    }
                }
                Ok(Event::Apply(object)) => self.put_dynamic(&kind, &object),
                Ok(Event::Delete(object)) => {
                    let metadata = object.metadata;
                    self.remove(
                        &kind,
                        &metadata.namespace.unwrap_or_default(),
                        &metadata.name.unwrap_or_default(),
                        metadata.resource_version.as_deref().unwrap_or_default(),
                    );
                }
                Err(error) => tracing::debug!(%error, kind = kind.kind, "a watch is interrupted"),
            }
        }
    }

    fn put_dynamic(&self, kind: &Kind, object: &DynamicObject) {
        match serde_json::to_value(object) {
            Ok(object) => self.put(kind, object),
            Err(error) => tracing::warn!(%error, kind = kind.kind, "cannot read an object"),
        }
    }

    fn put(&self, kind: &Kind, mut object: Value) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.kind.into());
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        (kind.strip)(&mut object);
        let mut cluster = self.cluster.write();
        let known = cluster.get(
            kind.kind,
            text(&object, "/metadata/namespace"),
            text(&object, "/metadata/name"),
        );
        if known.is_some_and(|known| version(known) >= version(&object))
            || known.is_none() && self.gone.lock().covers(kind.kind, &object)
        {
            return;
        }
        let now = Arc::new(object);
        let before = cluster.insert(Arc::clone(&now));
        drop(cluster);
        self.publish(kind.kind, before, Some(now));
    }

    /// Removes an object unless a newer version of it was seen: it may have been made anew.
    fn remove(&self, kind: &Kind, namespace: &str, name: &str, resource_version: &str) {
        let mut cluster = self.cluster.write();
        let deleted = number(resource_version);
        self.gone.lock().note(kind.kind, namespace, name, deleted);
        let known = cluster.get(kind.kind, namespace, name);
        if known.is_none_or(|known| version(known) > deleted) {
            return;
        }
        let before = cluster.remove(kind.kind, namespace, name);
        drop(cluster);
        self.publish(kind.kind, before, None);
    }

    /// The known objects of a kind, with their versions.
    fn versions(&self, kind: &Kind) -> BTreeMap<(String, String), u64> {
        let cluster = self.cluster.read();
        let objects = cluster.of_kind(kind.kind).map(|object| {
            let of = |pointer: &str| text(object, pointer).to_owned();
            ((of("/metadata/namespace"), of("/metadata/name")), version(object))
        });
        objects.collect()
    }

    /// Forgets the objects that a new list lacks. `known` are those from before the list. One that was written since may
    /// be newer than the list, or gone before it: these are returned with their versions.
    fn forget_unlisted(
        &self,
        kind: &Kind,
        known: &BTreeMap<(String, String), u64>,
        seen: &BTreeSet<(String, String)>,
    ) -> Vec<((String, String), u64)> {
        let mut unconfirmed = Vec::new();
        for (key, version) in self.versions(kind) {
            if seen.contains(&key) {
                continue;
            }
            if known.get(&key) == Some(&version) {
                self.remove(kind, &key.0, &key.1, &version.to_string());
            } else {
                unconfirmed.push((key, version));
            }
        }
        unconfirmed
    }

    /// Asks the API server for objects, and forgets those that it does not have.
    async fn look_at(&self, client: &Client, kind: &Kind, objects: Vec<((String, String), u64)>) {
        for ((namespace, name), version) in objects {
            let api: Api<DynamicObject> = if namespace.is_empty() {
                Api::all_with(client.clone(), &kind.api())
            } else {
                Api::namespaced_with(client.clone(), &namespace, &kind.api())
            };
            match api.get_opt(&name).await {
                Ok(Some(object)) => self.put_dynamic(kind, &object),
                Ok(None) => self.remove(kind, &namespace, &name, &version.to_string()),
                // The watch shows it, if it is there.
                Err(error) => {
                    tracing::debug!(%error, kind = kind.kind, namespace, name, "cannot read an object");
                }
            }
        }
    }

    fn publish(&self, kind: &'static str, before: Option<Arc<Value>>, now: Option<Arc<Value>>) {
        let change = Change { kind, before, now };
        self.subscribers
            .lock()
            .retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// Whether an answer shows an object that nothing holds any longer.
fn is_gone(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let seconds = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    !text(object, "/metadata/deletionTimestamp").is_empty()
        && finalizers.is_none_or(Vec::is_empty)
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        && seconds.unwrap_or_default() == 0
}

fn version(object: &Value) -> u64 {
    number(text(object, "/metadata/resourceVersion"))
}

/// Whether an object is in a watch with this selector: empty, `key=value` or `!key`.
fn matches_selector(selector: &str, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    match (selector, selector.strip_prefix('!'), selector.split_once('=')) {
        ("", ..) => true,
        (_, Some(key), _) => label(key).is_none(),
        (_, None, Some((key, value))) => label(key) == Some(value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds;
    use super::*;

    fn secret(version: u64, labels: &Value) -> Value {
        json!({"metadata": {
            "namespace": "n", "name": "s", "resourceVersion": version.to_string(), "labels": labels, "managedFields": [],
        }})
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let store = Store::default();
        let mut changes = store.subscribe();
        let managed = json!({"olm.managed": "true"});
        store.take(&kinds::SECRET, secret(7, &managed));
        store.put(&kinds::SECRET, secret(6, &managed));
        store.remove(&kinds::SECRET, "n", "s", "6");
        let snapshot = store.snapshot();
        let kept = snapshot.get("Secret", "n", "s").unwrap();
        assert_eq!(kept["metadata"]["resourceVersion"], "7");
        assert_eq!(kept["metadata"].get("managedFields"), None);
        assert_eq!(kept["apiVersion"], "v1");
        store.remove(&kinds::SECRET, "n", "s", "8");
        assert!(store.snapshot().get("Secret", "n", "s").is_none());
        assert!(changes.try_recv().unwrap().before.is_none());
        assert!(changes.try_recv().unwrap().now.is_none());
        assert!(changes.try_recv().is_err());
    }

    #[test]
    fn a_late_answer_does_not_bring_an_object_back() {
        let store = Store::default();
        let managed = json!({"olm.managed": "true"});
        store.take(&kinds::SECRET, secret(3, &managed));
        store.remove(&kinds::SECRET, "n", "s", "5");
        store.take(&kinds::SECRET, secret(4, &managed));
        assert_eq!(store.snapshot().of_kind("Secret").count(), 0);
        store.take(&kinds::SECRET, secret(6, &managed));
        assert_eq!(store.snapshot().of_kind("Secret").count(), 1);
        let mut last = secret(7, &managed);
        last["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        store.take(&kinds::SECRET, last);
        assert_eq!(store.snapshot().of_kind("Secret").count(), 0);
    }

    #[test]
    fn a_written_object_outside_the_watch_is_not_kept() {
        let store = Store::default();
        store.take(&kinds::SECRET, secret(1, &json!({})));
        assert_eq!(store.snapshot().of_kind("Secret").count(), 0);
        assert!(matches_selector("!olm.copiedFrom", &json!({})));
        let copy = json!({"metadata": {"labels": {"olm.copiedFrom": "n"}}});
        assert!(!matches_selector("!olm.copiedFrom", &copy));
    }

    #[test]
    fn objects_that_a_new_list_lacks_are_gone_unless_they_may_be_newer() {
        let (store, managed) = (Store::default(), json!({"olm.managed": "true"}));
        let named = |name: &str, version: u64| {
            let mut object = secret(version, &managed);
            object["metadata"]["name"] = name.into();
            object
        };
        for name in ["gone", "listed", "rewritten"] {
            store.take(&kinds::SECRET, named(name, 1));
        }
        let known = store.versions(&kinds::SECRET);
        // Written after the list was made.
        store.take(&kinds::SECRET, named("created", 5));
        store.take(&kinds::SECRET, named("rewritten", 6));
        let listed = BTreeSet::from([("n".to_owned(), "listed".to_owned())]);
        let unconfirmed = store.forget_unlisted(&kinds::SECRET, &known, &listed);
        let unconfirmed: Vec<(&str, u64)> = unconfirmed
            .iter()
            .map(|((_, name), version)| (name.as_str(), *version))
            .collect();
        assert_eq!(unconfirmed, [("created", 5), ("rewritten", 6)]);
        let snapshot = store.snapshot();
        let kept: Vec<&str> = snapshot
            .of_kind("Secret")
            .map(|object| text(object, "/metadata/name"))
            .collect();
        assert_eq!(kept, ["created", "listed", "rewritten"]);
    }
}
