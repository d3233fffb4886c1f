//! What can go wrong with the store.

use std::io;

/// A failure of the store. Texts name no temporary path, so that they stay the same from one attempt to the next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name could not be a directory or the name of an object.
    #[error("`{0}` is no name for a catalog")]
    Name(String),
    /// The file system said no.
    #[error("cannot {operation} `{what}`")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory, without the path to it.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The catalog holds more bytes than the limit.
    #[error("the catalog holds more than {0} bytes")]
    TooLarge(u64),
    /// The catalog holds more blobs than the limit.
    #[error("the catalog holds more than {0} blobs")]
    TooMany(u64),
    /// What is made besides the content would take room that content needs.
    #[error("`{what}` is not made while fewer than {left} bytes of the disk are free")]
    NoRoom {
        /// The file.
        what: String,
        /// The bytes that have to stay free.
        left: u64,
    },
    /// What lies on the disk is not what was written.
    #[error("the stored catalog is damaged: {0}")]
    Damaged(String),
}

/// Names what was tried when an input or output fails.
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
