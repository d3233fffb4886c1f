//! Whether the policy is satisfied with the signatures and attestations of an image. Each is checked when it arrives
//! and then dropped, so that only one of them is in memory.

use std::collections::BTreeSet;

use jiff::Timestamp;
use olm_signature::{ATTESTATION_BYTES, BUNDLE_BYTES, SIGNATURE_PREDICATE_TYPE, Signature, SignatureError};
use olm_transport::chain;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::policy::{Approval, PolicyRejection, RequiredSignature, SignatureMismatch};
use crate::access::tally::OUTCOMES;
use crate::digest::Digest;
use crate::manifest::Blob;
use crate::pull::PullError;
use crate::reference::Reference;

/// The most bytes of all signatures and attestations of an image that are read.
const TOTAL_BYTES: u64 = 32 << 20;
/// The most reasons of a refusal.
const REASONS: usize = 5;
/// The most characters of a reason: parts of it come from the signature.
const REASON_CHARS: usize = 500;
/// A signature or attestation of more bytes is large.
const LARGE_BYTES: u64 = 1 << 20;
/// The most large attestations in memory at the same time, of all images.
const LARGE_AT_ONCE: usize = 4;

/// Limits the large attestations that are in memory at the same time.
#[derive(Debug)]
pub(crate) struct LargeAttestations(Semaphore);

impl Default for LargeAttestations {
    fn default() -> Self {
        Self(Semaphore::new(LARGE_AT_ONCE))
    }
}

impl LargeAttestations {
    /// Waits until an attestation of this size may be fetched. It must be dropped before the permit.
    pub(super) async fn take(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        if bytes > LARGE_BYTES {
            self.0.acquire().await.ok()
        } else {
            None
        }
    }
}

/// The result so far.
pub(super) struct Evaluation<'policy> {
    requirements: Vec<Judged<'policy>>,
    digests: &'policy BTreeSet<&'policy Digest>,
    image: &'policy Reference,
    now: Timestamp,
    /// The number of those that were checked.
    checked: usize,
    /// The number of those that are larger than allowed.
    too_large: usize,
    /// The bytes that may still be read.
    left: u64,
    /// The most bytes of a bundle.
    pub(super) bundle_limit: u64,
    /// The types of predicates that the requirements ask for.
    predicate_types: BTreeSet<String>,
}

/// A requirement, with its approval or the reasons against it.
struct Judged<'policy> {
    wanted: &'policy RequiredSignature<'policy>,
    approval: Option<Approval>,
    /// The first reasons in the order of the alphabet.
    reasons: BTreeSet<String>,
    /// The kind of fault of the signature that came closest.
    nearest: Option<&'static str>,
}

impl<'policy> Evaluation<'policy> {
    /// Nothing is checked yet. A signature must be about the image and one of the digests.
    pub(super) fn new(
        wanted: &'policy [RequiredSignature<'policy>],
        digests: &'policy BTreeSet<&'policy Digest>,
        image: &'policy Reference,
        now: Timestamp,
    ) -> Self {
        let types = wanted.iter().map(|one| match one.signed.attestation() {
            Some(attestation) => attestation.predicate_type(),
            None => SIGNATURE_PREDICATE_TYPE,
        });
        let is_attested = wanted.iter().any(|one| one.signed.attestation().is_some());
        Self {
            requirements: wanted.iter().map(Judged::new).collect(),
            digests,
            image,
            now,
            checked: 0,
            too_large: 0,
            left: TOTAL_BYTES,
            bundle_limit: if is_attested {
                ATTESTATION_BYTES as u64
            } else {
                BUNDLE_BYTES
            },
            predicate_types: types.map(str::to_owned).collect(),
        }
    }

    /// Whether a requirement may ask for a statement of this type. Without an annotation, only its content says so.
    pub(super) fn may_count(&self, predicate_type: Option<&String>) -> bool {
        predicate_type.is_none_or(|named| self.predicate_types.contains(named))
    }

    /// The same for the annotation of a referrer. With a signing configuration, cosign 2.6 names attestations of any type
    /// as signatures there.
    pub(super) fn may_be_bundle(&self, predicate_type: Option<&String>) -> bool {
        self.may_count(predicate_type)
            || predicate_type.is_some_and(|named| named == SIGNATURE_PREDICATE_TYPE)
    }

    /// Whether a blob may be read. One that is too large is only counted, so that a large bill of materials beside the
    /// image does not refuse it.
    pub(super) fn has_room(&mut self, blob: &Blob, limit: u64) -> bool {
        let fits = blob.size <= limit.min(self.left);
        if !fits {
            self.too_large += 1;
        }
        fits
    }

    /// Checks a signature for each requirement that none has satisfied yet.
    pub(super) fn check(&mut self, bytes: u64, signature: Option<&Signature>) {
        self.left = self.left.saturating_sub(bytes);
        let Some(signature) = signature else {
            return;
        };
        self.checked += 1;
        let (digests, image, now) = (self.digests, self.image, self.now);
        for judged in &mut self.requirements {
            if judged.approval.is_none() {
                judged.check(signature, digests, image, now);
            }
        }
    }

    /// What was read; `None` of an entry that is broken. It satisfies nothing, and the others still count: whoever may
    /// push beside an image could refuse it with a broken entry otherwise.
    ///
    /// # Errors
    /// An error of the registry, which says nothing about the entry: another one may be what the policy asks for.
    #[expect(clippy::result_large_err, reason = "the error of everything here")]
    pub(super) fn readable<T>(&mut self, read: Result<T, PullError>) -> Result<Option<T>, PullError> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_broken_content() => {
                self.checked += 1;
                let fault = SignatureError::Form(chain(&error));
                for judged in &mut self.requirements {
                    judged.note(&fault.clone().into());
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether every requirement is satisfied.
    pub(super) fn is_satisfied(&self) -> bool {
        self.requirements.iter().all(|judged| judged.approval.is_some())
    }

    /// One approval for each requirement.
    ///
    /// # Errors
    /// The fault of the first requirement that is not satisfied. `kind` names what a requirement asks for, `tag` where
    /// it is looked for.
    pub(super) fn verdict(
        self,
        kind: impl Fn(&RequiredSignature<'_>) -> &'static str,
        tag: impl Fn(&RequiredSignature<'_>) -> String,
    ) -> Result<Vec<Approval>, PolicyRejection> {
        let mut approvals = Vec::new();
        for judged in self.requirements {
            let wanted = judged.wanted;
            let (rule, what) = (wanted.rule.clone(), kind(wanted));
            match judged.approval {
                Some(approval) => approvals.push(approval),
                None if self.checked > 0 => {
                    return Err(PolicyRejection::Signature {
                        rule,
                        what,
                        reasons: judged.reasons.into_iter().collect(),
                        kind: judged.nearest.unwrap_or("form"),
                    });
                }
                None if self.too_large > 0 => {
                    return Err(PolicyRejection::Signature {
                        rule,
                        what,
                        reasons: vec![format!("{} are larger than allowed", self.too_large)],
                        kind: "form",
                    });
                }
                None => {
                    return Err(PolicyRejection::Unsigned {
                        rule,
                        what,
                        tag: tag(wanted),
                    });
                }
            }
        }
        Ok(approvals)
    }
}

impl<'policy> Judged<'policy> {
    const fn new(wanted: &'policy RequiredSignature<'policy>) -> Self {
        Self {
            wanted,
            approval: None,
            reasons: BTreeSet::new(),
            nearest: None,
        }
    }

    fn check(
        &mut self,
        signature: &Signature,
        digests: &BTreeSet<&Digest>,
        image: &Reference,
        now: Timestamp,
    ) {
        let attestation = self.wanted.signed.attestation();
        match self.wanted.signed.check(signature, digests, image, now) {
            Ok(verified) => {
                self.approval = Some(Approval {
                    rule: self.wanted.rule.clone(),
                    predicate_type: attestation.map(|attestation| attestation.predicate_type().to_owned()),
                    verified,
                });
            }
            Err(fault) => self.note(&fault),
        }
    }

    fn note(&mut self, fault: &SignatureMismatch) {
        let kind = fault.kind();
        if self
            .nearest
            .is_none_or(|nearest| distance(kind) < distance(nearest))
        {
            self.nearest = Some(kind);
        }
        let mut reason = fault.to_string();
        if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS) {
            reason.truncate(end);
            reason.push('…');
        }
        self.reasons.insert(reason);
        if self.reasons.len() > REASONS {
            self.reasons.pop_last();
        }
    }
}

/// Distance of a fault of this kind from a good signature.
fn distance(kind: &str) -> usize {
    let place = OUTCOMES.iter().position(|other| *other == kind);
    place.unwrap_or(OUTCOMES.len())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use olm_signature::Bundle;

    use super::*;
    use crate::access::policy::Policy;

    fn digest() -> Digest {
        Digest::of(b"image")
    }

    fn blob(size: u64) -> Blob {
        Blob {
            digest: digest(),
            size,
            media_type: String::new(),
        }
    }

    /// What a evaluation with this policy says after some steps.
    fn judge(requirement: &str, steps: impl FnOnce(&mut Evaluation<'_>)) -> Result<usize, PolicyRejection> {
        let policy = Policy::parse(&format!(r#"{{"default": [{requirement}]}}"#), |_| {
            Ok(include_bytes!("../../../../signature/testdata/key/cosign.pub").to_vec())
        })
        .unwrap();
        let image = Reference::parse("a.example/x:v1").unwrap();
        let wanted = policy.admit(&image).unwrap();
        let digest = digest();
        let digests = BTreeSet::from([&digest]);
        let mut evaluation = Evaluation::new(&wanted, &digests, &image, Timestamp::UNIX_EPOCH);
        steps(&mut evaluation);
        evaluation
            .verdict(|_| "signature", |_| "the tag".to_owned())
            .map(|approvals| approvals.len())
    }

    const SIGNED: &str = r#"{"type": "sigstoreSigned", "keyPath": "key"}"#;

    #[test]
    fn the_bytes_of_all_attestations_of_an_image_are_bounded_together() {
        let refused = judge(SIGNED, |evaluation| {
            let (largest, limit) = (blob(8 << 20), ATTESTATION_BYTES as u64);
            for _ in 0..4 {
                assert!(evaluation.has_room(&largest, limit));
                evaluation.check(largest.size, None);
            }
            assert!(!evaluation.has_room(&blob(1), limit), "none is left");
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.ends_with("1 are larger than allowed"), "{error}");
        let refused = judge(SIGNED, |evaluation| {
            assert!(!evaluation.has_room(&blob(BUNDLE_BYTES + 1), evaluation.bundle_limit));
            assert!(evaluation.has_room(&blob(BUNDLE_BYTES), evaluation.bundle_limit));
        });
        assert_eq!(refused.unwrap_err().outcome(), "form");
    }

    #[test]
    fn a_refusal_has_a_few_short_reasons_however_many_signatures_there_are() {
        let refused = judge(SIGNED, |evaluation| {
            for number in 0..60 {
                let kind = format!("{number}-{}", "x".repeat(10_000));
                let text = format!(r#"{{"mediaType": "{kind}", "verificationMaterial": {{}}}}"#);
                evaluation.check(
                    text.len() as u64,
                    Some(&Signature::Bundle(Bundle::new(text.into_bytes()))),
                );
            }
        });
        let Err(PolicyRejection::Signature { reasons, kind, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((reasons.len(), kind), (REASONS, "form"));
        let most = reasons.iter().map(|reason| reason.chars().count()).max();
        assert_eq!(most, Some(REASON_CHARS + 1));
    }

    #[test]
    fn an_image_without_signatures_is_unsigned_and_one_that_needs_none_is_accepted() {
        let refused = judge(SIGNED, |_| {}).unwrap_err();
        assert_eq!(refused.outcome(), "unsigned");
        assert_eq!(refused.remedy(), Some("sign the image, or change the policy"));
        assert_eq!(judge(r#"{"type": "insecureAcceptAnything"}"#, |_| {}), Ok(0));
    }

    #[test]
    fn a_bundle_that_is_named_a_signature_may_be_an_attestation() {
        const ATTESTED: &str =
            r#"{"type": "sigstoreAttested", "keyPath": "key", "predicateType": "https://a.example"}"#;
        let named = |text: &str| Some(text.to_owned());
        let _ = judge(ATTESTED, |evaluation| {
            for (name, counts, is_bundle) in [
                (None, true, true),
                (named("https://a.example"), true, true),
                (named(SIGNATURE_PREDICATE_TYPE), false, true),
                (named("https://b.example"), false, false),
            ] {
                assert_eq!(evaluation.may_count(name.as_ref()), counts, "{name:?}");
                assert_eq!(evaluation.may_be_bundle(name.as_ref()), is_bundle, "{name:?}");
            }
        });
    }

    #[test]
    fn only_some_large_attestations_are_in_memory_at_once() {
        let large = LargeAttestations::default();
        let take = |bytes| large.take(bytes).now_or_never();
        let mut held: Vec<_> = (0..LARGE_AT_ONCE).map(|_| take(LARGE_BYTES + 1)).collect();
        assert!(held.iter().all(|permit| matches!(permit, Some(Some(_)))));
        assert!(take(LARGE_BYTES + 1).is_none(), "one more is in memory");
        assert!(
            matches!(take(LARGE_BYTES), Some(None)),
            "a small one needs no permit"
        );
        held.pop();
        assert!(matches!(take(LARGE_BYTES + 1), Some(Some(_))));
    }
}
