//! The stored content of a catalog: the blobs, their index and the record.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_fbc::index::Index;

use super::error::{Context as _, StoreError};
use super::files::{self, ALL};
use super::record::Record;

/// Stored content with its file open: readable as long as the value exists, even if its directory is removed.
#[derive(Debug)]
pub(super) struct StoredContent {
    pub(super) directory: PathBuf,
    pub(super) record: Record,
    pub(super) index: Index,
    pub(super) all: Arc<File>,
}

impl StoredContent {
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
        Ok(Self {
            directory: directory.to_owned(),
            record,
            index,
            all: Arc::new(all),
        })
    }

    /// The bytes in that range.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        files::read(&self.all, range)
    }
}
