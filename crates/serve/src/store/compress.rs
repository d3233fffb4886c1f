//! The coded variants of stored content: made once, served without work.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use olm_fbc::index::Index;
use serde::{Deserialize, Serialize};

use super::error::{Context as _, StoreError};
use super::snapshot::{Snapshot, digest};
use super::writer::{create, sync};
use crate::answer::{Body, Part};
use crate::coded::{Coder, Format, Splice, Stretch};

/// The file that holds a variant.
fn file_name(format: Format) -> &'static str {
    match format {
        Format::Gzip => "all.jsonl.gz",
        Format::Zstd => "all.jsonl.zst",
    }
}

/// The file that says where its stretches lie.
fn table_name(format: Format) -> String {
    format!("{}.json", file_name(format))
}

/// Smaller runs of blobs share a stretch: each costs some bytes and a place in the table.
const SMALLEST: u64 = 2 << 10;
/// Room for this part of the content is left on the disk.
const LEFT: u64 = 4;
/// The plain bytes after which the disk is looked at again.
const LOOK: u64 = 1 << 20;
/// At most this many plain bytes are coded for one request; beyond, the answer is not compressed.
const ON_THE_WAY: u64 = 1 << 20;

/// What is kept beside a coded file.
#[derive(Debug, Serialize, Deserialize)]
struct Table {
    /// SHA-256 of the whole file.
    digest: String,
    stretches: Vec<Stretch>,
}

/// A coded file and where its stretches lie.
#[derive(Debug)]
pub(crate) struct Variant {
    format: Format,
    file: Arc<File>,
    bytes: u64,
    table: Table,
}

impl Variant {
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The variant that an earlier process made, when it is complete.
    pub(super) fn load(snapshot: &Snapshot, format: Format) -> Option<Self> {
        let table = std::fs::read(snapshot.directory().join(table_name(format))).ok()?;
        let table: Table = serde_json::from_slice(&table).ok()?;
        let stretches = &table.stretches;
        let file = File::open(snapshot.directory().join(file_name(format))).ok()?;
        let bytes = file.metadata().ok()?.len();
        let adjoining =
            |a: &Stretch, b: &Stretch| a.plain.end == b.plain.start && a.coded.end == b.coded.start;
        let ordered = stretches
            .iter()
            .all(|s| s.plain.start <= s.plain.end && s.coded.start <= s.coded.end)
            && stretches
                .iter()
                .zip(stretches.iter().skip(1))
                .all(|(a, b)| adjoining(a, b));
        let ends = stretches
            .last()
            .is_none_or(|s| s.plain.end == snapshot.record().bytes && s.coded.end <= bytes);
        (ordered && ends).then(|| Self {
            format,
            file: Arc::new(file),
            bytes,
            table,
        })
    }
}

/// A variant that some ranges can be sent from.
#[derive(Debug, Clone)]
pub(crate) struct Covering {
    pub(crate) variant: Arc<Variant>,
    /// Plain bytes that are left to code on the way.
    pub(crate) left: u64,
}

/// A piece of an answer, in terms of the coded file.
enum Piece<'a> {
    Stored(&'a Stretch),
    /// Plain bytes that are only a part of a stretch.
    Plain(Range<u64>),
}

impl Snapshot {
    /// Makes the coded variant, unless there is one. `free` tells how many bytes the disk of a directory has room for: of
    /// those, a part is left to content that comes, which matters more.
    pub(super) fn compress(
        &self,
        format: Format,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        if self.variant(format).is_some() {
            return Ok(());
        }
        let made = self.make(format, go_on, free);
        if self.variant(format).is_none() {
            self.discard_variant(format);
        }
        made
    }

    fn make(
        &self,
        format: Format,
        go_on: &impl Fn() -> bool,
        free: &impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), StoreError> {
        // The table comes last: with it, the variant is complete.
        let name = file_name(format);
        let left = self.record().bytes / LEFT;
        let mut looked = None;
        let file = create(self.directory(), name)?;
        let mut coder =
            Coder::new(format, BufWriter::with_capacity(256 << 10, file)).context("write", name)?;
        for run in runs(self.index(), self.record().bytes) {
            if !go_on() {
                return Ok(());
            }
            if looked.is_none_or(|at| run.start - at >= LOOK) {
                looked = Some(run.start);
                if free(self.directory()).context("look at the disk of", name)? < left {
                    return Err(StoreError::NoRoom {
                        what: name.to_owned(),
                        left,
                    });
                }
            }
            let length = run.end - run.start;
            coder.stretch(length, self.chunks(run)).context("write", name)?;
        }
        let (out, stretches) = coder.finish().context("write", name)?;
        let file = out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .context("write", name)?;
        file.sync_data().context("write", name)?;
        let file = File::open(self.directory().join(name)).context("open", name)?;
        let bytes = file.metadata().context("open", name)?.len();
        let Some(digest) = digest(&file, bytes, go_on).context("read", name)? else {
            return Ok(());
        };
        let table = Table { digest, stretches };
        self.put(&table_name(format), |out| {
            serde_json::to_writer(out, &table).map_err(Into::into)
        })?;
        sync(self.directory())?;
        self.load_variant(format);
        Ok(())
    }

    /// Serves the variant that lies on the disk from now on, if there is one.
    pub(super) fn load_variant(&self, format: Format) {
        if let Some(variant) = Variant::load(self, format) {
            self.serve_variant(format, Some(Arc::new(variant)));
        }
    }

    /// Serves the variant no longer, and takes it away, when its bytes are not those that were written.
    pub(super) fn verify_variant(&self, format: Format, go_on: &impl Fn() -> bool) {
        let Some(variant) = self.variant(format) else {
            return;
        };
        let is_whole = match digest(&variant.file, variant.bytes, go_on) {
            Ok(digest) => digest.is_none_or(|digest| digest == variant.table.digest),
            Err(_) => false,
        };
        if !is_whole {
            let (catalog, file) = (&self.record().catalog, file_name(format));
            tracing::warn!(catalog, file, "a compressed variant is damaged and made anew");
            self.serve_variant(format, None);
            self.discard_variant(format);
        }
    }

    /// Removes what there is of a variant that is not served, so that it takes no room. Nothing may be there.
    fn discard_variant(&self, format: Format) {
        for name in [table_name(format), file_name(format).to_owned()] {
            let _ = std::fs::remove_file(self.directory().join(name));
        }
    }

    fn serve_variant(&self, format: Format, variant: Option<Arc<Variant>>) {
        *self.slot(format).write().unwrap_or_else(PoisonError::into_inner) = variant;
    }

    /// The coded variant, once there is one.
    pub(crate) fn variant(&self, format: Format) -> Option<Arc<Variant>> {
        let slot = self.slot(format).read().unwrap_or_else(PoisonError::into_inner);
        slot.clone()
    }

    fn slot(&self, format: Format) -> &RwLock<Option<Arc<Variant>>> {
        match format {
            Format::Gzip => &self.gzip,
            Format::Zstd => &self.zstd,
        }
    }

    /// The variant to send these ranges from, when nearly all of them lie in whole stretches.
    pub(crate) fn variant_covering(&self, format: Format, selected: &[Range<u64>]) -> Option<Covering> {
        let variant = self.variant(format)?;
        let left: u64 = pieces(&variant.table.stretches, selected)
            .map(|piece| match piece {
                Piece::Stored(_) => 0,
                Piece::Plain(range) => range.end - range.start,
            })
            .sum();
        (left <= ON_THE_WAY).then_some(Covering { variant, left })
    }

    /// The ranges as one coded stream.
    pub(crate) fn coded(&self, variant: &Variant, selected: &[Range<u64>]) -> io::Result<Body> {
        let (mut splice, header) = Splice::new(variant.format);
        let mut parts = vec![Part::Bytes(header)];
        for piece in pieces(&variant.table.stretches, selected) {
            match piece {
                Piece::Stored(stretch) => {
                    splice.stored(stretch);
                    match parts.last_mut() {
                        Some(Part::File(_, last)) if last.end == stretch.coded.start => {
                            last.end = stretch.coded.end;
                        }
                        _ => parts.push(Part::File(Arc::clone(&variant.file), stretch.coded.clone())),
                    }
                }
                Piece::Plain(range) => parts.push(Part::Bytes(splice.code(&self.read(range)?)?)),
            }
        }
        parts.push(Part::Bytes(splice.end()));
        Ok(Body::new(parts))
    }
}

/// The selection cut at the edges of the stretches. Both are in order.
fn pieces<'a>(stretches: &'a [Stretch], selected: &'a [Range<u64>]) -> impl Iterator<Item = Piece<'a>> {
    selected.iter().flat_map(move |range| {
        let first = stretches.partition_point(|stretch| stretch.plain.end <= range.start);
        let covered = stretches.get(first..).unwrap_or_default();
        covered
            .iter()
            .take_while(|stretch| stretch.plain.start < range.end)
            .map(|stretch| {
                let part = stretch.plain.start.max(range.start)..stretch.plain.end.min(range.end);
                if part == stretch.plain {
                    Piece::Stored(stretch)
                } else {
                    Piece::Plain(part)
                }
            })
    })
}

/// Stretches that questions ask for as a whole: neighbours of one schema and package.
fn runs(index: &Index, end: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let (mut start, mut last) = (0, ("", ""));
    for blob in index.iter() {
        let this = (blob.schema, blob.package);
        if this != last && blob.range.start - start >= SMALLEST {
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
