//! The store of ClusterObjectSets for both controllers, filled by one watch.
//!
//! A set that cannot be read stays as it was last read. The store names it, and no run plans for its extension until it
//! can be read.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Client,
    core::{DeserializeGuard, ObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use olm_api::{
    ClusterObjectSet, cluster_extension::controlling_extension, cluster_object_set::LifecycleState,
    conditions, names,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};

/// A ClusterObjectSet that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub name: String,
    /// The UID of the ClusterExtension that controls it.
    pub extension: Option<String>,
    /// The value of its `owner-name` label.
    pub owner_name: Option<String>,
    /// The error.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read ClusterObjectSet {}: {}", self.name, self.why)
    }
}

impl Unreadable {
    fn new(metadata: &ObjectMeta, why: String) -> Self {
        let labels = metadata.labels.as_ref();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            extension: controlling_extension(metadata).map(str::to_owned),
            owner_name: labels.and_then(|labels| labels.get(names::label::OWNER_NAME).cloned()),
            why,
        }
    }

    /// Whether a set may be another revision of the same extension.
    fn is_sibling(&self, set: &ClusterObjectSet) -> bool {
        let owner = owner_name(set);
        self.name != set.name()
            && owner.is_some()
            && self.owner_name.as_deref() == owner
            && self.extension.as_deref() == controlling_extension(&set.metadata)
    }
}

/// A change of a set.
#[derive(Debug, Clone)]
pub struct Change {
    pub name: String,
    /// The set before, if it was known.
    pub before: Option<Arc<ClusterObjectSet>>,
    /// The set now; `None` if it is gone or was never read.
    pub now: Option<Arc<ClusterObjectSet>>,
    /// The reason why the set cannot be read, or could not be read before.
    pub unreadable: Option<Unreadable>,
}

#[derive(Debug, Default)]
struct StoreState {
    readable: HashMap<String, Arc<ClusterObjectSet>>,
    unreadable: BTreeMap<String, Unreadable>,
}

/// All ClusterObjectSets.
#[derive(Debug, Default)]
pub struct Sets {
    state: RwLock<StoreState>,
    ready: watch::Sender<bool>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<Change>>>,
}

impl Sets {
    /// The changes from now on. Those of a list arrive when it is complete.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners.lock().push(sender);
        receiver
    }

    /// Returns when all sets are known.
    pub async fn wait_until_ready(&self) {
        // The sender lives as long as the store.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// The set with this name as it was last read.
    pub fn get(&self, name: &str) -> Option<Arc<ClusterObjectSet>> {
        self.state.read().readable.get(name).cloned()
    }

    /// Whether a set with this name exists, readable or not.
    pub fn contains(&self, name: &str) -> bool {
        let state = self.state.read();
        state.readable.contains_key(name) || state.unreadable.contains_key(name)
    }

    /// All sets as they were last read.
    pub fn state(&self) -> Vec<Arc<ClusterObjectSet>> {
        self.state.read().readable.values().cloned().collect()
    }

    /// The sets that an extension controls, by its UID. The label proves nothing, because any user can write it.
    pub fn of_extension(&self, uid: &str) -> Vec<Arc<ClusterObjectSet>> {
        let state = self.state.read();
        let ours = |set: &&Arc<ClusterObjectSet>| controlling_extension(&set.metadata) == Some(uid);
        state.readable.values().filter(ours).cloned().collect()
    }

    /// The other revisions of the same extension.
    pub fn siblings(&self, set: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let Some(owner) = owner_name(set) else {
            return Vec::new();
        };
        let state = self.state.read();
        let others = state.readable.values().filter(|other| {
            owner_name(other) == Some(owner) && other.name() != set.name() && belong_together(set, other)
        });
        others.cloned().collect()
    }

    /// The complete revisions that the one with this name replaces while it rolls out. Its objects no longer name them
    /// as owners, but they still report on them.
    pub fn replaced_by(&self, name: &str) -> Vec<Arc<ClusterObjectSet>> {
        let succeeded = |set: &ClusterObjectSet| conditions::is_true(set.conditions(), conditions::SUCCEEDED);
        let Some(newer) = self.get(name).filter(|set| !succeeded(set)) else {
            return Vec::new();
        };
        let mut older = self.siblings(&newer);
        older.retain(|set| {
            set.spec.revision < newer.spec.revision
                && set.spec.lifecycle_state == LifecycleState::Active
                && succeeded(set)
        });
        older
    }

    /// A set that an extension controls, by its UID, and that cannot be read.
    pub fn unreadable_of(&self, uid: &str) -> Option<Unreadable> {
        let state = self.state.read();
        let mut unreadable = state.unreadable.values();
        unreadable
            .find(|found| found.extension.as_deref() == Some(uid))
            .cloned()
    }

    /// A set that another extension controls, and that cannot be read. `uid` is that of the extension itself.
    pub fn unreadable_of_others(&self, uid: Option<&str>) -> Option<Unreadable> {
        let state = self.state.read();
        let mut unreadable = state.unreadable.values();
        unreadable
            .find(|found| found.extension.is_some() && found.extension.as_deref() != uid)
            .cloned()
    }

    /// A set that may be another revision of the same extension and cannot be read.
    pub fn unreadable_sibling(&self, set: &ClusterObjectSet) -> Option<Unreadable> {
        let state = self.state.read();
        let mut unreadable = state.unreadable.values();
        unreadable.find(|found| found.is_sibling(set)).cloned()
    }

    /// The sets that may be other revisions of the extension of an unreadable one.
    pub fn siblings_of(&self, unreadable: &Unreadable) -> Vec<Arc<ClusterObjectSet>> {
        let state = self.state.read();
        let others = state.readable.values().filter(|set| unreadable.is_sibling(set));
        others.cloned().collect()
    }

    /// Whether the set with this name cannot be read.
    pub fn is_unreadable(&self, name: &str) -> bool {
        self.state.read().unreadable.contains_key(name)
    }

    /// Watches the sets of the cluster. Never returns.
    pub async fn follow(&self, client: &Client) {
        let api: Api<DeserializeGuard<ClusterObjectSet>> = Api::all(client.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        let mut list = List::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event, &mut list),
                Err(error) => tracing::debug!(%error, "the watch of ClusterObjectSets is interrupted"),
            }
        }
    }

    fn take(&self, event: Event<DeserializeGuard<ClusterObjectSet>>, list: &mut List) {
        match event {
            Event::Init => *list = List::default(),
            Event::InitApply(object) => {
                let change = self.note(object);
                list.names.insert(change.name.clone());
                list.changes.push(change);
            }
            Event::InitDone => {
                let List { names, mut changes } = std::mem::take(list);
                changes.extend(self.retain(&names));
                for change in &changes {
                    self.send(change);
                }
                self.ready.send_replace(true);
            }
            Event::Apply(object) => {
                let change = self.note(object);
                self.send(&change);
            }
            Event::Delete(object) => {
                let name = match object.0 {
                    Ok(set) => set.metadata.name,
                    Err(error) => error.metadata.name,
                };
                let change = remove(&mut self.state.write(), name.unwrap_or_default());
                self.send(&change);
            }
        }
    }

    /// Stores a set.
    fn note(&self, object: DeserializeGuard<ClusterObjectSet>) -> Change {
        match object.0 {
            Ok(mut set) => {
                // Managed fields are not used here and are larger than the rest.
                set.metadata.managed_fields = None;
                let (name, set) = (set.name().to_owned(), Arc::new(set));
                let mut state = self.state.write();
                Change {
                    before: state.readable.insert(name.clone(), Arc::clone(&set)),
                    now: Some(set),
                    unreadable: state.unreadable.remove(&name),
                    name,
                }
            }
            Err(error) => {
                let found = Unreadable::new(&error.metadata, error.error.clone());
                tracing::error!(
                    set = found.name,
                    error = found.why,
                    "cannot read a ClusterObjectSet"
                );
                let mut state = self.state.write();
                state.unreadable.insert(found.name.clone(), found.clone());
                let last = state.readable.get(&found.name).cloned();
                Change {
                    name: found.name.clone(),
                    before: last.clone(),
                    now: last,
                    unreadable: Some(found),
                }
            }
        }
    }

    /// Drops the sets that a list lacks.
    fn retain(&self, listed: &HashSet<String>) -> Vec<Change> {
        let mut state = self.state.write();
        let known = state.readable.keys().chain(state.unreadable.keys());
        let gone: HashSet<String> = known.filter(|name| !listed.contains(*name)).cloned().collect();
        gone.into_iter().map(|name| remove(&mut state, name)).collect()
    }

    fn send(&self, change: &Change) {
        self.listeners
            .lock()
            .retain(|listener| listener.send(change.clone()).is_ok());
    }
}

/// A list that is being read.
#[derive(Default)]
struct List {
    names: HashSet<String>,
    changes: Vec<Change>,
}

fn remove(state: &mut StoreState, name: String) -> Change {
    Change {
        before: state.readable.remove(&name),
        now: None,
        unreadable: state.unreadable.remove(&name),
        name,
    }
}

fn owner_name(set: &ClusterObjectSet) -> Option<&str> {
    set.label(names::label::OWNER_NAME)
        .filter(|owner| !owner.is_empty())
}

/// Whether two sets that name the same extension belong together. Any user can write the label: the same extension must
/// control both, or they must have the same account, which only users who may act as it can set. The latter holds for
/// an orphaned set, and for sets that users created.
fn belong_together(set: &ClusterObjectSet, other: &ClusterObjectSet) -> bool {
    let account = |set: &ClusterObjectSet| {
        set.annotation(names::annotation::SERVICE_ACCOUNT)
            .map(str::to_owned)
    };
    let extension = |set: &ClusterObjectSet| controlling_extension(&set.metadata).map(str::to_owned);
    match (extension(set), extension(other)) {
        (Some(_), None) => account(set).is_some() && account(set) == account(other),
        (None, None) => account(set) == account(other),
        (ours, theirs) => ours == theirs,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::*;

    #[test]
    fn revisions_belong_together_when_one_extension_controls_both_or_they_work_as_the_same_account() {
        let set = |controller: Option<&str>, account: Option<&str>| {
            let mut set = ClusterObjectSet::default();
            set.metadata.owner_references = controller.map(|uid| {
                let kind = if uid == "foreign" {
                    "Foo"
                } else {
                    names::CLUSTER_EXTENSION
                };
                vec![OwnerReference {
                    api_version: names::API_VERSION.to_owned(),
                    kind: kind.to_owned(),
                    uid: uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            });
            let key = names::annotation::SERVICE_ACCOUNT.to_owned();
            set.metadata.annotations = account.map(|account| [(key, account.to_owned())].into());
            set
        };
        for (one, other, expected) in [
            ((Some("a"), Some("n/x")), (Some("a"), Some("n/y")), true),
            ((Some("a"), Some("n/x")), (Some("b"), Some("n/x")), false),
            ((Some("a"), Some("n/x")), (None, Some("n/x")), true),
            ((Some("a"), Some("n/x")), (None, Some("n/y")), false),
            ((Some("a"), None), (None, None), false),
            ((None, Some("n/x")), (Some("a"), Some("n/x")), false),
            (
                (Some("foreign"), Some("n/x")),
                (Some("foreign"), Some("n/y")),
                false,
            ),
            ((Some("foreign"), Some("n/x")), (Some("a"), Some("n/x")), false),
            ((None, Some("n/x")), (None, Some("n/x")), true),
            ((None, Some("n/x")), (None, Some("n/y")), false),
            ((None, None), (None, None), true),
        ] {
            let found = belong_together(&set(one.0, one.1), &set(other.0, other.1));
            assert_eq!(found, expected, "{one:?} {other:?}");
        }
    }

    fn guard(name: &str, revision: &serde_json::Value) -> DeserializeGuard<ClusterObjectSet> {
        serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": names::CLUSTER_OBJECT_SET,
            "metadata": {
                "name": name, "labels": {names::label::OWNER_NAME: "e"},
                "ownerReferences": [{"apiVersion": names::API_VERSION, "kind": names::CLUSTER_EXTENSION, "name": "e",
                    "uid": "u", "controller": true}],
            },
            "spec": {"lifecycleState": "Active", "revision": revision, "collisionProtection": "Prevent"},
        }))
        .unwrap()
    }

    #[test]
    fn a_complete_revision_is_looked_at_with_the_one_that_takes_over_from_it() {
        let sets = Sets::default();
        for (revision, succeeded) in [(1, "True"), (2, "True"), (3, "False"), (4, "True")] {
            let mut set = guard(&format!("e-{revision}"), &json!(revision));
            if let Ok(set) = &mut set.0 {
                let condition = json!({"type": "Succeeded", "status": succeeded, "reason": "Succeeded", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"});
                set.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
            }
            sets.note(set);
        }
        let replaced = |name: &str| {
            let mut names: Vec<String> = sets
                .replaced_by(name)
                .iter()
                .map(|set| set.name().to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(replaced("e-3"), ["e-1", "e-2"]);
        assert_eq!(replaced("e-4"), [""; 0], "it is not on its way");
        assert_eq!(replaced("none"), [""; 0]);
    }

    #[test]
    fn a_revision_that_cannot_be_read_stays_known_and_is_named_to_both_controllers() {
        let (one, odd) = (json!(1), json!("odd"));
        let sets = Sets::default();
        let mut changes = sets.subscribe();
        let mut list = List::default();
        let mut take = |event| sets.take(event, &mut list);
        take(Event::Init);
        take(Event::InitApply(guard("e-1", &one)));
        take(Event::InitApply(guard("e-2", &odd)));
        assert!(changes.try_recv().is_err(), "the list is not complete");
        take(Event::InitDone);
        let seen: Vec<(String, bool)> = std::iter::from_fn(|| changes.try_recv().ok())
            .map(|change| (change.name, change.unreadable.is_some()))
            .collect();
        assert_eq!(seen, [("e-1".to_owned(), false), ("e-2".to_owned(), true)]);
        let first = sets.get("e-1").unwrap();
        assert!(sets.contains("e-2") && sets.get("e-2").is_none() && sets.is_unreadable("e-2"));
        assert_eq!(sets.unreadable_of("u").unwrap().name, "e-2");
        assert_eq!(sets.unreadable_sibling(&first).unwrap().name, "e-2");
        assert_eq!(sets.unreadable_of("other"), None);

        // A set stays as it was last read, in a list too.
        take(Event::Apply(guard("e-1", &odd)));
        assert_eq!(sets.get("e-1").unwrap().spec.revision, 1);
        take(Event::Init);
        take(Event::InitApply(guard("e-1", &odd)));
        take(Event::InitDone);
        assert_eq!(sets.get("e-1").unwrap().spec.revision, 1);
        assert!(!sets.contains("e-2"), "the list lacks it");
        take(Event::Apply(guard("e-1", &one)));
        assert_eq!(sets.unreadable_of("u"), None);
        take(Event::Apply(guard("e-2", &odd)));
        take(Event::Delete(guard("e-2", &odd)));
        assert!(!sets.contains("e-2"));
    }
}
