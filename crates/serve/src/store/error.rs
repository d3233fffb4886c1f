//! Failures of the store.

use std::io;

/// A failure of the store. Texts name no temporary path, so that they stay the same from one attempt to the next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name is no RFC 1123 subdomain.
    #[error("`{0}` is not a valid catalog name")]
    Name(String),
    /// The file system returned an error.
    #[error("cannot {operation} `{what}`")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory, without the path to it.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The catalog exceeds the limit of bytes.
    #[error("the catalog holds more than {0} bytes")]
    TooLarge(u64),
    /// The catalog exceeds the limit of blobs.
    #[error("the catalog holds more than {0} blobs")]
    TooMany(u64),
    /// The index of the catalog exceeds the limit of memory.
    #[error("the schemas, packages and names of the catalog take more than {} MiB", .0 >> 20)]
    IndexTooLarge(usize),
    /// A compressed variant would use space that new content needs.
    #[error("cannot write `{what}` while the disk has fewer than {left} free bytes")]
    NoRoom {
        /// The file.
        what: String,
        /// The bytes that must stay free.
        left: u64,
    },
    /// The files on the disk have changed.
    #[error("the stored catalog is damaged: {0}")]
    Damaged(String),
}

/// Adds the operation and its object to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, operation: &'static str, what: &str) -> Result<T, StoreError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, operation: &'static str, what: &str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io {
            operation,
            what: what.to_owned(),
            source,
        })
    }
}
