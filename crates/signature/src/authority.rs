//! Trusted signers, and the check of a signature against them.

use jiff::{SignedDuration, Timestamp};
use sigstore_verify::crypto::SubjectAltName;

use crate::attestation::Attestation;
use crate::error::SignatureError;
use crate::identity::Identities;
use crate::key::PublicKey;
use crate::pki::Pki;
use crate::read::{Read, Signature, proven};
use crate::trust::Trust;
use crate::verdict::{Proof, Signer, SignerEvidence, Verified};

/// Largest lead of the clock of a log or timestamp authority over the local clock.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Trusted signers, and the proofs that their signatures need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// One of these keys; where a log is named, it must have an entry of the signature.
    Keys {
        /// The keys.
        keys: Vec<PublicKey>,
        /// The transparency log.
        log: Option<Trust>,
    },
    /// Somebody with one of these identities, by a certificate that was valid when the signature was made.
    Certificate {
        /// Authorities for identities, log entries and timestamps.
        trust: Trust,
        /// The identities.
        identities: Identities,
    },
    /// The owner of a certificate of an authority of one's own.
    Pki(Pki),
}

impl Authority {
    /// Whether this signature is by a required signer, has the required proofs, and is about one of the digests. With
    /// an attestation it must be that statement; without one, a signature of the image.
    ///
    /// # Errors
    /// The fault of the signature.
    pub fn check(
        &self,
        signature: &Signature,
        attestation: Option<&Attestation>,
        digests: &[String],
        now: Timestamp,
    ) -> Result<Verified, SignatureError> {
        let read = Read::of(signature)?;
        let (signer, time, proof) = match self {
            Self::Keys { keys, log } => by_key(&read, keys, log.as_ref())?,
            Self::Certificate { trust, identities } => by_certificate(&read, trust, identities)?,
            Self::Pki(pki) => pki.check(&read, now)?,
        };
        if let Some(time) = time
            && time > now.saturating_add(SKEW).unwrap_or(now)
        {
            return Err(SignatureError::Time(format!("{time} is in the future")));
        }
        // Only verified content is believed.
        let claim = read.claim(attestation)?;
        if !digests.contains(&claim.digest) {
            return Err(SignatureError::Digest(claim.digest));
        }
        Ok(Verified {
            claim,
            signer,
            time,
            proof,
        })
    }
}

fn by_key(
    read: &Read<'_>,
    keys: &[PublicKey],
    log: Option<&Trust>,
) -> Result<SignerEvidence, SignatureError> {
    let (message, signature) = read.signed();
    let key = keys
        .iter()
        .find(|key| key.verifies(&message, signature))
        .ok_or(SignatureError::Key("a trusted key"))?;
    let signer = Signer::Key {
        fingerprint: key.fingerprint(),
    };
    let Some(log) = log else {
        return Ok((signer, None, Proof::default()));
    };
    let found = read.check_key(log, key)?;
    let (time, proof) = proven(&found);
    Ok((signer, time, proof))
}

fn by_certificate(
    read: &Read<'_>,
    trust: &Trust,
    identities: &Identities,
) -> Result<SignerEvidence, SignatureError> {
    let found = read.check_certificate(trust)?;
    let (subject, email) = match found.result.identity() {
        Some(SubjectAltName::Email(text)) => (text.as_str(), true),
        Some(other) => (other.as_str(), false),
        None => return Err(SignatureError::Certificate("it names no identity".to_owned())),
    };
    let issuer = found
        .result
        .issuer()
        .ok_or_else(|| SignatureError::Certificate("it names no issuer of the identity".to_owned()))?;
    identities.check(subject, email, issuer)?;
    let signer = Signer::Identity {
        subject: subject.to_owned(),
        issuer: issuer.to_owned(),
    };
    let (time, proof) = proven(&found);
    Ok((signer, time, proof))
}
