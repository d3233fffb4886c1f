//! Errors of unpacking layers.

use std::io;

#[cfg(doc)]
use crate::limits::Limits;

/// Error of unpacking a layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The bytes are no tar archive, or a broken or truncated one.
    #[error("corrupt or truncated layer")]
    Corrupt(#[source] io::Error),
    /// A compression that is not supported.
    #[error("the layer is compressed with {0}, which is not supported")]
    Compression(&'static str),
    /// Bytes of files could not be stored.
    #[error("cannot store the content of `{path}`")]
    Store {
        /// The path in the image.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// More entries than [`Limits::entries`].
    #[error("the image has more than {limit} entries")]
    Entries {
        /// The limit.
        limit: u64,
    },
    /// More bytes than [`Limits::unpacked_bytes`].
    #[error("the image unpacks to more than {limit} bytes")]
    UnpackedBytes {
        /// The limit.
        limit: u64,
    },
    /// More bytes than [`Limits::kept_bytes`].
    #[error("the files to keep are larger than {limit} bytes together")]
    KeptBytes {
        /// The limit.
        limit: u64,
    },
    /// More bytes than [`Limits::kept_bytes`] when a link counts as the file that it leads to, as it does for readers.
    #[error("the files to keep and the links to them are larger than {limit} bytes together")]
    LinkedBytes {
        /// The limit.
        limit: u64,
    },
    /// Links that lead through more other links than is worth the time.
    #[error("following the links of the image takes more than {limit} steps")]
    LinkSteps {
        /// The limit.
        limit: u64,
    },
    /// Longer than [`Limits::time`].
    #[error("unpacking takes longer than {seconds} seconds")]
    Time {
        /// The limit.
        seconds: u64,
    },
    /// A file larger than [`Limits::file_bytes`].
    #[error("file `{path}` is larger than {limit} bytes")]
    FileBytes {
        /// The path in the image.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// Longer paths and targets of links together than [`Limits::paths_bytes`].
    #[error("the paths of the files to keep have more than {limit} bytes together")]
    PathsBytes {
        /// The limit.
        limit: u64,
    },
    /// A layer that grows more than [`Limits::ratio`] times.
    #[error("a layer unpacks to more than {limit} times its compressed size")]
    Ratio {
        /// The limit.
        limit: u64,
    },
    /// A path below more directories than [`Limits::depth`].
    #[error("path `{path}` is deeper than {limit} directories")]
    Depth {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path component longer than [`Limits::name_bytes`].
    #[error("a name in `{path}` is longer than {limit} bytes")]
    Name {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path longer than [`Limits::path_bytes`].
    #[error("path `{path}` is longer than {limit} bytes")]
    Path {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path that leaves the image, is not UTF-8 or holds a NUL.
    #[error("path `{path}` is not allowed")]
    Escape {
        /// The path in the image, shortened.
        path: String,
    },
    /// A hard link to something that is not among the files to keep.
    #[error("hard link `{path}` leads to `{target}`, which is not there")]
    HardLink {
        /// The path in the image, shortened.
        path: String,
        /// The target of the link, shortened.
        target: String,
    },
    /// A device, a pipe or another kind of entry that no catalog or bundle holds.
    #[error("`{path}` is not a file, directory or link")]
    Kind {
        /// The path in the image, shortened.
        path: String,
    },
}

pub(super) fn escape(path: &str) -> LayerError {
    LayerError::Escape { path: shorten(path) }
}

/// A path for a message: without control characters, and not longer than a line.
pub(super) fn shorten(path: &str) -> String {
    path.chars()
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .take(120)
        .collect()
}
