//! What a good signature says, by whom, and what proves it.

use jiff::Timestamp;

/// What a signature says that is known to be good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The image that it is about.
    pub claim: Claim,
    /// Who made it.
    pub signer: Signer,
    /// When it was made, where something proves that.
    pub time: Option<Timestamp>,
    /// What else vouches for it.
    pub proof: Proof,
}

/// Which image a signature is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The digest of its manifest or index.
    pub digest: String,
    /// Its name, where the signature says one. Bundles do not.
    pub name: Option<String>,
}

/// Who made a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Whoever has this key.
    Key {
        /// The SHA-256 of the public key.
        fingerprint: String,
    },
    /// Whom a certificate names.
    Identity {
        /// The subject.
        subject: String,
        /// Who vouched for it: the issuer of the token, or of the certificate.
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

/// What vouches for a signature beside its key or certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// An entry of a transparency log.
    pub log: bool,
    /// A timestamp, or a time that a log gives.
    pub time: bool,
}
