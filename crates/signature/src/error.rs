//! Reasons why signatures do not count.

/// Reason why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Its form, a field or an algorithm is not known, or it is larger than allowed.
    #[error("it cannot be read: {0}")]
    Form(String),
    /// The bytes were not signed with the key that they must be signed with.
    #[error("it was not made with {0}")]
    Key(&'static str),
    /// It has a key where a certificate is asked for, or the reverse.
    #[error("it has no {0}")]
    Material(&'static str),
    /// The certificate is not one that the trust root vouches for at the time of the signature.
    #[error("its certificate is not accepted: {0}")]
    Certificate(String),
    /// The certificate is for somebody else.
    #[error("it is by {found}, not by {wanted}")]
    Identity {
        /// The actual signer.
        found: String,
        /// The required signer.
        wanted: String,
    },
    /// The transparency log does not vouch for it.
    #[error("the transparency log does not prove it: {0}")]
    Log(String),
    /// There is no proof of when it was made, or a wrong one.
    #[error("nothing proves when it was made: {0}")]
    Time(String),
    /// The attestation is another one than the policy asks for.
    #[error("{0}")]
    Predicate(String),
    /// It is for another image.
    #[error("it is for {0}")]
    Digest(String),
}

impl SignatureError {
    /// The kind of fault in one word, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Form(_) | Self::Material(_) => "form",
            Self::Key(_) => "key",
            Self::Certificate(_) => "certificate",
            Self::Identity { .. } => "identity",
            Self::Log(_) => "log",
            Self::Time(_) => "time",
            Self::Predicate(_) => "predicate",
            Self::Digest(_) => "digest",
        }
    }

    /// The fault that an error of the verifier means.
    pub(crate) fn of(error: &sigstore_verify::Error) -> Self {
        use sigstore_verify::Error;
        match error {
            Error::SignatureInvalid(_) => Self::Key("the key of its certificate or log entry"),
            Error::ArtifactMismatch(_) => Self::Digest("other content".to_owned()),
            Error::Certificate(source) => Self::Certificate(source.to_string()),
            Error::TransparencyLog(source) => Self::Log(source.to_string()),
            Error::Timestamp(source) => Self::Time(source.to_string()),
            Error::Bundle(source) => match source {
                sigstore_verify::bundle::Error::MissingInclusionPromise(_)
                | sigstore_verify::bundle::Error::MissingInclusionProof(_)
                | sigstore_verify::bundle::Error::MissingCheckpoint => {
                    Self::Log("there is no entry with a proof of the log".to_owned())
                }
                sigstore_verify::bundle::Error::MissingSigningTimeEvidence
                | sigstore_verify::bundle::Error::MissingTimestamp => Self::Time(source.to_string()),
                _ => Self::Form(source.to_string()),
            },
            other => Self::Form(other.to_string()),
        }
    }
}
