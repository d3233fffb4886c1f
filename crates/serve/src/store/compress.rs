//! The coded variant of stored content: made once, served without work.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::sync::Arc;

use olm_fbc::index::Index;

use super::error::{Context as _, StoreError};
use super::snapshot::Snapshot;
use super::writer::{create, sync, write};
use crate::answer::{Body, Coding, Part};
use crate::deflate::{Coder, Splice, Stretch};

const GZIP: &str = "all.jsonl.gz";
const STRETCHES: &str = "all.jsonl.gz.json";
/// Smaller runs of blobs share a stretch: each costs some bytes and a place in the table.
const SMALLEST: u64 = 2 << 10;
/// At most this many plain bytes are coded for one request; beyond, the answer is not compressed.
const ON_THE_WAY: u64 = 1 << 20;

/// A gzip file and where its stretches lie.
#[derive(Debug)]
pub(crate) struct Gzip {
    file: Arc<File>,
    bytes: u64,
    stretches: Vec<Stretch>,
}

impl Gzip {
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The variant that an earlier process made, when it is complete.
    pub(super) fn load(snapshot: &Snapshot) -> Option<Self> {
        let table = std::fs::read(snapshot.directory().join(STRETCHES)).ok()?;
        let stretches: Vec<Stretch> = serde_json::from_slice(&table).ok()?;
        let file = File::open(snapshot.directory().join(GZIP)).ok()?;
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
            .is_none_or(|s| s.plain.end == snapshot.record().bytes && s.coded.end < bytes);
        (ordered && ends).then(|| Self {
            file: Arc::new(file),
            bytes,
            stretches,
        })
    }
}

/// A piece of an answer, in terms of the coded file.
enum Piece<'a> {
    Stored(&'a Stretch),
    /// Plain bytes that are only a part of a stretch.
    Plain(Range<u64>),
}

impl Snapshot {
    /// Makes the coded variant, unless there is one.
    pub(super) fn compress(&self, go_on: &impl Fn() -> bool) -> Result<(), StoreError> {
        if self.gzip.get().is_some() {
            return Ok(());
        }
        // The table comes last: with it, the variant is complete.
        let file = create(self.directory(), GZIP)?;
        let mut coder = Coder::new(BufWriter::with_capacity(256 << 10, file)).context("write", GZIP)?;
        for run in runs(self.index(), self.record().bytes) {
            if !go_on() {
                return Ok(());
            }
            coder.stretch(self.chunks(run)).context("write", GZIP)?;
        }
        let (out, stretches) = coder.finish().context("write", GZIP)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .context("write", GZIP)?;
        file.sync_data().context("write", GZIP)?;
        let table = serde_json::to_vec(&stretches).unwrap_or_default();
        let partial = format!("{STRETCHES}.new");
        write(self.directory(), &partial, &table)?;
        std::fs::rename(self.directory().join(partial), self.directory().join(STRETCHES))
            .context("put in place", STRETCHES)?;
        sync(self.directory())?;
        if let Some(gzip) = Gzip::load(self) {
            let _ = self.gzip.set(gzip);
        }
        Ok(())
    }

    /// The coded variant, once there is one.
    pub(crate) fn gzip(&self) -> Option<&Gzip> {
        self.gzip.get()
    }

    /// How an answer of these ranges can be sent: as gzip when nearly all of it lies in whole stretches.
    pub(crate) fn gzip_covers(&self, selected: &[Range<u64>]) -> Coding {
        let Some(gzip) = self.gzip.get() else {
            return Coding::Identity;
        };
        let plain: u64 = pieces(&gzip.stretches, selected)
            .map(|piece| match piece {
                Piece::Stored(_) => 0,
                Piece::Plain(range) => range.end - range.start,
            })
            .sum();
        if plain <= ON_THE_WAY {
            Coding::Gzip
        } else {
            Coding::Identity
        }
    }

    /// The ranges as one gzip stream.
    pub(crate) fn gzip_of(&self, selected: &[Range<u64>]) -> std::io::Result<Body> {
        let Some(gzip) = self.gzip.get() else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        let (mut splice, header) = Splice::new();
        let mut parts = vec![Part::Bytes(header)];
        for piece in pieces(&gzip.stretches, selected) {
            match piece {
                Piece::Stored(stretch) => {
                    splice.stored(stretch);
                    match parts.last_mut() {
                        Some(Part::File(_, last)) if last.end == stretch.coded.start => {
                            last.end = stretch.coded.end;
                        }
                        _ => parts.push(Part::File(Arc::clone(&gzip.file), stretch.coded.clone())),
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
