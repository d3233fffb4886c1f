//! Signature policy of images: the format `policy.json`.
//!
//! A policy that cannot be read, or that asks for a check that is not made here, lets nothing through. Without any
//! policy everything is accepted; the code that sets that up says so.

mod image_policy;
mod parse;
mod rule;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

pub use image_policy::ImagePolicy;
use jiff::Timestamp;
use olm_signature::{Attestation, Authority, Signature, SignatureError, Verified};
pub use parse::PolicyError;
pub use rule::{Approval, Rule};
pub use rules::Rules;
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::reference::{Reference, usual_spelling};

/// The most signatures of one image that are looked at.
pub(crate) const SIGNATURES: usize = 64;

/// The origin of the policy of the files.
const FILES: &str = "the signature policy";
/// The scope of the default.
const DEFAULT: &str = "default";

/// Requirements for images, by the scope of their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name of the default scope; `None` for the rules of one object.
    default_scope: Option<&'static str>,
    default: Vec<Entry>,
    /// By scope; the empty text is what applies to every registry.
    registries: BTreeMap<String, Vec<Entry>>,
}

/// A requirement with its origin, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    origin: Arc<str>,
    /// The place in the list that has it, from 1; none for an origin with one requirement.
    number: Option<usize>,
    requirement: Requirement,
}

impl Entry {
    /// The one requirement of an origin.
    fn only(origin: &str, requirement: Requirement) -> Self {
        Self {
            origin: origin.into(),
            number: None,
            requirement,
        }
    }
}

/// The requirements of a list with this origin.
fn numbered(origin: &str, requirements: Vec<Requirement>) -> Vec<Entry> {
    let origin: Arc<str> = origin.into();
    let entry = |(index, requirement)| Entry {
        origin: Arc::clone(&origin),
        number: Some(index + 1),
        requirement,
    };
    requirements.into_iter().enumerate().map(entry).collect()
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
    /// One that cannot be read, with the reason. It refuses every image.
    Unusable(String),
    Signed(Arc<Signed>),
}

/// A signature or an attestation that an image has to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The trusted signers.
    authority: Authority,
    /// The required statement; none where a signature of the image is required.
    attestation: Option<Attestation>,
    identity: Identity,
}

/// A signature that a rule asks for.
#[derive(Clone, Debug)]
pub(crate) struct RequiredSignature<'policy> {
    pub(crate) rule: Rule,
    /// The signature.
    pub(crate) signed: &'policy Signed,
}

/// Match between the name in a signature and the name of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// The same reference.
    Exact,
    /// The same repository when the image is named by digest, else the same reference.
    RepositoryOrExact,
    /// The same repository.
    Repository,
    ExactReference(Reference),
    ExactRepository(String),
    /// None: the digest is enough.
    Digest,
    /// The same, with one prefix instead of another.
    Remap {
        prefix: String,
        signed_prefix: String,
    },
}

/// Reason why the policy rejects an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRejection {
    /// The policy says so.
    #[error("{rule} rejects it")]
    Rejected {
        /// The rule.
        rule: Rule,
    },
    /// The policy asks for a GPG signature.
    #[error("{rule} asks for `signedBy`, which is not supported; use `sigstoreSigned`")]
    SignedBy {
        /// The rule.
        rule: Rule,
    },
    /// The rule cannot be read.
    #[error("{rule} cannot be followed: {why}")]
    Unusable {
        /// The rule.
        rule: Rule,
        /// The reason.
        why: String,
    },
    /// It has no signature, or no attestation.
    #[error(
        "{rule} asks for {} {what}, and there is none at tag {tag} and among the referrers",
        article(what)
    )]
    Unsigned {
        /// The rule.
        rule: Rule,
        /// The missing one: a signature or an attestation.
        what: &'static str,
        /// Where it is looked for.
        tag: String,
    },
    /// There are signatures or attestations, and none of them will do.
    #[error("no {what} satisfies {rule}: {}", .reasons.join("; "))]
    Signature {
        /// The rule.
        rule: Rule,
        /// The kind that it requires: a signature or an attestation.
        what: &'static str,
        /// The fault of each.
        reasons: Vec<String>,
        /// The kind of fault of the signature that came closest, in one word.
        kind: &'static str,
    },
}

impl PolicyRejection {
    /// The remedy for users, as a clause; `None` where the text itself has it, or nothing is known.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Rejected { .. } | Self::SignedBy { .. } => Some("change the policy"),
            Self::Unsigned { .. } | Self::Signature { .. } => Some("sign the image, or change the policy"),
            Self::Unusable { .. } => None,
        }
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

impl Policy {
    /// The policy that asks for nothing.
    pub fn accept_anything() -> Self {
        Self {
            default_scope: Some(DEFAULT),
            default: numbered(FILES, vec![Requirement::Accept]),
            registries: BTreeMap::new(),
        }
    }

    /// Reads a policy; `key` gives the content of a key file that it names.
    pub fn parse(text: &str, key: impl Fn(&str) -> std::io::Result<Vec<u8>>) -> Result<Self, PolicyError> {
        parse::policy(text, &key)
    }

    /// The policy that asks for one requirement of every image, an object as in `policy.json`. `origin` names it in
    /// messages; `key` gives the content of a key file that it names.
    pub fn of_requirement(
        origin: &str,
        requirement: &Map<String, Value>,
        key: impl Fn(&str) -> std::io::Result<Vec<u8>>,
    ) -> Result<Self, PolicyError> {
        let requirement = parse::requirement(origin, requirement, &key)?;
        Ok(Self::of_entry(origin, requirement))
    }

    /// The policy with this requirement alone.
    fn of_entry(origin: &str, requirement: Requirement) -> Self {
        Self {
            default_scope: None,
            default: vec![Entry::only(origin, requirement)],
            registries: BTreeMap::new(),
        }
    }

    /// Whether an image with this name must satisfy a rule beyond that anything is accepted.
    pub fn asks_about(&self, reference: &Reference) -> bool {
        self.admit(reference).map_or(true, |wanted| !wanted.is_empty())
    }

    /// The required signatures of an image, as far as its name decides them.
    pub(crate) fn admit(&self, reference: &Reference) -> Result<Vec<RequiredSignature<'_>>, PolicyRejection> {
        let (scope, entries) = self.entries(reference);
        let mut wanted = Vec::new();
        for entry in entries {
            let rule = || Rule {
                origin: entry.origin.to_string(),
                scope: scope.clone(),
                number: entry.number,
            };
            match &entry.requirement {
                Requirement::Accept => {}
                Requirement::Reject => return Err(PolicyRejection::Rejected { rule: rule() }),
                Requirement::SignedBy => return Err(PolicyRejection::SignedBy { rule: rule() }),
                Requirement::Unusable(why) => {
                    return Err(PolicyRejection::Unusable {
                        rule: rule(),
                        why: why.clone(),
                    });
                }
                Requirement::Signed(signed) => wanted.push(RequiredSignature { rule: rule(), signed }),
            }
        }
        Ok(wanted)
    }

    /// The requirements of the most specific scope: the reference, its repository, the paths above it, the host, the
    /// domains above the host, every registry, and the default.
    fn entries(&self, reference: &Reference) -> (Option<String>, &[Entry]) {
        for scope in scopes(reference) {
            if let Some(entries) = self.registries.get(&scope) {
                return (Some(format!("{scope:?}")), entries);
            }
        }
        (self.default_scope.map(str::to_owned), &self.default)
    }
}

/// The scopes that a reference is in, in the usual spelling, the most specific first.
fn scopes(reference: &Reference) -> Vec<String> {
    let name = usual_spelling(&reference.name());
    let mut scopes = vec![usual_spelling(&reference.to_string()), name.clone()];
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

/// Whether an image can be in this scope: it is an image, a repository or a path above it, a host, or `*.DOMAIN`.
fn is_scope(scope: &str) -> bool {
    if let Some(domain) = scope.strip_prefix("*.") {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
        return domain
            .split('.')
            .all(|label| !label.is_empty() && label.chars().all(is_letter));
    }
    // As references are looked up: with their registry, and `library/` where Docker Hub has it.
    Reference::parse(scope).is_ok() || Reference::parse(&format!("{scope}/a/b")).is_ok()
}

impl Signed {
    /// The required statement; none where a signature of the image is required.
    pub(crate) const fn attestation(&self) -> Option<&Attestation> {
        self.attestation.as_ref()
    }

    /// Whether this signature is by whom it must be, for one of the digests, and about the image.
    pub(crate) fn check(
        &self,
        signature: &Signature,
        digests: &BTreeSet<&Digest>,
        image: &Reference,
        now: Timestamp,
    ) -> Result<Verified, SignatureMismatch> {
        let digests: Vec<_> = digests.iter().map(ToString::to_string).collect();
        let attestation = self.attestation.as_ref();
        let verified = self.authority.check(signature, attestation, &digests, now)?;
        self.identity.check(verified.claim.name.as_deref(), image)?;
        Ok(verified)
    }
}

/// Reason why a signature does not satisfy a requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureMismatch {
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error("it is about {signed:?}, which does not match {wanted}{advice}")]
    Name {
        signed: String,
        wanted: SignedName,
        advice: &'static str,
    },
    #[error(
        "it names no image, so an attacker could point {image:?} at an image that was signed under another name; sign it with that name, or set `signedIdentity` to `{{\"type\": \"matchDigest\"}}` to accept any name"
    )]
    Nameless { image: String },
    #[error("it names no image, and `signedIdentity` asks for {wanted}{BY_DIGEST}")]
    NamelessDigest { wanted: SignedName },
}

/// The remedy for a rule that no usual signature of an image by digest satisfies.
const BY_DIGEST: &str = "; for an image by digest, remove `signedIdentity`";

impl SignatureMismatch {
    /// The kind of fault in one word. It ranks how close the signature came.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Signature(error) => error.kind(),
            Self::Name { .. } | Self::Nameless { .. } | Self::NamelessDigest { .. } => "name",
        }
    }
}

/// The name that a signature must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignedName {
    /// Any or none.
    Any,
    /// Any reference to this repository.
    Repository(String),
    /// This reference.
    Reference(String),
}

impl fmt::Display for SignedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("any"),
            Self::Repository(name) => write!(formatter, "the repository {name:?}"),
            Self::Reference(text) => write!(formatter, "{text:?}"),
        }
    }
}

impl SignedName {
    fn fits(&self, signed: &str) -> bool {
        let signed = Reference::parse_familiar(signed);
        match self {
            Self::Any => true,
            Self::Repository(name) => signed.is_ok_and(|signed| signed.name() == *name),
            // A name without a tag and a digest is about nothing in particular.
            Self::Reference(text) => signed.is_ok_and(|signed| {
                (signed.tag().is_some() || signed.digest().is_some()) && signed.to_string() == *text
            }),
        }
    }
}

impl Identity {
    /// Whether a signature with this name, if it has one, is about the image.
    fn check(&self, signed: Option<&str>, image: &Reference) -> Result<(), SignatureMismatch> {
        let wanted = self.wanted(image);
        let is_pinned = image.digest().is_some();
        match signed {
            _ if wanted == SignedName::Any => Ok(()),
            Some(signed) if wanted.fits(signed) => Ok(()),
            Some(signed) => Err(SignatureMismatch::Name {
                signed: signed.to_owned(),
                wanted,
                advice: match self {
                    // Without `signedIdentity` it would do.
                    Self::Exact if is_pinned && Self::RepositoryOrExact.wanted(image).fits(signed) => {
                        BY_DIGEST
                    }
                    _ => "",
                },
            }),
            // The digest in the reference already pins this content.
            None if is_pinned && *self == Self::RepositoryOrExact => Ok(()),
            None if is_pinned => Err(SignatureMismatch::NamelessDigest { wanted }),
            None => Err(SignatureMismatch::Nameless {
                image: image.to_string(),
            }),
        }
    }

    /// The name that a signature of the image must have, if it has one.
    fn wanted(&self, image: &Reference) -> SignedName {
        match self {
            Self::Digest => SignedName::Any,
            Self::Repository => SignedName::Repository(image.name()),
            Self::RepositoryOrExact if image.digest().is_some() => SignedName::Repository(image.name()),
            Self::Exact | Self::RepositoryOrExact => SignedName::Reference(image.to_string()),
            Self::ExactReference(reference) => SignedName::Reference(reference.to_string()),
            Self::ExactRepository(name) => SignedName::Repository(name.clone()),
            Self::Remap {
                prefix,
                signed_prefix,
            } => {
                let text = image.to_string();
                let rest = text
                    .strip_prefix(prefix.as_str())
                    .filter(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']));
                let expected = rest.map_or_else(|| text.clone(), |rest| format!("{signed_prefix}{rest}"));
                match Reference::parse_familiar(&expected) {
                    Ok(image) => Self::RepositoryOrExact.wanted(&image),
                    // No name is this.
                    Err(_) => SignedName::Reference(expected),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
