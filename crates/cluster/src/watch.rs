//! Metadata watches of managed objects, which show drift at once without reads.
//!
//! Where the controller may watch a kind, one watch serves every extension; it never covers Secrets. Otherwise the
//! extension's account watches the namespaces of its objects, or lists them periodically if it may not watch. If
//! neither is allowed, [`WatchedState::Unwatched`] is returned, and the object is read within the limit of
//! [`RateLimit`].

pub mod poll;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::{
    discover::{Discovery, Resource, Scope},
    identity::AccountName,
    permissions::{Reviews, Viewer, right},
    rate_limit::RateLimit,
};

/// The time for which a kind counts as unwatched after a refused watch.
const REFUSED: Duration = Duration::from_mins(1);

/// The objects of a kind that a user needs watched.
#[derive(Debug, Clone)]
pub struct Need {
    /// The kind.
    pub resource: Arc<Resource>,
    /// The number of objects in each namespace. Cluster-scoped kinds have one entry with an empty name.
    pub namespaces: BTreeMap<String, usize>,
}

/// The greatest age of the known state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The age that a watch provides.
    Live,
    /// A minute or two, for revisions that are complete.
    Recent,
}

/// The state of an object, as a watch knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedState {
    /// No watch covers it, or the watch has just begun.
    Unwatched,
    /// The object does not exist.
    Absent {
        /// When the objects were listed.
        listed: Instant,
        /// The newest resourceVersion that the watch has brought.
        newest: u64,
    },
    /// The object exists.
    There {
        /// The UID.
        uid: String,
        /// The resourceVersion.
        resource_version: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    resource: Arc<Resource>,
    /// `None` for all namespaces.
    namespace: Option<String>,
    viewer: Viewer,
    /// Whether the objects are listed periodically instead of watched.
    is_polled: bool,
}

/// Namespace and name of an object.
type ObjectName = (String, String);

/// An object that a watch has brought.
#[derive(Debug)]
struct WatchedObject {
    uid: String,
    resource_version: String,
    owners: Vec<String>,
}

#[derive(Debug)]
struct View {
    listed: Option<Instant>,
    newest: u64,
    objects: HashMap<ObjectName, WatchedObject>,
    refused: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    view: Arc<RwLock<View>>,
    users: Arc<Mutex<HashSet<String>>>,
    task: tokio::task::AbortHandle,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    wants: HashMap<String, HashSet<Key>>,
}

/// The watched objects, and the objects to reconcile when one changes.
#[derive(Debug, Clone, Copy)]
pub struct Managed {
    /// A label of every managed object, with any value.
    pub label: &'static str,
    /// Group and version of the owners' kind.
    pub api_version: &'static str,
    /// The owners' kind.
    pub kind: &'static str,
}

/// All watches of managed objects.
pub struct Watches {
    own: Client,
    managed: Managed,
    discovery: Arc<Discovery>,
    reviews: Arc<Reviews>,
    wake: Arc<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
    rate_limit: Arc<RateLimit>,
}

/// The scope of a watch: a kind in a namespace, or in all namespaces.
type WatchScope = (Arc<Resource>, Option<String>);

/// The watches of a user.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    views: HashMap<WatchScope, Arc<RwLock<View>>>,
    /// The account and rate limit for objects that no watch covers.
    reader: Option<(AccountName, Arc<RateLimit>)>,
}

impl Coverage {
    /// The known state of an object.
    pub fn state(&self, resource: &Arc<Resource>, namespace: &str, name: &str) -> WatchedState {
        let seen = self.view(resource, namespace, name, |seen, listed, newest| match seen {
            Some(seen) => WatchedState::There {
                uid: seen.uid.clone(),
                resource_version: seen.resource_version.clone(),
            },
            None => WatchedState::Absent { listed, newest },
        });
        seen.unwrap_or(WatchedState::Unwatched)
    }

    /// Whether an object that no watch covers may be read now, after it was read `last`.
    pub fn is_due(&self, resource: &Arc<Resource>, last: Instant) -> bool {
        let reader = self.reader.as_ref();
        reader.is_none_or(|(account, rate_limit)| rate_limit.take(account, resource, last, Instant::now()))
    }

    /// Whether an object has an owner of the given name; `None` if no watch covers it.
    pub fn owns(&self, owner: &str, resource: &Arc<Resource>, namespace: &str, name: &str) -> Option<bool> {
        self.view(resource, namespace, name, |seen, _, _| {
            seen.is_some_and(|seen| seen.owners.iter().any(|known| known == owner))
        })
    }

    /// The state of an object according to a watch, the time of the list, and the newest resourceVersion.
    fn view<T>(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        answer: impl FnOnce(Option<&WatchedObject>, Instant, u64) -> T,
    ) -> Option<T> {
        let namespace = if resource.scope == Scope::Cluster {
            ""
        } else {
            namespace
        };
        let everywhere = (Arc::clone(resource), None);
        let here = (Arc::clone(resource), Some(namespace.to_owned()));
        let view = self.views.get(&everywhere).or_else(|| self.views.get(&here))?;
        let view = view.read();
        let (Some(listed), None) = (view.listed, view.refused) else {
            return None;
        };
        let seen = view.objects.get(&(namespace.to_owned(), name.to_owned()));
        Some(answer(seen, listed, view.newest))
    }
}

impl Watches {
    /// `wake` is called with the name of each owner whose objects may have changed.
    pub fn new(
        own: Client,
        managed: Managed,
        discovery: Arc<Discovery>,
        reviews: Arc<Reviews>,
        wake: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            own,
            managed,
            discovery,
            reviews,
            wake: Arc::new(wake),
            state: Mutex::default(),
            rate_limit: Arc::default(),
        }
    }

    /// Starts the watches that a user needs and stops those that it no longer needs. The account's client, if given, is
    /// used if the controller may not watch.
    ///
    /// # Errors
    /// The access review for the watch failed.
    pub async fn want(
        &self,
        user: &str,
        needs: &[Need],
        account: Option<(&AccountName, &Client)>,
        freshness: Freshness,
    ) -> Result<Coverage, kube::Error> {
        let mut keys = HashSet::new();
        let mut unwatched = Vec::new();
        for need in needs {
            let (watched, rest) = self.keys(need, account, freshness).await?;
            keys.extend(watched);
            if rest > 0 {
                unwatched.push((Arc::clone(&need.resource), rest));
            }
        }
        let reader = account.map(|(account, _)| account);
        self.rate_limit.want(user, reader, &unwatched);
        let client = account.map_or(&self.own, |(_, client)| client);
        let mut state = self.lock();
        let before = state
            .wants
            .insert(user.to_owned(), keys.clone())
            .unwrap_or_default();
        for key in before.difference(&keys) {
            state.leave(user, key);
        }
        let mut coverage = Coverage {
            views: HashMap::new(),
            reader: reader.map(|account| (account.clone(), Arc::clone(&self.rate_limit))),
        };
        for key in keys {
            let entry = match state.entries.entry(key.clone()) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(vacant) => vacant.insert(self.start(&key, client)),
            };
            if entry.refused_long_ago() {
                *entry = self.start(&key, client);
            }
            entry.users.lock().insert(user.to_owned());
            coverage
                .views
                .insert((key.resource, key.namespace), Arc::clone(&entry.view));
        }
        Ok(coverage)
    }

    /// Stops the watches that only this user needs.
    pub fn forget(&self, user: &str) {
        self.rate_limit.want(user, None, &[]);
        let mut state = self.lock();
        for key in state.wants.remove(user).unwrap_or_default() {
            state.leave(user, &key);
        }
    }

    /// The number of watches.
    pub fn count(&self) -> usize {
        self.lock().entries.len()
    }

    /// The keys to watch or list, and how many objects are left over.
    async fn keys(
        &self,
        need: &Need,
        account: Option<(&AccountName, &Client)>,
        freshness: Freshness,
    ) -> Result<(Vec<Key>, usize), kube::Error> {
        let resource = &need.resource;
        let key = |namespace: Option<&str>, viewer, is_polled| Key {
            resource: Arc::clone(resource),
            namespace: namespace.map(str::to_owned),
            viewer,
            is_polled,
        };
        let all = need.namespaces.values().sum();
        if !resource.watchable {
            return Ok((Vec::new(), all));
        }
        let secret = resource.api.group.is_empty() && resource.api.kind == "Secret";
        if !secret
            && self
                .may_watch(&self.own, &Viewer::Controller, resource, "")
                .await?
        {
            return Ok((vec![key(None, Viewer::Controller, false)], 0));
        }
        let Some((account, client)) = account else {
            return Ok((Vec::new(), all));
        };
        let viewer = Viewer::Account(account.clone());
        let mut keys = Vec::new();
        let mut left = 0;
        for (namespace, objects) in &need.namespaces {
            let namespace = if resource.scope == Scope::Cluster {
                ""
            } else {
                namespace
            };
            let place = (!namespace.is_empty()).then_some(namespace);
            if self.may_watch(client, &viewer, resource, namespace).await? {
                keys.push(key(place, viewer.clone(), false));
            } else if freshness == Freshness::Recent
                && self.may("list", client, &viewer, resource, namespace).await?
            {
                keys.push(key(place, viewer.clone(), true));
            } else {
                left += objects;
            }
        }
        Ok((keys, left))
    }

    async fn may_watch(
        &self,
        client: &Client,
        viewer: &Viewer,
        resource: &Resource,
        namespace: &str,
    ) -> Result<bool, kube::Error> {
        Ok(self.may("list", client, viewer, resource, namespace).await?
            && self.may("watch", client, viewer, resource, namespace).await?)
    }

    async fn may(
        &self,
        verb: &str,
        client: &Client,
        viewer: &Viewer,
        resource: &Resource,
        namespace: &str,
    ) -> Result<bool, kube::Error> {
        let right = right(verb, &resource.api.group, &resource.api.plural, namespace);
        self.reviews.may(client, viewer, &right).await
    }

    fn start(&self, key: &Key, client: &Client) -> Entry {
        let view = Arc::new(RwLock::new(View {
            listed: None,
            newest: 0,
            objects: HashMap::new(),
            refused: None,
        }));
        let users = Arc::new(Mutex::new(HashSet::new()));
        let client = if key.viewer == Viewer::Controller {
            &self.own
        } else {
            client
        };
        let api: Api<PartialObjectMeta<DynamicObject>> = match &key.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &key.resource.api),
            None => Api::all_with(client.clone(), &key.resource.api),
        };
        tracing::debug!(kind = key.resource.api.kind, namespace = key.namespace, viewer = ?key.viewer, "watching");
        let follow = Follow {
            view: Arc::clone(&view),
            users: Arc::clone(&users),
            wake: Arc::clone(&self.wake),
            discovery: Arc::clone(&self.discovery),
            kind: key.resource.api.clone(),
            managed: self.managed,
        };
        let task = if key.is_polled {
            tokio::spawn(follow.poll(api))
        } else {
            tokio::spawn(follow.run(api))
        };
        let task = task.abort_handle();
        Entry { view, users, task }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn leave(&mut self, user: &str, key: &Key) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let unused = {
            let mut users = entry.users.lock();
            users.remove(user);
            users.is_empty()
        };
        if unused {
            tracing::debug!(
                kind = key.resource.api.kind,
                namespace = key.namespace,
                "no longer watching"
            );
            self.entries.remove(key);
        }
    }
}

impl Entry {
    fn refused_long_ago(&self) -> bool {
        let view = self.view.read();
        view.refused.is_some_and(|at| at.elapsed() >= REFUSED)
    }
}

/// One watch.
struct Follow {
    view: Arc<RwLock<View>>,
    users: Arc<Mutex<HashSet<String>>>,
    wake: Arc<dyn Fn(&str) + Send + Sync>,
    discovery: Arc<Discovery>,
    kind: ApiResource,
    managed: Managed,
}

impl Follow {
    async fn run(self, api: Api<PartialObjectMeta<DynamicObject>>) {
        let config = watcher::Config::default().labels(self.managed.label);
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let mut listing = HashMap::new();
        let mut began = Instant::now();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listing = HashMap::new();
                    began = Instant::now();
                }
                Ok(Event::InitApply(object)) => {
                    let (key, seen) = self.seen(object.metadata);
                    listing.insert(key, seen);
                }
                Ok(Event::InitDone) => self.listed(std::mem::take(&mut listing), began),
                Ok(Event::Apply(object)) => self.changed(object.metadata),
                Ok(Event::Delete(object)) => self.deleted(object.metadata),
                Err(error) => {
                    if let Some(code @ (403 | 404)) = code(&error) {
                        self.ended(code);
                        return;
                    }
                    tracing::debug!(%error, "a watch is interrupted");
                }
            }
        }
    }

    /// The kind is gone, or the watch is no longer allowed.
    fn ended(&self, code: u16) {
        tracing::debug!(code, "a watch has ended");
        if code == 404 {
            self.discovery.invalidate(&self.kind);
        }
        self.view.write().refused = Some(Instant::now());
        self.wake_users();
    }

    fn listed(&self, objects: HashMap<ObjectName, WatchedObject>, began: Instant) {
        let mut view = self.view.write();
        view.newest = newest(&objects).max(view.newest);
        view.objects = objects;
        view.listed = Some(began);
        drop(view);
        self.wake_users();
    }

    fn changed(&self, metadata: ObjectMeta) {
        let (key, seen) = self.seen(metadata);
        let mut owners: BTreeSet<String> = seen.owners.iter().cloned().collect();
        let mut view = self.view.write();
        view.newest = view.newest.max(number(&seen.resource_version));
        owners.extend(
            view.objects
                .insert(key, seen)
                .into_iter()
                .flat_map(|before| before.owners),
        );
        drop(view);
        for owner in &owners {
            (self.wake)(owner);
        }
    }

    fn deleted(&self, metadata: ObjectMeta) {
        let (key, seen) = self.seen(metadata);
        let mut owners: BTreeSet<String> = seen.owners.into_iter().collect();
        let mut view = self.view.write();
        view.newest = view.newest.max(number(&seen.resource_version));
        owners.extend(
            view.objects
                .remove(&key)
                .into_iter()
                .flat_map(|before| before.owners),
        );
        drop(view);
        for owner in &owners {
            (self.wake)(owner);
        }
    }

    fn wake_users(&self) {
        let users = self.users.lock().clone();
        for user in &users {
            (self.wake)(user);
        }
    }

    fn seen(&self, metadata: ObjectMeta) -> (ObjectName, WatchedObject) {
        let owners = metadata
            .owner_references
            .into_iter()
            .flatten()
            .filter(|owner| owner.kind == self.managed.kind && owner.api_version == self.managed.api_version)
            .map(|owner| owner.name)
            .collect();
        let key = (
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
        );
        let seen = WatchedObject {
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            owners,
        };
        (key, seen)
    }
}

/// The newest resourceVersion.
fn newest(objects: &HashMap<ObjectName, WatchedObject>) -> u64 {
    let versions = objects.values().map(|seen| number(&seen.resource_version));
    versions.max().unwrap_or(0)
}

/// A resourceVersion as a number; 0 if it is not one.
pub fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

/// The status code of a failed watch.
pub fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}
