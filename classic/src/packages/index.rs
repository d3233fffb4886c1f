//! The PackageManifests of all catalogs, by catalog, with resourceVersions.
//!
//! A resourceVersion counts changes. It begins with the time at which the process started, in microseconds, so that
//! those of another process, another replica or an earlier one, are none of this one, and their clients list again.
//!
//! There is no log of changes: the changes since a resourceVersion follow from those of the items, and from those of a
//! bounded number of items that are gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use olm_classic::package_manifest::rank;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::item::Item;
use super::scope::Scope;

/// Number of packages that are gone and remembered.
const GONE: usize = 4096;

/// The packages of a catalog.
#[derive(Debug, Clone)]
struct Catalog {
    /// The CatalogSource, which decides the rank.
    object: Arc<Value>,
    items: BTreeMap<Box<str>, Arc<Item>>,
}

/// All packages at one time.
#[derive(Debug, Clone)]
pub(super) struct Packages {
    /// The resourceVersion.
    pub(super) version: u64,
    /// The oldest resourceVersion whose later changes are known.
    oldest: u64,
    catalogs: BTreeMap<(String, String), Catalog>,
    gone: VecDeque<Arc<Item>>,
}

/// A resourceVersion that is too old, or of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub(super) struct Expired {
    asked: u64,
    oldest: u64,
}

/// Change of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

impl Packages {
    fn new(version: u64) -> Self {
        Self {
            version,
            oldest: version,
            catalogs: BTreeMap::new(),
            gone: VecDeque::new(),
        }
    }

    /// The packages that a request sees, by namespace and name, of several with one name the preferred first.
    pub(super) fn seen(&self, scope: &Scope) -> Vec<Arc<Item>> {
        let mut seen: Vec<Arc<Item>> = self
            .of_namespaces(scope)
            .filter(|item| scope.is_named(item) && scope.is_labelled(item))
            .cloned()
            .collect();
        seen.sort_by(|left, right| {
            (scope.shown_in(left), &left.name).cmp(&(scope.shown_in(right), &right.name))
        });
        seen
    }

    /// The preferred package of the name that is asked for.
    pub(super) fn named(&self, scope: &Scope, name: &str) -> Option<&Arc<Item>> {
        let mut catalogs = self.catalogs_of(scope).into_iter();
        catalogs.find_map(|catalog| catalog.items.get(name))
    }

    fn catalogs_of(&self, scope: &Scope) -> Vec<&Catalog> {
        let catalogs = self.catalogs.iter();
        let seen = catalogs.filter(|((namespace, _), _)| scope.sees_catalogs_of(namespace));
        let mut seen: Vec<&Catalog> = seen.map(|(_, catalog)| catalog).collect();
        seen.sort_by(|left, right| {
            rank(&left.object, &scope.namespace).cmp(&rank(&right.object, &scope.namespace))
        });
        seen
    }

    fn of_namespaces(&self, scope: &Scope) -> impl Iterator<Item = &Arc<Item>> {
        self.catalogs_of(scope)
            .into_iter()
            .flat_map(|catalog| catalog.items.values())
    }

    /// Changes since a resourceVersion of packages that a request sees, in order. A package that lost the labels of the
    /// selector is gone for the client.
    pub(super) fn changes(&self, since: u64, scope: &Scope) -> Result<Vec<(ChangeType, Arc<Item>)>, Expired> {
        if since < self.oldest || since > self.version {
            return Err(Expired {
                asked: since,
                oldest: self.oldest,
            });
        }
        let items = self.of_namespaces(scope).filter(|item| item.version > since);
        let alive = items.filter_map(|item| {
            let was_there = item.since <= since;
            let change_type = match (scope.is_labelled(item), was_there) {
                (true, true) => ChangeType::Modified,
                (true, false) => ChangeType::Added,
                (false, true) => ChangeType::Deleted,
                (false, false) => return None,
            };
            Some((change_type, item))
        });
        let gone = self.gone.iter().filter(|item| {
            item.version > since
                && item.since <= since
                && scope.sees_catalogs_of(&item.source.namespace)
                && scope.is_labelled(item)
        });
        let gone = gone.map(|item| (ChangeType::Deleted, item));
        let mut changes: Vec<(ChangeType, Arc<Item>)> = alive
            .chain(gone)
            .filter(|(_, item)| scope.is_named(item))
            .map(|(change_type, item)| (change_type, Arc::clone(item)))
            .collect();
        changes.sort_by_key(|(_, item)| item.version);
        Ok(changes)
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn forget(&mut self, item: &Item) {
        let version = self.next();
        self.gone.push_back(Arc::new(item.gone(version)));
        if self.gone.len() > GONE
            && let Some(first) = self.gone.pop_front()
        {
            self.oldest = first.version;
        }
    }

    /// Puts the packages of a catalog in the place of those that it had.
    fn put(&mut self, source: &Value, items: Vec<Item>) {
        let key = key(source);
        let mut before = self
            .catalogs
            .remove(&key)
            .map(|catalog| catalog.items)
            .unwrap_or_default();
        let mut now = BTreeMap::new();
        for mut item in items {
            let known = before.remove(&item.name);
            if let Some(known) = known.as_ref().filter(|known| known.is_same(&item)) {
                now.insert(item.name.clone(), Arc::clone(known));
                continue;
            }
            item.version = self.next();
            item.since = known.map_or(item.version, |known| known.since);
            now.insert(item.name.clone(), Arc::new(item));
        }
        for item in before.values() {
            self.forget(item);
        }
        let object = json!({
            "metadata": {"namespace": key.0, "name": key.1},
            "spec": {"priority": source.pointer("/spec/priority")},
        });
        let catalog = Catalog {
            object: Arc::new(object),
            items: now,
        };
        self.catalogs.insert(key, catalog);
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let catalog = self.catalogs.remove(&key);
        for item in catalog.iter().flat_map(|catalog| catalog.items.values()) {
            self.forget(item);
        }
    }
}

fn key(source: &Value) -> (String, String) {
    let of = |pointer: &str| {
        source
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    (
        of("/metadata/namespace").to_owned(),
        of("/metadata/name").to_owned(),
    )
}

/// The current packages; changes wake watchers.
#[derive(Debug)]
pub(super) struct PackageIndex(watch::Sender<Arc<Packages>>);

impl PackageIndex {
    /// An empty one of a process that started at that time, in microseconds since 1970.
    pub(super) fn new(started: u64) -> Self {
        Self(watch::Sender::new(Arc::new(Packages::new(started))))
    }

    /// The packages now, and each time that they change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Packages>> {
        self.0.subscribe()
    }

    /// The packages now.
    pub(super) fn now(&self) -> Arc<Packages> {
        Arc::clone(&self.0.borrow())
    }

    /// Puts the packages of a catalog in the place of those that it had.
    pub(super) fn put(&self, source: &Value, items: Vec<Item>) {
        self.change(|packages| packages.put(source, items));
    }

    /// Removes the packages of a catalog.
    pub(super) fn remove(&self, namespace: &str, name: &str) {
        self.change(|packages| packages.remove(namespace, name));
    }

    fn change(&self, change: impl FnOnce(&mut Packages)) {
        self.0.send_if_modified(|packages| {
            let before = packages.version;
            change(Arc::make_mut(packages));
            packages.version != before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::Source;
    use super::super::item::tests::{item, source};
    use super::*;

    fn object(source: &Source, priority: i64) -> Value {
        json!({
            "metadata": {"namespace": source.namespace, "name": source.name}, "spec": {"priority": priority},
        })
    }

    fn put(index: &PackageIndex, source: &Arc<Source>, priority: i64, packages: &[(&str, &str)]) {
        let items = packages
            .iter()
            .map(|(name, label)| item(source, name, &json!({"l": label}), ""));
        index.put(&object(source, priority), items.collect());
    }

    fn scope(namespace: &str, fields: &str, labels: &str) -> Scope {
        Scope::new(namespace, "olm", fields, labels).unwrap()
    }

    fn seen(index: &PackageIndex, scope: &Scope) -> Vec<String> {
        let seen = index.now().seen(scope);
        seen.iter()
            .map(|item| format!("{}/{}/{}", scope.shown_in(item), item.source.name, item.name))
            .collect()
    }

    fn changes(index: &PackageIndex, since: u64, scope: &Scope) -> Vec<String> {
        let changes = index.now().changes(since, scope).unwrap();
        changes
            .iter()
            .map(|(change_type, item)| format!("{change_type:?} {}", item.name))
            .collect()
    }

    #[test]
    fn a_namespace_sees_its_own_catalogs_and_the_global_ones() {
        let index = PackageIndex::new(100);
        put(&index, &source("olm", "low"), 0, &[("a", ""), ("b", "")]);
        put(&index, &source("olm", "high"), 5, &[("a", "")]);
        put(&index, &source("n", "own"), -5, &[("a", "x")]);
        put(&index, &source("m", "other"), 0, &[("c", "")]);
        let all = scope("n", "", "");
        assert_eq!(seen(&index, &all), ["n/own/a", "n/high/a", "n/low/a", "n/low/b"]);
        assert_eq!(index.now().named(&all, "a").unwrap().source.name, "own");
        let global = scope("olm", "", "");
        assert_eq!(index.now().named(&global, "a").unwrap().source.name, "high");
        assert!(index.now().named(&global, "c").is_none());
        assert_eq!(seen(&index, &scope("", "metadata.name=c", "")), ["m/other/c"]);
        assert_eq!(seen(&index, &scope("", "", "l=x")), ["n/own/a"]);
        assert!(Scope::new("", "olm", "status.x=y", "").is_err());
    }

    #[test]
    fn changes_are_told_since_a_version_and_only_where_something_changed() {
        let (index, catalog) = (PackageIndex::new(100), source("olm", "c"));
        let all = scope("", "", "");
        put(&index, &catalog, 0, &[("a", "1"), ("b", "1")]);
        assert_eq!(changes(&index, 100, &all), ["Added a", "Added b"]);
        let listed = index.now().version;
        put(&index, &catalog, 0, &[("a", "1"), ("b", "1")]);
        assert_eq!(index.now().version, listed, "nothing changed");
        put(&index, &catalog, 0, &[("b", "2"), ("c", "1")]);
        assert_eq!(
            changes(&index, listed, &all),
            ["Modified b", "Added c", "Deleted a"]
        );
        let ones = scope("", "", "l=1");
        assert_eq!(
            changes(&index, listed, &ones),
            ["Deleted b", "Added c", "Deleted a"]
        );
        index.remove("olm", "c");
        assert_eq!(
            changes(&index, listed, &all),
            ["Deleted a", "Deleted b"],
            "c came and went"
        );
        assert_eq!(seen(&index, &all), Vec::<String>::new());
    }

    #[test]
    fn versions_of_other_processes_and_of_long_ago_are_expired() {
        let (index, catalog) = (PackageIndex::new(100), source("olm", "c"));
        let all = scope("", "", "");
        for number in 0..GONE + 10 {
            put(&index, &catalog, 0, &[(&format!("p{number}"), "")]);
        }
        let now = index.now();
        for expired in [0, 99, 101, now.version + 1] {
            assert!(now.changes(expired, &all).is_err(), "{expired}");
        }
        assert_eq!(
            now.changes(7, &all).unwrap_err().to_string(),
            format!("too old resource version: 7 ({})", now.oldest)
        );
        assert!(now.changes(now.oldest, &all).unwrap().len() > 1);
        assert_eq!(changes(&index, now.version, &all), Vec::<String>::new());
    }
}
