//! Result of a verified signature: its claim, its signer and its proofs.

use jiff::Timestamp;

/// A verified signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The image that it is about.
    pub claim: Claim,
    /// The signer.
    pub signer: Signer,
    /// The time of the signature, where something proves it.
    pub time: Option<Timestamp>,
    /// Further proofs.
    pub proof: Proof,
}

/// The signer, the time of the signature where something proves it, and further proofs.
pub(crate) type SignerEvidence = (Signer, Option<Timestamp>, Proof);

/// The image that a signature is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The digest of its manifest or index.
    pub digest: String,
    /// Its name, where the signature says one. Bundles do not.
    pub name: Option<String>,
}

/// Signer of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The holder of this key.
    Key {
        /// The SHA-256 of the public key.
        fingerprint: String,
    },
    /// The subject of a certificate.
    Identity {
        /// The subject.
        subject: String,
        /// The issuer of the token, or of the certificate.
        issuer: String,
    },
}

impl std::fmt::Display for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key { fingerprint } => write!(formatter, "key {fingerprint}"),
            Self::Identity { subject, issuer } => write!(formatter, "{subject} (issuer {issuer})"),
        }
    }
}

/// Proofs of a signature beside its key or certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The entry of a transparency log.
    pub log: Option<LogEntry>,
    /// A timestamp, or a time that a log gives.
    pub time: bool,
}

/// An entry of a transparency log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The identifier of the log, in base64.
    pub log: String,
    /// The index of the entry in it.
    pub index: u64,
}
