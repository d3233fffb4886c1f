//! Catalogs on disk.
//!
//! ```text
//! ROOT/CATALOG/DIGEST-TIME/
//!   all.jsonl          the blobs, one a line, in the order `all` serves them
//!   index              schema, package and name of each line, and where it lies
//!   catalog.json       the Record: digest, times, counts, findings
//!   all.jsonl.gz       the content, coded once (this and all below follow a little later)
//!   all.jsonl.gz.json  its digest, and where its stretches lie
//!   all.jsonl.zst      the same for zstd, with a table of its own
//!   shapes.json        the fields of each schema, for GraphQL
//!   packages.jsonl     the facts of each package, for those who search
//!   survey.json        SHA-256 of both
//! ```
//!
//! Content is written into a directory beside and renamed into place, so whatever has a final name is complete. What
//! is served holds its files open: taking a directory away never disturbs a reader. All functions here block.

mod compress;
mod error;
mod record;
mod snapshot;
mod survey;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use compress::{Covering, Variant};
pub use error::StoreError;
pub use record::{Findings, Origin, Record};
pub use snapshot::Snapshot;
pub use writer::{Commit, StoreLimits, Writer};

use crate::answer::name;
use error::Context as _;

/// Directories with this prefix are under construction, or what is left of one that was given up.
const TEMPORARY: &str = ".new-";

/// What is known of a catalog name.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// Content is here.
    Served(Arc<Snapshot>),
    /// The catalog is served elsewhere and its content is on its way here.
    Expected,
    /// Nothing.
    Unknown,
}

/// The catalogs on disk and which of them are served.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    limits: StoreLimits,
    catalogs: RwLock<BTreeMap<String, Lookup>>,
}

impl Store {
    /// Opens a store, made when it is not there, and serves what it holds at once. What is incomplete or damaged is
    /// removed. Content itself is not read here; see [`Snapshot::verify`].
    ///
    /// # Errors
    /// When the directory cannot be made or listed.
    pub fn open(root: &Path, limits: StoreLimits) -> Result<Self, StoreError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(root).context("create", "the store")?;
        let mut catalogs = BTreeMap::new();
        for entry in fs::read_dir(root).context("list", "the store")? {
            let entry = entry.context("list", "the store")?;
            let known = entry
                .file_name()
                .to_str()
                .filter(|n| name::faults(n).is_empty())
                .map(ToOwned::to_owned);
            match known
                .and_then(|catalog| newest(&entry.path(), &catalog).map(|snapshot| (catalog, snapshot)))
            {
                Some((catalog, snapshot)) => {
                    catalogs.insert(catalog, Lookup::Served(Arc::new(snapshot)));
                }
                None => discard(&entry.path()),
            }
        }
        Ok(Self {
            root: root.to_owned(),
            limits,
            catalogs: RwLock::new(catalogs),
        })
    }

    /// What is known of this name.
    pub fn get(&self, catalog: &str) -> Lookup {
        self.read().get(catalog).cloned().unwrap_or(Lookup::Unknown)
    }

    /// The content served under this name.
    pub fn snapshot(&self, catalog: &str) -> Option<Arc<Snapshot>> {
        match self.get(catalog) {
            Lookup::Served(snapshot) => Some(snapshot),
            Lookup::Expected | Lookup::Unknown => None,
        }
    }

    /// Everything that is served, by name.
    pub fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        let served = |lookup: &Lookup| match lookup {
            Lookup::Served(snapshot) => Some(Arc::clone(snapshot)),
            Lookup::Expected | Lookup::Unknown => None,
        };
        self.read().values().filter_map(served).collect()
    }

    /// Every catalog that is known, by name, with what is known of it.
    pub(crate) fn known(&self) -> Vec<(String, Lookup)> {
        self.read()
            .iter()
            .map(|(name, lookup)| (name.clone(), lookup.clone()))
            .collect()
    }

    /// Says that the catalog is served elsewhere: until its content is here, requests are answered with 503, not 404.
    pub fn announce(&self, catalog: &str) {
        self.write().entry(catalog.to_owned()).or_insert(Lookup::Expected);
    }

    /// Begins to write new content for a catalog. What is served stays until [`Writer::commit`].
    ///
    /// # Errors
    /// When the name is none or the directory cannot be made.
    pub fn begin(self: &Arc<Self>, catalog: &str) -> Result<Writer, StoreError> {
        if !name::faults(catalog).is_empty() {
            return Err(StoreError::Name(catalog.to_owned()));
        }
        Writer::begin(Arc::clone(self), catalog)
    }

    /// Serves new content and takes away what it replaces.
    fn publish(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        let catalog = snapshot.record().catalog.clone();
        self.write()
            .insert(catalog.clone(), Lookup::Served(Arc::clone(&snapshot)));
        let siblings = fs::read_dir(self.root.join(&catalog))
            .into_iter()
            .flatten()
            .flatten();
        for sibling in siblings
            .filter(|s| !is_temporary(s))
            .map(|s| s.path())
            .filter(|p| p != snapshot.directory())
        {
            discard(&sibling);
        }
        snapshot
    }

    /// Stops serving a catalog and frees its space.
    ///
    /// # Errors
    /// When its directory cannot be removed; it is not served any more all the same.
    pub fn remove(&self, catalog: &str) -> Result<(), StoreError> {
        if !name::faults(catalog).is_empty() {
            return Err(StoreError::Name(catalog.to_owned()));
        }
        self.write().remove(catalog);
        match fs::remove_dir_all(self.root.join(catalog)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("remove", catalog)
            }
            _ => Ok(()),
        }
    }

    /// Stops serving this content, which has turned out to be damaged, unless newer content took its place.
    pub fn reject(&self, snapshot: &Arc<Snapshot>) {
        let catalog = &snapshot.record().catalog;
        let mut catalogs = self.write();
        if matches!(catalogs.get(catalog), Some(Lookup::Served(current)) if Arc::ptr_eq(current, snapshot)) {
            catalogs.insert(catalog.clone(), Lookup::Expected);
            drop(catalogs);
            discard(snapshot.directory());
        }
    }

    /// Removes every catalog that `wanted` does not know, and returns their names.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let known: Vec<String> = self.read().keys().cloned().collect();
        let on_disk = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let on_disk = on_disk.filter_map(|entry| entry.file_name().into_string().ok());
        // What has no catalog's name was never one: it goes without a word, as when the store is opened.
        let (on_disk, strange): (Vec<String>, Vec<String>) =
            on_disk.partition(|name| name::faults(name).is_empty());
        for name in strange {
            discard(&self.root.join(name));
        }
        let mut gone: Vec<String> = known
            .into_iter()
            .chain(on_disk)
            .filter(|name| !wanted(name))
            .collect();
        gone.sort();
        gone.dedup();
        for name in &gone {
            if let Err(error) = self.remove(name) {
                tracing::warn!(catalog = name, %error, "cannot free the space of a catalog that is gone");
            }
        }
        gone
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn limits(&self) -> &StoreLimits {
        &self.limits
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Lookup>> {
        self.catalogs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Lookup>> {
        self.catalogs.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_temporary(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(TEMPORARY)
}

/// The newest complete content in a catalog's directory; everything else in it is removed.
fn newest(directory: &Path, catalog: &str) -> Option<Snapshot> {
    let mut best: Option<Snapshot> = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let loaded = if is_temporary(&entry) {
            Err(StoreError::Damaged("it was never finished".to_owned()))
        } else {
            Snapshot::load(&entry.path(), catalog)
        };
        match loaded {
            Ok(snapshot)
                if best
                    .as_ref()
                    .is_none_or(|b| b.record().stored < snapshot.record().stored) =>
            {
                if let Some(older) = best.replace(snapshot) {
                    discard(older.directory());
                }
            }
            Ok(older) => discard(older.directory()),
            Err(error) => {
                tracing::warn!(catalog, %error, "stored content is not used");
                discard(&entry.path());
            }
        }
    }
    best
}

/// Removes what is not needed any more. A failure costs space, not correctness.
fn discard(path: &Path) {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "cannot remove what is not needed any more");
    }
}

#[cfg(test)]
mod tests;
