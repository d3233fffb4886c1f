//! The rule of a policy that decides about an image, and the signature that satisfies it.

use std::fmt;

use olm_signature::Verified;

use super::Identity;
use crate::reference::Pinned;

/// A rule of a signature policy. Its text begins with who set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its origin: the signature policy, an annotation of an object, or an object with a policy.
    pub origin: String,
    /// The scope in quotes, or `default`; none where the rule applies to all images of an object.
    pub scope: Option<String>,
    /// The place in the list of requirements of the scope, from 1; none for an origin with one requirement.
    pub number: Option<usize>,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = self.scope.as_ref().map(|scope| format!("scope {scope}"));
        let number = self.number.map(|number| format!("requirement {number}"));
        let place: Vec<String> = scope.into_iter().chain(number).collect();
        formatter.write_str(&self.origin)?;
        if place.is_empty() {
            return Ok(());
        }
        write!(formatter, " ({})", place.join(", "))
    }
}

/// A rule that an image satisfies. Its text says who signed, when, what proves it, and which rule asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The rule.
    pub rule: Rule,
    /// The type of the attestation that it asks for; none where it asks for a signature.
    pub predicate_type: Option<String>,
    /// The signature that satisfies it.
    pub verified: Verified,
}

impl Approval {
    /// Whether the signature names the image as a policy asks by default: by tag the same reference, by digest the same
    /// repository or nothing. `None` for an attestation, whose name does not count.
    pub fn names(&self, image: &Pinned) -> Option<bool> {
        let name = self.verified.claim.name.as_deref();
        let is_named = Identity::RepositoryOrExact
            .check(name, &image.requested())
            .is_ok();
        self.predicate_type.is_none().then_some(is_named)
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verified {
            signer, time, proof, ..
        } = &self.verified;
        match &self.predicate_type {
            Some(predicate_type) => write!(formatter, "attested by {signer} with {predicate_type}")?,
            None => write!(formatter, "signed by {signer}")?,
        }
        if let Some(time) = time {
            write!(formatter, " at {time}")?;
        }
        if let Some(entry) = &proof.log {
            write!(formatter, ", entry {} of the transparency log", entry.index)?;
        }
        write!(formatter, ", as {} asks", self.rule)
    }
}
