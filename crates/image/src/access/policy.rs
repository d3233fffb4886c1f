//! Which images may be used: the format `policy.json`.
//!
//! A policy that cannot be read, or that asks for a check that is not made here, lets nothing through. Without any policy
//! everything is accepted; whoever sets that up says so.

mod parse;
mod signature;

use std::collections::BTreeMap;

pub use parse::PolicyError;
pub(crate) use signature::{Payload, SIGNATURE_ANNOTATION, SIMPLE_SIGNING};

use crate::digest::Digest;
use crate::reference::Reference;
use signature::PublicKey;

/// The most signatures of one image that are looked at.
pub(crate) const SIGNATURES: usize = 64;

/// What an image has to satisfy, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    default: Vec<Requirement>,
    /// By scope; the empty text is what holds for every registry.
    registries: BTreeMap<String, Vec<Requirement>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::accept_anything()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Accept,
    Reject,
    /// Signatures of a kind that is not checked here.
    SignedBy,
    Signed(Signed),
}

/// A signature that an image has to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// One of these has to have made it.
    keys: Vec<PublicKey>,
    identity: Identity,
}

/// Which name a signature has to be about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// The same reference.
    Exact,
    /// The same repository when the image is named by digest, else the same reference.
    RepositoryOrExact,
    /// The same repository.
    Repository,
    /// This reference.
    ExactReference(Reference),
    /// This repository.
    ExactRepository(String),
    /// The same, with one prefix in the place of another.
    Remap { prefix: String, signed_prefix: String },
}

/// Why an image may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The policy says so.
    #[error("the signature policy rejects it (scope {scope})")]
    Rejected {
        /// Which entry of the policy.
        scope: String,
    },
    /// The policy asks for a GPG signature.
    #[error(
        "the signature policy asks for `signedBy` (scope {scope}), which is not supported; use `sigstoreSigned`"
    )]
    SignedBy {
        /// Which entry of the policy.
        scope: String,
    },
    /// It is not signed.
    #[error("the signature policy asks for a signature, and there is none at tag {tag}")]
    Unsigned {
        /// Where signatures are looked for.
        tag: String,
    },
    /// There are signatures, and none of them will do.
    #[error("no signature satisfies the signature policy: {}", .reasons.join("; "))]
    Signature {
        /// What is wrong with each.
        reasons: Vec<String>,
    },
}

impl Policy {
    /// The policy that asks for nothing.
    pub fn accept_anything() -> Self {
        Self {
            default: vec![Requirement::Accept],
            registries: BTreeMap::new(),
        }
    }

    /// Reads a policy; `key` gives the content of a key file that it names.
    pub fn parse(text: &str, key: impl Fn(&str) -> std::io::Result<Vec<u8>>) -> Result<Self, PolicyError> {
        parse::policy(text, &key)
    }

    /// What an image must be signed with, as far as its name decides it.
    pub(crate) fn admit(&self, reference: &Reference) -> Result<Vec<&Signed>, Refusal> {
        let (scope, requirements) = self.requirements(reference);
        let scope = || {
            if scope.is_empty() {
                "default".to_owned()
            } else {
                format!("{scope:?}")
            }
        };
        let mut signed = Vec::new();
        for requirement in requirements {
            match requirement {
                Requirement::Accept => {}
                Requirement::Reject => return Err(Refusal::Rejected { scope: scope() }),
                Requirement::SignedBy => return Err(Refusal::SignedBy { scope: scope() }),
                Requirement::Signed(one) => signed.push(one),
            }
        }
        Ok(signed)
    }

    /// The entry of the most particular scope: the reference, its repository, what is above it, the host, the domains above
    /// the host, every registry, and the default.
    fn requirements(&self, reference: &Reference) -> (String, &[Requirement]) {
        for scope in scopes(reference) {
            if let Some(requirements) = self.registries.get(&scope) {
                return (scope, requirements);
            }
        }
        (String::new(), &self.default)
    }
}

fn scopes(reference: &Reference) -> Vec<String> {
    let name = reference.name();
    let mut scopes = vec![reference.to_string(), name.clone()];
    let mut rest = name.as_str();
    while let Some((parent, _)) = rest.rsplit_once('/') {
        scopes.push(parent.to_owned());
        rest = parent;
    }
    let mut host = rest.split(':').next().unwrap_or_default();
    while let Some((_, domain)) = host.split_once('.') {
        scopes.push(format!("*.{domain}"));
        host = domain;
    }
    scopes.push(String::new());
    scopes
}

impl Signed {
    /// Whether this signature, as base64, is one over the payload, by one of the keys, for one of the digests, and about
    /// the image.
    pub(crate) fn check(
        &self,
        payload: &[u8],
        signature: &str,
        digests: &[Digest],
        image: &Reference,
    ) -> Result<(), String> {
        let signature = signature::decode(signature)?;
        if !self.keys.iter().any(|key| key.verifies(payload, &signature)) {
            return Err("it was not made with a key of the policy".to_owned());
        }
        // Only what is verified is read.
        let payload = Payload::parse(payload)?;
        if !digests.iter().any(|digest| digest.to_string() == payload.digest) {
            return Err(format!("it is for {}", payload.digest));
        }
        if self.identity.fits(&payload.reference, image) {
            Ok(())
        } else {
            Err(format!(
                "it is about {:?}, which does not match {:?}",
                payload.reference,
                image.to_string()
            ))
        }
    }
}

impl Identity {
    fn fits(&self, signed: &str, image: &Reference) -> bool {
        let Ok(signed) = Reference::parse_familiar(signed) else {
            return false;
        };
        let same_repository = |other: &Reference| signed.name() == other.name();
        // A name without a tag and a digest is about nothing in particular.
        let same = |other: &Reference| {
            (other.tag().is_some() || other.digest().is_some()) && signed.to_string() == other.to_string()
        };
        match self {
            Self::Repository => same_repository(image),
            Self::Exact => same(image),
            Self::RepositoryOrExact => match image.digest() {
                Some(_) => same_repository(image),
                None => same(image),
            },
            Self::ExactReference(reference) => same(reference),
            Self::ExactRepository(name) => signed.name() == *name,
            Self::Remap {
                prefix,
                signed_prefix,
            } => {
                let text = image.to_string();
                let rest = text
                    .strip_prefix(prefix.as_str())
                    .filter(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']));
                let expected = rest.map_or(text.clone(), |rest| format!("{signed_prefix}{rest}"));
                Reference::parse_familiar(&expected)
                    .is_ok_and(|image| Self::RepositoryOrExact.fits(&signed.to_string(), &image))
            }
        }
    }
}

#[cfg(test)]
mod tests;
