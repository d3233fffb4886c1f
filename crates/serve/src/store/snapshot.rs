//! Stored content, open for reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use olm_fbc::index::Index;
use sha2::{Digest as _, Sha256};

use super::compress::Variant;
use super::error::{Context as _, StoreError};
use super::record::Record;
use super::survey::Survey;
use crate::answer::{Filter, Part};
use crate::coded::Format;
use crate::graphql::Graph;

/// The codings that content is kept in, the one that most clients take first.
const FORMATS: [Format; 2] = [Format::Gzip, Format::Zstd];
/// The file that holds the content.
pub(super) const ALL: &str = "all.jsonl";
/// The file that holds the index.
pub(super) const INDEX: &str = "index";

/// Stored content with its files open: it can be read for as long as it is held, whatever happens to its directory.
#[derive(Debug)]
pub struct Snapshot {
    directory: PathBuf,
    record: Record,
    all: Arc<File>,
    index: Index,
    pub(super) gzip: RwLock<Option<Arc<Variant>>>,
    pub(super) zstd: RwLock<Option<Arc<Variant>>>,
    pub(super) survey: Mutex<Option<Survey>>,
    pub(super) graph: OnceLock<Result<Graph, String>>,
}

impl Snapshot {
    /// Opens content whose record and index are known.
    pub(super) fn open(directory: &Path, record: Record, index: Index) -> Result<Self, StoreError> {
        let all = File::open(directory.join(ALL)).context("open", ALL)?;
        let bytes = all.metadata().context("open", ALL)?.len();
        if bytes != record.bytes || index.bytes() != bytes {
            return Err(StoreError::Damaged(format!(
                "`{ALL}` has {bytes} bytes instead of {}",
                record.bytes
            )));
        }
        let directory = directory.to_owned();
        Ok(Self {
            directory,
            record,
            all: Arc::new(all),
            index,
            gzip: RwLock::default(),
            zstd: RwLock::default(),
            survey: Mutex::default(),
            graph: OnceLock::new(),
        })
    }

    /// Opens content that an earlier process wrote.
    pub(super) fn load(directory: &Path, catalog: &str) -> Result<Self, StoreError> {
        let record = Record::load(directory)?;
        if record.catalog != catalog {
            return Err(StoreError::Damaged(format!(
                "it belongs to catalog `{}`",
                record.catalog
            )));
        }
        let text = std::fs::read(directory.join(INDEX)).context("read", INDEX)?;
        if hex::encode(Sha256::digest(&text)) != record.index_digest {
            return Err(StoreError::Damaged(format!("`{INDEX}` has changed")));
        }
        let index = Index::decode(&text)
            .map_err(|error| StoreError::Damaged(format!("`{INDEX}` cannot be read: {error}")))?;
        let snapshot = Self::open(directory, record, index)?;
        for format in FORMATS {
            snapshot.load_variant(format);
        }
        snapshot.load_survey();
        Ok(snapshot)
    }

    /// What is known of the content.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Makes what follows the content and is served from then on: what a look at every blob tells, and the coded
    /// variants. Nothing to do where it is there. It is given up without a trace as soon as `go_on` says so.
    ///
    /// # Errors
    /// When the disk is full, or nearly; the content itself is served all the same, and it can be tried again.
    pub fn prepare(&self, go_on: impl Fn() -> bool) -> Result<(), StoreError> {
        self.prepare_where(&go_on, &free)
    }

    pub(super) fn prepare_where(
        &self,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        self.look(go_on)?;
        FORMATS
            .into_iter()
            .try_for_each(|format| self.compress(format, go_on, free))
    }

    /// Reads all of it and compares it with its digest, for as long as `go_on` says so. It takes about a second for
    /// 500 MB. What was made of the content and has changed is not used any more; [`prepare`](Self::prepare) makes it
    /// anew.
    ///
    /// # Errors
    /// When the content cannot be read or has changed.
    pub fn verify(&self, go_on: impl Fn() -> bool) -> Result<(), StoreError> {
        for format in FORMATS {
            self.verify_variant(format, &go_on);
        }
        self.verify_survey(&go_on);
        let digest = digest(&self.all, self.record.bytes, &go_on).context("read", ALL)?;
        if digest.is_none_or(|digest| digest == self.record.digest) {
            Ok(())
        } else {
            Err(StoreError::Damaged(format!("`{ALL}` has changed")))
        }
    }

    /// Where the blobs lie that the filter admits, in order, neighbours joined.
    pub fn select(&self, filter: &Filter) -> Vec<Range<u64>> {
        self.index.query(&filter.as_index_filter()).collect()
    }

    /// Where the next blobs lie that the filter admits, so many of them from this byte of the content on, and the byte to go
    /// on from, if there are more.
    pub(crate) fn page(&self, filter: &Filter, from: u64, limit: usize) -> (Vec<Range<u64>>, Option<u64>) {
        let filter = filter.as_index_filter();
        let mut ranges = self.index.query(&filter).peekable();
        let (mut page, mut count): (Vec<Range<u64>>, usize) = (Vec::new(), 0);
        for blob in self.index.iter().map(|blob| blob.range) {
            while ranges.next_if(|range| range.end <= blob.start).is_some() {}
            let Some(range) = ranges.peek() else {
                break;
            };
            if blob.is_empty() || blob.start < from || !range.contains(&blob.start) {
                continue;
            }
            if count == limit {
                return (page, Some(blob.start));
            }
            count += 1;
            match page.last_mut() {
                Some(last) if last.end == blob.start => last.end = blob.end,
                _ => page.push(blob),
            }
        }
        (page, None)
    }

    /// The content's bytes in that range.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        read(&self.all, range)
    }

    pub(crate) fn part(&self, range: Range<u64>) -> Part {
        Part::File(Arc::clone(&self.all), range)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The range in pieces that fit into memory.
    pub(super) fn chunks(&self, range: Range<u64>) -> impl Iterator<Item = io::Result<bytes::Bytes>> {
        chunks(&self.all, range)
    }
}

/// The bytes that the disk of a directory has room for.
fn free(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn read(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

fn chunks(file: &File, range: Range<u64>) -> impl Iterator<Item = io::Result<bytes::Bytes>> {
    const CHUNK: u64 = 256 << 10;
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min(at + CHUNK);
        let chunk = (at < end).then(|| read(file, at..end).map(bytes::Bytes::from));
        at = end;
        chunk
    })
}

/// The digest of a file of so many bytes; none when `go_on` ended it.
pub(super) fn digest(file: &File, bytes: u64, go_on: &impl Fn() -> bool) -> io::Result<Option<String>> {
    let mut hash = Sha256::new();
    for chunk in chunks(file, 0..bytes) {
        if !go_on() {
            return Ok(None);
        }
        hash.update(&chunk?);
    }
    Ok(Some(hex::encode(hash.finalize())))
}
