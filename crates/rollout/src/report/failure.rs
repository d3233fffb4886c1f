//! Failures of requests to an API server, by what follows from them.

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// The server's message.
    pub message: String,
    /// The status code; 0 when the server did not answer.
    pub code: u16,
    /// The reason that the server names, `BadRequest`; empty when it names none.
    pub reason: String,
    /// The fields that the server names as causes, `spec.conversion`.
    pub fields: Vec<String>,
}

impl Failure {
    /// A failure about which the server says no more than a message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: 0,
            reason: String::new(),
            fields: Vec::new(),
        }
    }
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The object is not as it was seen: read it again.
    Conflict,
    /// The cluster has no such kind: the server says so when it is asked for just that kind.
    UnknownKind,
    /// The object's namespace does not exist.
    MissingNamespace,
    /// The account may not.
    Forbidden,
    /// The server refuses the object as it is.
    Invalid,
    /// Worth another try.
    Transient,
}
