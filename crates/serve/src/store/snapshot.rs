//! Stored content and its derived data, open for reading.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use olm_fbc::index::Index;
use sha2::{Digest as _, Sha256};

use super::compress::{Covering, Variant, Variants};
use super::content::StoredContent;
use super::derived::Derived;
use super::error::{Context as _, StoreError};
use super::files::{self, ALL, INDEX};
use super::filter::Filter;
use super::record::Record;
use crate::body::{Body, Chunk};
use crate::compression::Encoding;
use crate::graphql_schema::Graph;
use crate::package_summary::PackageSummary;

/// Stored content with its files open: readable as long as the value exists, even if its directory is removed.
#[derive(Debug)]
pub struct Snapshot {
    content: StoredContent,
    variants: Variants,
    derived: Derived,
}

impl Snapshot {
    /// Opens content whose record and index are known.
    pub(super) fn open(directory: &Path, record: Record, index: Index) -> Result<Self, StoreError> {
        Ok(Self {
            content: StoredContent::open(directory, record, index)?,
            variants: Variants::default(),
            derived: Derived::default(),
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
            .map_err(|error| StoreError::Damaged(format!("cannot read `{INDEX}`: {error}")))?;
        let snapshot = Self::open(directory, record, index)?;
        snapshot.variants.load(&snapshot.content);
        snapshot.derived.load(&snapshot.content);
        Ok(snapshot)
    }

    /// Digest, times, counts and findings of the content.
    pub fn record(&self) -> &Record {
        &self.content.record
    }

    /// Creates the derived data, which is served from then on: the shapes and package summaries, and the compressed
    /// variants. Keeps existing files, and removes incomplete ones if `go_on` cancels it.
    ///
    /// # Errors
    /// When the disk is full, or nearly; the content itself stays served, and a later call tries again.
    pub fn prepare(&self, go_on: impl Fn() -> bool) -> Result<(), StoreError> {
        self.prepare_where(&go_on, &free)
    }

    pub(super) fn prepare_where(
        &self,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        self.derived.make(&self.content, go_on)?;
        self.variants.make(&self.content, go_on, free)
    }

    /// Reads the content and compares it with its digest while `go_on` returns true; about a second for 500 MB. Stops
    /// serving derived files that have changed; [`prepare`](Self::prepare) creates them again.
    ///
    /// # Errors
    /// When the content cannot be read or has changed.
    pub fn verify(&self, go_on: impl Fn() -> bool) -> Result<(), StoreError> {
        self.variants.verify(&self.content, &go_on);
        self.derived.verify(&self.content, &go_on);
        let digest = files::digest(&self.content.all, self.record().bytes, &go_on).context("read", ALL)?;
        if digest.is_none_or(|digest| digest == self.record().digest) {
            Ok(())
        } else {
            Err(StoreError::Damaged(format!("`{ALL}` has changed")))
        }
    }

    /// The byte ranges of the blobs that the filter selects, in order, neighbours joined.
    pub fn select(&self, filter: &Filter) -> Vec<Range<u64>> {
        self.index().query(&filter.as_index_filter()).collect()
    }

    /// At most `limit` of the blobs that the filter selects, from byte `from` of the content on, and the byte where the
    /// next page begins, if there is one.
    pub(crate) fn page(&self, filter: &Filter, from: u64, limit: usize) -> (Vec<Range<u64>>, Option<u64>) {
        let filter = filter.as_index_filter();
        let mut ranges = self.index().query(&filter).peekable();
        let (mut page, mut count): (Vec<Range<u64>>, usize) = (Vec::new(), 0);
        for blob in self.index().iter().map(|blob| blob.range) {
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
        self.content.read(range)
    }

    pub(crate) fn part(&self, range: Range<u64>) -> Chunk {
        Chunk::File(Arc::clone(&self.content.all), range)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.content.directory
    }

    /// The identities and ranges of the blobs.
    pub fn index(&self) -> &Index {
        &self.content.index
    }

    /// The compressed variant, once it exists.
    pub(crate) fn variant(&self, encoding: Encoding) -> Option<Arc<Variant>> {
        self.variants.get(encoding)
    }

    /// The variant for these ranges, if nearly all of them are whole segments.
    pub(crate) fn variant_covering(&self, encoding: Encoding, selected: &[Range<u64>]) -> Option<Covering> {
        self.variants.covering(encoding, selected)
    }

    /// The ranges as one compressed stream.
    pub(crate) fn compressed(&self, variant: &Variant, selected: &[Range<u64>]) -> io::Result<Body> {
        variant.stream(&self.content, selected)
    }

    /// The GraphQL schema. Reads the disk, and every blob if that has not happened before.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn graph(&self) -> Result<&Graph, StoreError> {
        self.derived.graph(&self.content)
    }

    /// The packages by name, read from the disk one by one. Reads every blob first if that has not happened before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn packages(
        &self,
    ) -> Result<impl Iterator<Item = std::io::Result<PackageSummary>> + use<>, StoreError> {
        self.derived.packages(&self.content)
    }
}

/// The free bytes on the disk of a directory.
fn free(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}
