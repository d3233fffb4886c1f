//! Writes a catalog's files into the store, blob by blob.

use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use olm_fbc::ignore::{FILE_NAME, Ignore};
use olm_fbc::meta::{self, Meta, MetaError, MetaErrorKind};

use crate::store::{StoreError, Writer};

/// The largest `.indexignore` that is read, in bytes.
const IGNORE_BYTES: u64 = 1 << 20;

/// The reason why a catalog's files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file, relative to the catalog's root.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// A file contains a document that is not a blob.
    #[error("`{path}`{}", at(.source))]
    Blob {
        /// The file, relative to the catalog's root.
        path: String,
        /// The fault.
        source: MetaError,
    },
    /// The store refuses the content.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller has cancelled the work.
    #[error("given up")]
    Stopped,
}

/// The line at which a faulty document begins, unless the fault has a more precise place.
fn at(error: &MetaError) -> String {
    match error.kind {
        MetaErrorKind::Syntax(_) => String::new(),
        _ => format!(", line {}", error.line),
    }
}

/// Reads the files of a catalog, given in the order of a walk with paths relative to its root, into the store. Files in
/// `.indexignore` are left out. `open` opens a file and may be called twice for a `.indexignore`. `each` is called with
/// every blob and its file, after it was written. Only one blob at a time is in memory.
///
/// # Errors
/// When a file cannot be read, contains a document that is not a blob, or the store refuses the content.
pub fn ingest<'a, R: Read>(
    writer: &mut Writer,
    paths: impl Iterator<Item = &'a str> + Clone,
    open: impl Fn(&str) -> io::Result<R>,
    mut each: impl FnMut(&str, &Meta) -> ControlFlow<()>,
) -> Result<(), IngestError> {
    let unreadable = |path: &str, source| IngestError::Read {
        path: path.to_owned(),
        source,
    };
    let mut ignore = Ignore::new();
    for path in paths
        .clone()
        .filter(|path| path.rsplit('/').next() == Some(FILE_NAME))
    {
        let mut text = Vec::new();
        open(path)
            .and_then(|file| file.take(IGNORE_BYTES + 1).read_to_end(&mut text))
            .map_err(|source| unreadable(path, source))?;
        if text.len() as u64 > IGNORE_BYTES {
            return Err(unreadable(path, io::ErrorKind::FileTooLarge.into()));
        }
        ignore.add(path, &String::from_utf8_lossy(&text));
    }
    let limits = meta::limits();
    for path in paths.filter(|path| !ignore.is_ignored(path)) {
        let file = open(path).map_err(|source| unreadable(path, source))?;
        for blob in meta::metas(BufReader::with_capacity(64 << 10, file), &limits) {
            let blob = blob.map_err(|source| IngestError::Blob {
                path: path.to_owned(),
                source,
            })?;
            writer.push(&blob.schema, &blob.package, &blob.name, blob.line.as_bytes())?;
            if each(path, &blob).is_break() {
                return Err(IngestError::Stopped);
            }
        }
    }
    Ok(())
}
