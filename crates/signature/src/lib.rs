//! Signatures of images: who made them, of what, and when. Bytes, trust and the time go in, a verdict comes out;
//! nothing is fetched. Only that no log entry is of the future, the library beneath compares with the clock of the
//! machine itself.
//!
//! Two forms are known, those that cosign writes: a layer of the image at the tag `sha256-HEX.sig` with annotations
//! ([`Attached`]), and a Sigstore bundle among the referrers of the image ([`Bundle`]). Attestations have the same
//! forms; their tag is `sha256-HEX.att`. Forms, fields and algorithms that are not known are refused.

mod attached;
mod attestation;
mod authority;
mod bundle;
mod error;
mod identity;
mod json;
mod key;
mod pki;
mod read;
mod statement;
mod trust;
mod verdict;

pub use attached::{Attached, ENVELOPE, SIGNATURE_ANNOTATION, SIMPLE_SIGNING};
pub use attestation::{ATTESTATION_BYTES, Attestation};
pub use authority::Authority;
pub use bundle::{BUNDLE, BUNDLE_BYTES, Bundle};
pub use error::SignatureError;
pub use identity::{Identities, Identity, Pattern};
pub use json::{JsonError, Shape, WHOLE_DOCUMENT, check_names, read_json};
pub use key::PublicKey;
pub use pki::{Pki, Subject};
pub use read::Signature;
pub use statement::SIGNATURE_PREDICATE_TYPE;
pub use trust::{ROOT_BYTES, Trust};
pub use verdict::{Claim, LogEntry, Proof, Signer, Verified};

#[cfg(test)]
mod tests;
