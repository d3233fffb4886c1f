//! Writing a catalog, one blob at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use olm_fbc::index::IndexBuilder;
use sha2::{Digest as _, Sha256};

use super::error::{Context as _, StoreError};
use super::files::{ALL, INDEX, create, sync};
use super::record::{FORMAT, Findings, Origin, RECORD, Record};
use super::snapshot::Snapshot;
use super::{Store, TEMPORARY};

/// The bounds of one catalog.
#[derive(Debug, Clone)]
pub struct StoreLimits {
    /// Bytes as `all` serves them.
    pub bytes: u64,
    /// Blobs.
    pub blobs: u64,
    /// The memory limit of the index, which stays in memory while the catalog is served, in bytes.
    pub index: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            bytes: 4 << 30,
            blobs: 4_000_000,
            index: 32 << 20,
        }
    }
}

/// The facts about content that the writer cannot know.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The origin of the content.
    pub origin: Origin,
    /// Findings of the whole-catalog check.
    pub findings: Findings,
    /// The time when this content appeared. If the served content has the same digest, it keeps its own time.
    pub modified: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// A catalog that is being written. If it is dropped without [`commit`](Self::commit), its files are removed.
#[derive(Debug)]
pub struct Writer {
    store: Arc<Store>,
    catalog: String,
    directory: Temporary,
    out: BufWriter<File>,
    hash: Sha256,
    index: IndexBuilder,
    offset: u64,
    schemas: BTreeMap<String, u64>,
    blobs: u64,
}

impl Writer {
    pub(super) fn begin(store: Arc<Store>, catalog: &str) -> Result<Self, StoreError> {
        let directory = Temporary::create(&store.root().join(catalog))?;
        let out = BufWriter::with_capacity(256 << 10, create(&directory.0, ALL)?);
        Ok(Self {
            store,
            catalog: catalog.to_owned(),
            directory,
            out,
            hash: Sha256::new(),
            index: IndexBuilder::default(),
            offset: 0,
            schemas: BTreeMap::new(),
            blobs: 0,
        })
    }

    /// Appends a blob: its line of JSON with or without the final newline, and the keys of its index entry, empty if
    /// the blob has none. Skips an empty line.
    ///
    /// # Errors
    /// When a limit is exceeded or the disk is full.
    pub fn push(&mut self, schema: &str, package: &str, name: &str, line: &[u8]) -> Result<(), StoreError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.is_empty() {
            return Ok(());
        }
        let length = line.len() as u64 + 1;
        self.offset += length;
        self.blobs += 1;
        let limits = self.store.limits();
        if self.offset > limits.bytes {
            return Err(StoreError::TooLarge(limits.bytes));
        }
        if self.blobs > limits.blobs {
            return Err(StoreError::TooMany(limits.blobs));
        }
        for bytes in [line, b"\n"] {
            self.hash.update(bytes);
            self.out.write_all(bytes).context("write", ALL)?;
        }
        self.index.add(schema, package, name, length);
        if self.index.memory() > limits.index {
            return Err(StoreError::IndexTooLarge(limits.index));
        }
        match self.schemas.get_mut(schema) {
            Some(count) => *count += 1,
            None => {
                self.schemas.insert(schema.to_owned(), 1);
            }
        }
        Ok(())
    }

    /// Replaces the served content of this catalog.
    ///
    /// # Errors
    /// When the disk is full; the old content stays served.
    pub fn commit(self, commit: Commit) -> Result<Arc<Snapshot>, StoreError> {
        let Self {
            store,
            catalog,
            directory,
            out,
            hash,
            index,
            offset,
            schemas,
            blobs,
        } = self;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .context("write", ALL)?;
        file.sync_data().context("write", ALL)?;
        drop(file);
        let index = index.finish();
        let index_text = index.encode();
        let digest = hex::encode(hash.finalize());
        let same = store
            .snapshot(&catalog)
            .filter(|served| served.record().digest == digest);
        let record = Record {
            format: FORMAT,
            catalog: catalog.clone(),
            origin: commit.origin,
            modified: same.map_or(commit.modified, |served| served.record().modified),
            stored: commit.now,
            bytes: offset,
            blobs,
            schemas,
            findings: commit.findings,
            index_digest: hex::encode(Sha256::digest(&index_text)),
            digest,
        };
        write(&directory.0, INDEX, &index_text)?;
        write(
            &directory.0,
            RECORD,
            &serde_json::to_vec(&record).unwrap_or_default(),
        )?;
        sync(&directory.0)?;
        let parent = store.root().join(&catalog);
        let short = record.digest.get(..16).unwrap_or_default();
        let place = parent.join(format!("{short}-{:x}", commit.now.as_nanosecond()));
        let directory = directory.rename(&place)?;
        sync(&parent)?;
        let snapshot = Snapshot::open(&place, record, index)?;
        directory.keep();
        Ok(store.publish(snapshot))
    }
}

/// Creates a file and writes it to the disk.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let mut file = create(directory, name)?;
    file.write_all(bytes).context("write", name)?;
    file.sync_data().context("write", name)
}

/// A directory that is removed on drop unless it is kept.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn create(parent: &Path) -> Result<Self, StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        builder
            .recursive(true)
            .create(parent)
            .context("create", "the catalog's directory")?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{TEMPORARY}{}-{count}", std::process::id()));
        builder
            .recursive(false)
            .create(&path)
            .context("create", "the catalog's directory")?;
        Ok(Self(path))
    }

    fn rename(mut self, place: &Path) -> Result<Self, StoreError> {
        fs::rename(&self.0, place).context("rename", "the catalog's directory")?;
        place.clone_into(&mut self.0);
        Ok(self)
    }

    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            super::discard(&self.0);
        }
    }
}
