//! The compressed variants of stored content: created once, then served directly.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use olm_fbc::index::Index;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::content::StoredContent;
use super::error::{Context as _, StoreError};
use super::files::{chunks, create, digest, replace, sync};
use crate::body::{Body, Chunk};
use crate::compression::{Encoding, Segment, SegmentWriter, Splice};

/// The stored encodings, the one that most clients prefer first.
const ENCODINGS: [Encoding; 2] = [Encoding::Gzip, Encoding::Zstd];

/// The name of the file of a variant.
fn file_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Gzip => "all.jsonl.gz",
        Encoding::Zstd => "all.jsonl.zst",
    }
}

/// The name of the file with the positions of its segments.
fn table_name(encoding: Encoding) -> String {
    format!("{}.json", file_name(encoding))
}

/// Runs of blobs below this size share a segment: each segment costs some bytes and an entry in the table.
const MIN_SEGMENT_BYTES: u64 = 2 << 10;
/// The disk keeps this fraction of the content's size free: one quarter.
const FREE_FRACTION: u64 = 4;
/// The number of plain bytes between two checks of the free space.
const FREE_CHECK_BYTES: u64 = 1 << 20;
/// The maximum number of plain bytes that are compressed for one request; a larger answer is plain.
const MAX_BYTES_ON_REQUEST: u64 = 1 << 20;

/// The table in the file beside a compressed file.
#[derive(Debug, Serialize, Deserialize)]
struct Table {
    /// SHA-256 of the whole file.
    digest: String,
    segments: Vec<Segment>,
}

/// A compressed file, and the positions of its segments.
#[derive(Debug)]
pub(crate) struct Variant {
    encoding: Encoding,
    file: Arc<File>,
    bytes: u64,
    table: Table,
}

impl Variant {
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The variant of an earlier process, if it is complete.
    pub(super) fn load(content: &StoredContent, encoding: Encoding) -> Option<Self> {
        let table = std::fs::read(content.directory.join(table_name(encoding))).ok()?;
        let table: Table = serde_json::from_slice(&table).ok()?;
        let segments = &table.segments;
        let file = File::open(content.directory.join(file_name(encoding))).ok()?;
        let bytes = file.metadata().ok()?.len();
        let adjoining =
            |a: &Segment, b: &Segment| a.plain.end == b.plain.start && a.compressed.end == b.compressed.start;
        let ordered = segments
            .iter()
            .all(|s| s.plain.start <= s.plain.end && s.compressed.start <= s.compressed.end)
            && segments
                .iter()
                .zip(segments.iter().skip(1))
                .all(|(a, b)| adjoining(a, b));
        let ends = segments
            .last()
            .is_none_or(|s| s.plain.end == content.record.bytes && s.compressed.end <= bytes);
        (ordered && ends).then(|| Self {
            encoding,
            file: Arc::new(file),
            bytes,
            table,
        })
    }

    /// The ranges of the content as one compressed stream.
    pub(super) fn stream(&self, content: &StoredContent, selected: &[Range<u64>]) -> io::Result<Body> {
        let (mut splice, header) = Splice::new(self.encoding);
        let mut parts = vec![Chunk::Bytes(header)];
        for piece in pieces(&self.table.segments, selected) {
            match piece {
                Piece::Stored(segment) => {
                    splice.stored(segment);
                    match parts.last_mut() {
                        Some(Chunk::File(_, last)) if last.end == segment.compressed.start => {
                            last.end = segment.compressed.end;
                        }
                        _ => parts.push(Chunk::File(Arc::clone(&self.file), segment.compressed.clone())),
                    }
                }
                Piece::Plain(range) => parts.push(Chunk::Bytes(splice.compress(&content.read(range)?)?)),
            }
        }
        parts.push(Chunk::Bytes(splice.end()));
        Ok(Body::new(parts))
    }
}

/// A variant that some ranges can be sent from.
#[derive(Debug, Clone)]
pub(crate) struct Covering {
    pub(crate) variant: Arc<Variant>,
    /// The plain bytes that must still be compressed for this answer.
    pub(crate) left: u64,
}

/// A piece of an answer, in terms of the compressed file.
enum Piece<'a> {
    Stored(&'a Segment),
    /// Plain bytes that are only a part of a segment.
    Plain(Range<u64>),
}

/// The compressed variants of one content.
#[derive(Debug, Default)]
pub(super) struct Variants {
    gzip: RwLock<Option<Arc<Variant>>>,
    zstd: RwLock<Option<Arc<Variant>>>,
}

impl Variants {
    /// Opens the variants of an earlier process.
    pub(super) fn load(&self, content: &StoredContent) {
        for encoding in ENCODINGS {
            self.load_one(content, encoding);
        }
    }

    /// Creates missing variants. `free` returns the free bytes on the disk of a directory: a part of them stays free
    /// for new content, which has precedence.
    pub(super) fn make(
        &self,
        content: &StoredContent,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        for encoding in ENCODINGS {
            if self.get(encoding).is_some() {
                continue;
            }
            let made = self.make_one(content, encoding, go_on, free);
            if self.get(encoding).is_none() {
                discard(content, encoding);
            }
            made?;
        }
        Ok(())
    }

    fn make_one(
        &self,
        content: &StoredContent,
        encoding: Encoding,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        // The table comes last: it marks the variant as complete.
        let (name, directory) = (file_name(encoding), &content.directory);
        let left = content.record.bytes / FREE_FRACTION;
        let mut checked_at = None;
        let file = create(directory, name)?;
        let mut writer =
            SegmentWriter::new(encoding, BufWriter::with_capacity(256 << 10, file)).context("write", name)?;
        for run in runs(&content.index, content.record.bytes) {
            if !go_on() {
                return Ok(());
            }
            if checked_at.is_none_or(|at| run.start - at >= FREE_CHECK_BYTES) {
                checked_at = Some(run.start);
                if free(directory).context("look at the disk of", name)? < left {
                    return Err(StoreError::NoRoom {
                        what: name.to_owned(),
                        left,
                    });
                }
            }
            let length = run.end - run.start;
            writer
                .segment(length, chunks(&content.all, run))
                .context("write", name)?;
        }
        let (out, segments) = writer.finish().context("write", name)?;
        let file = out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .context("write", name)?;
        file.sync_data().context("write", name)?;
        let file = File::open(directory.join(name)).context("open", name)?;
        let bytes = file.metadata().context("open", name)?.len();
        let Some(digest) = digest(&file, bytes, go_on).context("read", name)? else {
            return Ok(());
        };
        let table = Table { digest, segments };
        replace(directory, &table_name(encoding), |out| {
            serde_json::to_writer(out, &table).map_err(Into::into)
        })?;
        sync(directory)?;
        self.load_one(content, encoding);
        Ok(())
    }

    fn load_one(&self, content: &StoredContent, encoding: Encoding) {
        if let Some(variant) = Variant::load(content, encoding) {
            *self.slot(encoding).write() = Some(Arc::new(variant));
        }
    }

    /// Stops serving, and removes, variants whose bytes have changed.
    pub(super) fn verify(&self, content: &StoredContent, go_on: &impl Fn() -> bool) {
        for encoding in ENCODINGS {
            let Some(variant) = self.get(encoding) else {
                continue;
            };
            let is_whole = match digest(&variant.file, variant.bytes, go_on) {
                Ok(digest) => digest.is_none_or(|digest| digest == variant.table.digest),
                Err(_) => false,
            };
            if !is_whole {
                let (catalog, file) = (&content.record.catalog, file_name(encoding));
                tracing::warn!(catalog, file, "a compressed variant is damaged; making it again");
                *self.slot(encoding).write() = None;
                discard(content, encoding);
            }
        }
    }

    /// The variant, once it exists.
    pub(super) fn get(&self, encoding: Encoding) -> Option<Arc<Variant>> {
        self.slot(encoding).read().clone()
    }

    fn slot(&self, encoding: Encoding) -> &RwLock<Option<Arc<Variant>>> {
        match encoding {
            Encoding::Gzip => &self.gzip,
            Encoding::Zstd => &self.zstd,
        }
    }

    /// The variant for these ranges, if nearly all of them are whole segments.
    pub(super) fn covering(&self, encoding: Encoding, selected: &[Range<u64>]) -> Option<Covering> {
        let variant = self.get(encoding)?;
        let left: u64 = pieces(&variant.table.segments, selected)
            .map(|piece| match piece {
                Piece::Stored(_) => 0,
                Piece::Plain(range) => range.end - range.start,
            })
            .sum();
        (left <= MAX_BYTES_ON_REQUEST).then_some(Covering { variant, left })
    }
}

/// Removes the files of a variant that is not served, so that they take no space.
fn discard(content: &StoredContent, encoding: Encoding) {
    for name in [table_name(encoding), file_name(encoding).to_owned()] {
        let _ = std::fs::remove_file(content.directory.join(name));
    }
}

/// The selection cut at the edges of the segments. Both are in order.
fn pieces<'a>(segments: &'a [Segment], selected: &'a [Range<u64>]) -> impl Iterator<Item = Piece<'a>> {
    selected.iter().flat_map(move |range| {
        let first = segments.partition_point(|segment| segment.plain.end <= range.start);
        let covered = segments.get(first..).unwrap_or_default();
        covered
            .iter()
            .take_while(|segment| segment.plain.start < range.end)
            .map(|segment| {
                let part = segment.plain.start.max(range.start)..segment.plain.end.min(range.end);
                if part == segment.plain {
                    Piece::Stored(segment)
                } else {
                    Piece::Plain(part)
                }
            })
    })
}

/// Segments that queries read as a whole: adjacent blobs of one schema and package.
fn runs(index: &Index, end: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let (mut start, mut last) = (0, ("", ""));
    for blob in index.iter() {
        let this = (blob.schema, blob.package);
        if this != last && blob.range.start - start >= MIN_SEGMENT_BYTES {
            runs.push(start..blob.range.start);
            start = blob.range.start;
        }
        last = this;
    }
    if start < end {
        runs.push(start..end);
    }
    runs
}
