//! Catalogs on disk.
//!
//! ```text
//! ROOT/CATALOG/DIGEST-TIME/
//!   all.jsonl          the blobs, one a line, in the order `all` serves them
//!   index              schema, package and name of each line, and its offset
//!   catalog.json       the Record: digest, times, counts, findings
//!   all.jsonl.gz       the content, compressed once (this and all below follow a little later)
//!   all.jsonl.gz.json  its digest, and the offsets of its segments
//!   all.jsonl.zst      the same for zstd, with a table of its own
//!   shapes.json        the fields of each schema, for GraphQL
//!   packages.jsonl     a summary of each package, for the search
//!   derived.json       SHA-256 of both
//! ```
//!
//! The writer fills a temporary directory and renames it, so a directory with a final name is complete. A snapshot
//! holds its files open: removing a directory never disturbs a reader. All functions here block.

mod compress;
mod content;
mod derived;
mod error;
mod files;
mod filter;
mod record;
mod snapshot;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use compress::{Covering, Variant};
pub use error::StoreError;
pub use filter::Filter;
pub use record::{Findings, Origin, Record};
pub use snapshot::Snapshot;
pub use writer::{Commit, StoreLimits, Writer};

use olm_text::names::subdomain_faults;
use parking_lot::RwLock;

use error::Context as _;

/// The prefix of directories that a writer has not finished.
const TEMPORARY: &str = ".new-";

/// The state of a catalog name.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// This process serves the content.
    Served(Arc<Snapshot>),
    /// Another process serves the catalog; this one is still fetching it.
    Expected,
    /// There is no such catalog.
    Unknown,
}

/// The catalogs on disk, and the content that is served.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    limits: StoreLimits,
    catalogs: RwLock<BTreeMap<String, Lookup>>,
}

impl Store {
    /// Opens or creates a store and serves its complete catalogs at once. Removes incomplete and damaged catalogs,
    /// without reading the content itself; see [`Snapshot::verify`].
    ///
    /// # Errors
    /// When the directory cannot be created or listed.
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
                .filter(|n| subdomain_faults(n).is_empty())
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

    /// The state of this name.
    pub fn get(&self, catalog: &str) -> Lookup {
        self.catalogs
            .read()
            .get(catalog)
            .cloned()
            .unwrap_or(Lookup::Unknown)
    }

    /// The content served under this name.
    pub fn snapshot(&self, catalog: &str) -> Option<Arc<Snapshot>> {
        match self.get(catalog) {
            Lookup::Served(snapshot) => Some(snapshot),
            Lookup::Expected | Lookup::Unknown => None,
        }
    }

    /// All served content, by name.
    pub fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        let served = |lookup: &Lookup| match lookup {
            Lookup::Served(snapshot) => Some(Arc::clone(snapshot)),
            Lookup::Expected | Lookup::Unknown => None,
        };
        self.catalogs.read().values().filter_map(served).collect()
    }

    /// All catalogs and their states, by name.
    pub(crate) fn known(&self) -> Vec<(String, Lookup)> {
        self.catalogs
            .read()
            .iter()
            .map(|(name, lookup)| (name.clone(), lookup.clone()))
            .collect()
    }

    /// Marks a catalog as served elsewhere: until its content is here, requests get 503, not 404.
    pub fn announce(&self, catalog: &str) {
        self.catalogs
            .write()
            .entry(catalog.to_owned())
            .or_insert(Lookup::Expected);
    }

    /// Begins to write new content for a catalog. The old content stays served until [`Writer::commit`].
    ///
    /// # Errors
    /// When the name is invalid or the directory cannot be created.
    pub fn begin(self: &Arc<Self>, catalog: &str) -> Result<Writer, StoreError> {
        if !subdomain_faults(catalog).is_empty() {
            return Err(StoreError::Name(catalog.to_owned()));
        }
        Writer::begin(Arc::clone(self), catalog)
    }

    /// Serves new content and removes the old.
    fn publish(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        let catalog = snapshot.record().catalog.clone();
        self.catalogs
            .write()
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
    /// When its directory cannot be removed; the catalog is no longer served even then.
    pub fn remove(&self, catalog: &str) -> Result<(), StoreError> {
        if !subdomain_faults(catalog).is_empty() {
            return Err(StoreError::Name(catalog.to_owned()));
        }
        self.catalogs.write().remove(catalog);
        match fs::remove_dir_all(self.root.join(catalog)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("remove", catalog)
            }
            _ => Ok(()),
        }
    }

    /// Stops serving damaged content, unless newer content has replaced it.
    pub fn reject(&self, snapshot: &Arc<Snapshot>) {
        let catalog = &snapshot.record().catalog;
        let mut catalogs = self.catalogs.write();
        if matches!(catalogs.get(catalog), Some(Lookup::Served(current)) if Arc::ptr_eq(current, snapshot)) {
            catalogs.insert(catalog.clone(), Lookup::Expected);
            drop(catalogs);
            discard(snapshot.directory());
        }
    }

    /// Removes every catalog that `wanted` rejects, and returns their names.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let known: Vec<String> = self.catalogs.read().keys().cloned().collect();
        let on_disk = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let on_disk = on_disk.filter_map(|entry| entry.file_name().into_string().ok());
        // Names that no catalog can have are removed silently, as when the store is opened.
        let (on_disk, strange): (Vec<String>, Vec<String>) =
            on_disk.partition(|name| subdomain_faults(name).is_empty());
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
                tracing::warn!(catalog = name, %error, "cannot free the space of a deleted catalog");
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
}

fn is_temporary(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(TEMPORARY)
}

/// The newest complete content in a catalog's directory; removes everything else in it.
fn newest(directory: &Path, catalog: &str) -> Option<Snapshot> {
    let mut best: Option<Snapshot> = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let loaded = if is_temporary(&entry) {
            Err(StoreError::Damaged("it is incomplete".to_owned()))
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
                tracing::warn!(catalog, %error, "ignoring stored content");
                discard(&entry.path());
            }
        }
    }
    best
}

/// Removes a file or directory. A failure costs space, not correctness.
fn discard(path: &Path) {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "cannot remove an old file or directory");
    }
}

#[cfg(test)]
mod tests;
