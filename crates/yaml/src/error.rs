//! Errors, with their places.

use std::fmt;

/// A place in a text. Both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, counted over the whole stream.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// The reason why a text could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{position}: {kind}")]
pub struct Error {
    /// The place of the fault.
    pub position: Position,
    /// The fault.
    pub kind: ErrorKind,
}

/// A fault in a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text breaks the grammar of YAML.
    #[error("{0}")]
    Syntax(String),
    /// The text breaks the grammar of JSON and is not YAML either.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// The text is not UTF-8.
    #[error("the text is not valid UTF-8")]
    Encoding,
    /// Reading the stream failed.
    #[error("reading failed")]
    Read(#[source] std::io::Error),
    /// Something other than a comment follows `---` on its line.
    #[error("invalid Yaml document separator: {0}")]
    Separator(String),
    /// A document is larger than [`Limits::bytes`](crate::Limits::bytes).
    #[error("the document is larger than {0} bytes")]
    TooLarge(usize),
    /// Nesting exceeds [`Limits::depth`](crate::Limits::depth).
    #[error("more than {0} levels of nesting")]
    TooDeep(usize),
    /// The result exceeds [`Limits::nodes`](crate::Limits::nodes).
    #[error("more than {0} values")]
    TooManyNodes(usize),
    /// Aliases multiply a small text into a large result.
    #[error("document contains excessive aliasing")]
    ExcessiveAliasing,
    /// An anchor's value refers to itself.
    #[error("an anchor's value contains itself")]
    SelfReference,
    /// A key is a mapping, a sequence, null, or a number beyond 63 bits.
    #[error("unsupported map key: {0}")]
    Key(String),
    /// A key occurs twice in one mapping, and the limits require
    /// [`DuplicateKeys::Refuse`](crate::DuplicateKeys::Refuse).
    #[error("key {0:?} already set in map")]
    DuplicateKey(String),
    /// The value of `<<` is not a mapping nor a sequence of mappings.
    #[error("map merge requires map or sequence of maps as the value")]
    Merge,
    /// A scalar does not have the type of its tag.
    #[error("cannot decode {found} `{text}` as a {wanted}")]
    Tag {
        /// The type that the text has alone.
        found: &'static str,
        /// The beginning of the text.
        text: String,
        /// The type that the tag requires.
        wanted: &'static str,
    },
    /// `!!binary` with text that is not base64.
    #[error("!!binary value contains invalid base64 data")]
    Binary,
    /// Infinity or not-a-number, which JSON cannot represent.
    #[error("unsupported value: {0}")]
    NotFinite(&'static str),
}

impl Error {
    pub(crate) fn new(line: usize, column: usize, kind: ErrorKind) -> Self {
        Self {
            position: Position { line, column },
            kind,
        }
    }

    /// Moves the error down by `lines`, from a document's own count to that of its stream.
    pub(crate) fn shifted(mut self, lines: usize) -> Self {
        self.position.line += lines;
        self
    }
}
