//! Failures of requests to an API server, classified by their consequence.

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFailure {
    /// The class.
    pub kind: FailureKind,
    /// The server's message.
    pub message: String,
    /// The status code; 0 when the server did not answer.
    pub code: u16,
    /// The reason of the server, `BadRequest`; empty if there is none.
    pub reason: String,
    /// The fields that the server names as causes, `spec.conversion`.
    pub fields: Vec<String>,
}

impl RequestFailure {
    /// A failure with a message alone.
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

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The object has changed: read it again.
    Conflict,
    /// The cluster does not serve the kind, according to the discovery of its group.
    UnknownKind,
    /// The object's namespace does not exist.
    MissingNamespace,
    /// The account lacks the permission.
    Forbidden,
    /// The object is invalid.
    Invalid,
    /// The request can be retried.
    Transient,
}

impl FailureKind {
    /// Whether a user must act before a retry succeeds.
    pub fn needs_user(self) -> bool {
        match self {
            Self::Forbidden | Self::UnknownKind | Self::MissingNamespace | Self::Invalid => true,
            Self::Conflict | Self::Transient => false,
        }
    }
}
