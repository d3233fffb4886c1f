//! Namespaces, versions and hashes of the copies of ClusterServiceVersions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use olm_classic::cluster::text;
use olm_classic::names;
use olm_classic::operator_group::copies::{Copy, hashes};
use olm_cluster::watch::number;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::work::Name;
use crate::objects::kinds;

/// A copy as it was last read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRecord {
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The hashes of its content and its status; nothing when it has changed since they were computed.
    hashes: Option<[String; 2]>,
}

impl CopyRecord {
    /// Whether it is as it should be.
    pub fn holds(&self, copy: &Copy) -> bool {
        let Some([content, status]) = &self.hashes else {
            return false;
        };
        *content == copy.content_hash && *status == copy.status_hash
    }

    /// Whether its content is as it should be, whatever its status is.
    pub fn has_content(&self, copy: &Copy) -> bool {
        self.hashes
            .as_ref()
            .is_some_and(|[content, _]| *content == copy.content_hash)
    }
}

/// The copies of each original, by the namespace of the copy.
#[derive(Debug, Default)]
pub struct CopyIndex {
    copies: Mutex<BTreeMap<Name, BTreeMap<String, CopyRecord>>>,
    listed: Notify,
    is_listed: std::sync::atomic::AtomicBool,
}

impl CopyIndex {
    /// The copies of an original.
    pub fn of(&self, original: &Name) -> BTreeMap<String, CopyRecord> {
        self.copies.lock().get(original).cloned().unwrap_or_default()
    }

    /// The originals that have copies.
    pub fn originals(&self) -> Vec<Name> {
        self.copies.lock().keys().cloned().collect()
    }

    /// Number of copies of an original.
    pub fn count(&self, original: &Name) -> usize {
        self.copies.lock().get(original).map_or(0, BTreeMap::len)
    }

    /// The UIDs of the copies of an original, by namespace.
    pub fn uids(&self, original: &Name) -> BTreeMap<String, String> {
        let copies = self.copies.lock();
        let copies = copies.get(original).into_iter().flatten();
        copies
            .map(|(namespace, record)| (namespace.clone(), record.uid.clone()))
            .collect()
    }

    /// Records a copy as it was just read or written.
    pub fn record(&self, original: &Name, namespace: &str, live: &Value) {
        let record = CopyRecord {
            uid: text(live, "/metadata/uid").to_owned(),
            resource_version: text(live, "/metadata/resourceVersion").to_owned(),
            hashes: Some(hashes(live)),
        };
        self.put(original, namespace, record);
    }

    /// Forgets a copy that was just deleted.
    pub fn forget(&self, original: &Name, namespace: &str) {
        let mut copies = self.copies.lock();
        if let Some(known) = copies.get_mut(original) {
            known.remove(namespace);
            if known.is_empty() {
                copies.remove(original);
            }
        }
    }

    /// Whether the copy was not known in this version.
    fn put(&self, original: &Name, namespace: &str, record: CopyRecord) -> bool {
        let mut copies = self.copies.lock();
        let known = copies.entry(original.clone()).or_default();
        let version = |record: &CopyRecord| number(&record.resource_version);
        if known
            .get(namespace)
            .is_some_and(|known| version(known) >= version(&record))
        {
            return false;
        }
        known.insert(namespace.to_owned(), record);
        true
    }

    /// Follows the metadata of copies, and calls `wake` with the original of each that has changed. Never returns.
    pub async fn follow(&self, client: Client, wake: impl Fn(Name)) {
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kinds::CSV.api());
        let config = Config::default().labels(names::COPIED_FROM_LABEL);
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let mut seen = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => seen.clear(),
                Ok(Event::InitApply(object)) => {
                    if let Some((original, namespace, copy)) = read(&object) {
                        seen.insert((original.clone(), namespace.clone()));
                        self.put(&original, &namespace, copy);
                    }
                }
                Ok(Event::InitDone) => {
                    self.keep_only(&seen);
                    self.is_listed.store(true, std::sync::atomic::Ordering::Release);
                    self.listed.notify_waiters();
                    self.originals().into_iter().for_each(&wake);
                }
                Ok(Event::Apply(object)) => {
                    if let Some((original, namespace, copy)) = read(&object)
                        && self.put(&original, &namespace, copy)
                    {
                        wake(original);
                    }
                }
                Ok(Event::Delete(object)) => {
                    if let Some((original, namespace, copy)) = read(&object) {
                        let known = self.of(&original).get(&namespace).cloned();
                        if known.is_some_and(|known| known.uid == copy.uid) {
                            self.forget(&original, &namespace);
                        }
                        wake(original);
                    }
                }
                Err(error) => tracing::debug!(%error, "the watch of copies is interrupted"),
            }
        }
    }

    /// Waits until the copies are listed.
    pub async fn wait_until_listed(self: &Arc<Self>) {
        loop {
            let listed = self.listed.notified();
            if self.is_listed.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            listed.await;
        }
    }

    fn keep_only(&self, seen: &BTreeSet<(Name, String)>) {
        let mut copies = self.copies.lock();
        for (original, known) in copies.iter_mut() {
            known.retain(|namespace, _| seen.contains(&(original.clone(), namespace.clone())));
        }
        copies.retain(|_, known| !known.is_empty());
    }
}

/// The original of a copy, the namespace of the copy, and the copy.
fn read(object: &PartialObjectMeta<DynamicObject>) -> Option<(Name, String, CopyRecord)> {
    let metadata = &object.metadata;
    let from = metadata.labels.as_ref()?.get(names::COPIED_FROM_LABEL)?;
    let original = Name::new(from, metadata.name.as_deref()?);
    let record = CopyRecord {
        uid: metadata.uid.clone()?,
        resource_version: metadata.resource_version.clone()?,
        hashes: None,
    };
    Some((original, metadata.namespace.clone()?, record))
}

#[cfg(test)]
mod tests {
    use olm_classic::operator_group::copies::copy_of;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_that_others_have_changed_is_not_known_to_be_right() {
        let known = CopyIndex::default();
        let original = json!({"metadata": {"namespace": "n", "name": "c"}, "status": {"phase": "Succeeded"}});
        let copy = copy_of(&original);
        let mut live = copy.object.clone();
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["resourceVersion"] = json!("5");
        let name = Name::of(&original);
        known.record(&name, "x", &live);
        assert!(known.of(&name)["x"].holds(&copy));
        let event = |version: &str| CopyRecord {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            hashes: None,
        };
        assert!(!known.put(&name, "x", event("5")), "it is its own");
        assert!(known.put(&name, "x", event("6")));
        assert!(!known.of(&name)["x"].holds(&copy));
        known.forget(&name, "x");
        assert_eq!((known.count(&name), known.originals().len()), (0, 0));
    }
}
