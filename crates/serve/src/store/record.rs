//! The record of a stored catalog, beside its content.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::{Context as _, StoreError};

/// The version of the layout on disk; directories of other versions are removed and fetched again.
pub(crate) const FORMAT: u32 = 1;
/// The file with the record.
pub(crate) const RECORD: &str = "catalog.json";

/// The origin of content; the store does not interpret these texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The requested image reference by tag or digest, or a directory.
    pub requested: String,
    /// The resolved reference, by digest.
    pub resolved: String,
}

/// Findings of the whole-catalog check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The number of blobs.
    pub total: u64,
    /// The first findings, one line each.
    pub first: Vec<String>,
}

/// The facts about stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub(crate) format: u32,
    /// The catalog's name.
    pub catalog: String,
    /// The origin of the content.
    pub origin: Origin,
    /// SHA-256 of the content as `all` serves it, in hexadecimal: the base of every entity tag.
    pub digest: String,
    /// The time when this content was first stored under this name; `Last-Modified`.
    pub modified: Timestamp,
    /// The time when the directory was written.
    pub stored: Timestamp,
    /// Bytes of the content.
    pub bytes: u64,
    /// Blobs.
    pub blobs: u64,
    /// Blobs by schema; those without one count under the empty text.
    pub schemas: BTreeMap<String, u64>,
    /// Findings of the whole-catalog check.
    pub findings: Findings,
    /// SHA-256 of the index file, in hexadecimal.
    pub(crate) index_digest: String,
}

impl Record {
    pub(crate) fn load(directory: &Path) -> Result<Self, StoreError> {
        let text = std::fs::read(directory.join(RECORD)).context("read", RECORD)?;
        let record: Self = serde_json::from_slice(&text)
            .map_err(|error| StoreError::Damaged(format!("cannot read `{RECORD}`: {error}")))?;
        if record.format == FORMAT {
            Ok(record)
        } else {
            Err(StoreError::Damaged(format!("it has format {}", record.format)))
        }
    }
}
