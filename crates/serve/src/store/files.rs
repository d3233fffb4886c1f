//! Files of a catalog's directory: names, creation, positioned reads, digests.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::error::{Context as _, StoreError};

/// The file with the content.
pub(super) const ALL: &str = "all.jsonl";
/// The file with the index.
pub(super) const INDEX: &str = "index";

/// Creates a file of the directory, or truncates it.
pub(super) fn create(directory: &Path, name: &str) -> Result<File, StoreError> {
    let path = directory.join(name);
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .context("create", name)
}

/// Writes the directory itself to the disk.
pub(super) fn sync(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|d| d.sync_all())
        .context("write", "the catalog's directory")
}

/// Writes a temporary file and renames it, so that the file is complete or absent.
pub(super) fn replace(
    directory: &Path,
    name: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), StoreError> {
    let partial = format!("{name}.new");
    let write = || {
        let mut out = BufWriter::new(create(directory, &partial)?);
        content(&mut out).context("write", name)?;
        let file = out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .context("write", name)?;
        file.sync_data().context("write", name)?;
        std::fs::rename(directory.join(&partial), directory.join(name)).context("rename", name)
    };
    // An unfinished file would only use space.
    write().inspect_err(|_| drop(std::fs::remove_file(directory.join(&partial))))
}

/// The bytes in that range.
pub(super) fn read(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// The range in pieces that fit into memory.
pub(super) fn chunks(file: &File, range: Range<u64>) -> impl Iterator<Item = io::Result<bytes::Bytes>> {
    const CHUNK: u64 = 256 << 10;
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min(at + CHUNK);
        let chunk = (at < end).then(|| read(file, at..end).map(bytes::Bytes::from));
        at = end;
        chunk
    })
}

/// SHA-256 of the first `bytes` of a file in hexadecimal; `None` when `go_on` ended it.
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
