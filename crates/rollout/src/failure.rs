//! Failures of requests to an API server, by what follows from them.

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// What the server said.
    pub message: String,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The object is not as it was seen: look again.
    Conflict,
    /// The cluster has no such kind, said by the server when it was asked for just that.
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
