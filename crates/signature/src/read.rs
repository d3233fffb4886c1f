//! A signature of either form, read.

use jiff::Timestamp;
use sigstore_verify::types::bundle::VerificationMaterialContent;
use sigstore_verify::types::{self, Sha256Hash};

use crate::attached::{Attached, AttachedContent, Parts};
use crate::attestation::Attestation;
use crate::bundle::Bundle;
use crate::error::SignatureError;
use crate::key::PublicKey;
use crate::statement::Statement;
use crate::trust::{Evidence, SignedContent, Trust};
use crate::verdict::{Claim, Proof};

/// A signature or an attestation as it was fetched, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A layer of the image at the tag `sha256-HEX.sig` or `sha256-HEX.att`.
    Attached(Attached),
    /// A bundle among the referrers of the image.
    Bundle(Bundle),
}

/// A signature that was read, with what is needed of either form.
pub(crate) enum Read<'signature> {
    Attached(&'signature Attached, Parts),
    Bundle(Box<types::Bundle>, types::DsseEnvelope),
}

impl<'signature> Read<'signature> {
    pub(crate) fn of(signature: &'signature Signature) -> Result<Self, SignatureError> {
        match signature {
            Signature::Attached(attached) => Ok(Self::Attached(attached, attached.parts()?)),
            Signature::Bundle(bundle) => {
                let (bundle, envelope) = bundle.read()?;
                Ok(Self::Bundle(Box::new(bundle), envelope))
            }
        }
    }

    /// The bytes that were signed, and the signature.
    pub(crate) fn signed(&self) -> (Vec<u8>, &[u8]) {
        match self {
            Self::Attached(attached, parts) => match &parts.content {
                AttachedContent::Signature(signature) => (attached.payload().to_vec(), signature),
                AttachedContent::Envelope(envelope) => of_envelope(envelope),
            },
            Self::Bundle(_, envelope) => of_envelope(envelope),
        }
    }

    /// The envelope with a statement, in the forms that have one.
    fn envelope(&self) -> Option<&types::DsseEnvelope> {
        match self {
            Self::Attached(_, parts) => match &parts.content {
                AttachedContent::Signature(_) => None,
                AttachedContent::Envelope(envelope) => Some(envelope),
            },
            Self::Bundle(_, envelope) => Some(envelope),
        }
    }

    /// The certificates that came with it, its own first.
    pub(crate) fn certificates(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Attached(_, parts) => parts.certificates.clone(),
            Self::Bundle(bundle, _) => match bundle.signing_certificate() {
                Some(certificate) => vec![certificate.as_bytes().to_vec()],
                None => Vec::new(),
            },
        }
    }

    /// The image that it signs, or that it is the attestation of. To be believed once the signature is verified.
    pub(crate) fn claim(&self, attestation: Option<&Attestation>) -> Result<Claim, SignatureError> {
        match (self.envelope(), self) {
            (Some(envelope), _) => statement(envelope)?.claim(attestation),
            (None, Self::Attached(attached, _)) if attestation.is_none() => attached.claim(),
            _ => Err(SignatureError::Predicate(
                "it is a signature, not an attestation".to_owned(),
            )),
        }
    }

    /// Checks the certificate, the signature by its key, and what proves its time.
    pub(crate) fn check_certificate(&self, trust: &Trust) -> Result<Evidence, SignatureError> {
        match self {
            Self::Attached(attached, parts) => {
                let bundle = attached.bundle(parts, true, trust.has_logs())?;
                trust.check_certificate(self.content(attached)?, bundle)
            }
            Self::Bundle(bundle, _) => {
                if bundle.signing_certificate().is_none() {
                    return Err(SignatureError::Material("certificate"));
                }
                trust.check_certificate(SignedContent::Digest(self.digest()?), (**bundle).clone())
            }
        }
    }

    /// Checks that one of the keys made it and that the log has it.
    pub(crate) fn check_key(&self, trust: &Trust, key: &PublicKey) -> Result<Evidence, SignatureError> {
        match self {
            Self::Attached(attached, parts) => {
                let bundle = attached.bundle(parts, false, true)?;
                trust.check_key(self.content(attached)?, bundle, key)
            }
            Self::Bundle(bundle, _) => {
                if !matches!(
                    bundle.verification_material.content,
                    VerificationMaterialContent::PublicKey(_)
                ) {
                    return Err(SignatureError::Material("key"));
                }
                trust.check_key(SignedContent::Digest(self.digest()?), (**bundle).clone(), key)
            }
        }
    }

    /// The content that the verifier compares with the signed content.
    fn content(&self, attached: &'signature Attached) -> Result<SignedContent<'signature>, SignatureError> {
        match self.envelope() {
            Some(_) => self.digest().map(SignedContent::Digest),
            None => Ok(SignedContent::Bytes(attached.payload())),
        }
    }

    /// The digest that the statement is about.
    fn digest(&self) -> Result<Sha256Hash, SignatureError> {
        let envelope = self
            .envelope()
            .ok_or_else(|| SignatureError::Form("it has no statement".to_owned()))?;
        let digest = statement(envelope)?.digest;
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        Sha256Hash::from_hex(hex).map_err(|error| SignatureError::Form(error.to_string()))
    }
}

fn statement(envelope: &types::DsseEnvelope) -> Result<Statement<'_>, SignatureError> {
    Statement::read(&envelope.payload_type, envelope.payload.as_bytes())
}

/// The signed bytes of an envelope, and the signature.
fn of_envelope(envelope: &types::DsseEnvelope) -> (Vec<u8>, &[u8]) {
    (envelope.pae(), envelope.signature.sig.as_bytes())
}

/// The earliest time that is proven, and what vouches.
pub(crate) fn proven(found: &Evidence) -> (Option<Timestamp>, Proof) {
    let time = found.result.verified_timestamps().iter().min().copied();
    let proof = Proof {
        log: found.entry.clone(),
        time: time.is_some(),
    };
    (time, proof)
}
