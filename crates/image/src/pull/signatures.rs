//! Signatures that lie beside an image, and whether the policy is satisfied with them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oci_distribution::manifest::{OciImageManifest, OciManifest};
use olm_signature::{
    ATTESTATION_BYTES, Attached, BUNDLE, BUNDLE_BYTES, Bundle, ENVELOPE, SIGNATURE_ANNOTATION,
    SIGNATURE_PREDICATE_TYPE, SIMPLE_SIGNING, Signature,
};

use super::{Images, PullError};
use crate::access::Access;
use crate::access::policy::{self, Approval, PolicyRejection, Rule, SIGNATURES, SignatureMismatch};
use crate::access::tally::{OUTCOMES, VERIFIED};
use crate::digest::Digest;
use crate::limits::Limits;
use crate::manifest::{Blob, EMPTY_TYPE, artifact_type, blob, parse_manifest};
use crate::reference::{Pinned, Reference};
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;

/// The most bytes of the payload of a signature of the older form.
const SIGNED_BYTES: u64 = 64 << 10;
/// The most bytes of all signatures and attestations of an image.
const TOTAL_BYTES: u64 = 32 << 20;
/// The most bytes of a manifest or a list of signatures.
const MANIFEST_BYTES: u64 = Limits::bundle().manifest_bytes;
/// The annotation with the type of the predicate: of a referrer that is a bundle, and of a layer that is an
/// attestation.
const PREDICATE_TYPE: &str = "dev.sigstore.bundle.predicateType";
const ATTACHED_PREDICATE_TYPE: &str = "predicateType";
/// Name of the fetched content, for messages.
const WHAT: &str = "the signatures";

impl Images {
    /// Looks for the signatures that the policy asks for: each requirement needs one of its own. Returns one approval
    /// per requirement.
    pub(super) async fn check_signatures(
        &self,
        wanted: &[policy::RequiredSignature<'_>],
        pinned: &Pinned,
        digests: &[Digest],
        access: &Access,
    ) -> Result<Vec<Approval>, PullError> {
        let Some(first) = wanted.first() else {
            return Ok(Vec::new());
        };
        // By the tag, if the reference has one: an image signed for another tag, such as an older version, must not
        // count.
        let image = &pinned.requested();
        let now = Timestamp::now();
        let digests: BTreeSet<_> = digests.iter().collect();
        let judge = |found: &[Signature]| {
            let satisfied = wanted
                .iter()
                .map(|requirement| approval(requirement, found, &digests, image, now));
            satisfied.collect::<Result<Vec<_>, _>>()
        };
        let mut found = Collected::new(wanted);
        for digest in &digests {
            for form in [AttachedForm::Signature, AttachedForm::Attestation] {
                if wanted.iter().any(|one| AttachedForm::of(one) == form) {
                    self.attached(pinned, digest, form, access, &mut found).await?;
                }
            }
        }
        // The older form first: registries that know nothing of referrers answer questions about them as they like.
        let mut judged = judge(&found.signatures);
        if judged.is_err() {
            for digest in &digests {
                self.bundles(pinned, digest, access, &mut found).await?;
            }
            judged = match (found.signatures.is_empty(), found.too_large) {
                (false, _) => judge(&found.signatures),
                (true, 0) => Err(PolicyRejection::Unsigned {
                    rule: first.rule.clone(),
                    what: kind_of(first),
                    tag: AttachedForm::of(first).tag(pinned.digest()),
                }),
                (true, count) => Err(PolicyRejection::Signature {
                    rule: first.rule.clone(),
                    what: kind_of(first),
                    reasons: vec![format!("{count} are larger than allowed")],
                    kind: "form",
                }),
            };
        }
        let outcome = judged
            .as_ref()
            .map_or_else(PolicyRejection::outcome, |_| VERIFIED);
        self.inner.checks.count(outcome);
        judged.map_err(|source| PullError::Policy {
            reference: pinned.to_string(),
            source,
        })
    }

    /// Adds the signatures or attestations at the tag of a digest.
    async fn attached(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        form: AttachedForm,
        access: &Access,
        found: &mut Collected,
    ) -> Result<(), PullError> {
        let tag = form.tag(digest);
        let reference = pinned.reference().with_tag(&tag);
        let wanted = FetchTarget::TaggedManifest {
            tag: &tag,
            limit: MANIFEST_BYTES,
        };
        let Some(OciManifest::Image(manifest)) = self.listed(&reference, access, wanted).await? else {
            return Ok(());
        };
        let layers = manifest.layers.iter().filter(|layer| {
            let annotation = |name: &str| layer.annotations.as_ref()?.get(name);
            layer.media_type == form.media_type()
                && annotation(SIGNATURE_ANNOTATION).is_some()
                && found.may_count(annotation(ATTACHED_PREDICATE_TYPE))
        });
        for layer in layers.take(SIGNATURES).collect::<Vec<_>>() {
            let annotations = layer.annotations.as_ref();
            let annotation = |name: &str| annotations?.get(name).map(String::as_str);
            let payload = blob(layer).map_err(|message| unusable(&reference, message))?;
            let Some(limit) = found.room(&payload, form.limit()) else {
                continue;
            };
            let payload = self.small(&reference, access, &payload, limit).await?;
            found.add(
                payload.len(),
                match form {
                    AttachedForm::Signature => Attached::new(payload, annotation).map(Signature::Attached),
                    AttachedForm::Attestation => {
                        Some(Signature::Attached(Attached::envelope(payload, annotation)))
                    }
                },
            );
        }
        Ok(())
    }

    /// Adds the bundles among the referrers: those that the registry lists, else those listed at the tag for registries
    /// that list none.
    async fn bundles(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        access: &Access,
        found: &mut Collected,
    ) -> Result<(), PullError> {
        let home = pinned.reference();
        let wanted = FetchTarget::Referrers {
            digest,
            limit: MANIFEST_BYTES,
        };
        let mut listed = match self.listed(&home, access, wanted).await {
            // Registries answer a path that they do not know as they like.
            Err(
                PullError::Fetch {
                    source: RegistryError::Status { .. } | RegistryError::Protocol { .. },
                    ..
                }
                | PullError::Manifest { .. },
            ) => None,
            found => found?,
        };
        let none = |list: &Option<OciManifest>| match list {
            Some(OciManifest::ImageIndex(index)) => index.manifests.is_empty(),
            _ => true,
        };
        if none(&listed) {
            let tag = digest.to_string().replace(':', "-");
            let wanted = FetchTarget::TaggedManifest {
                tag: &tag,
                limit: MANIFEST_BYTES,
            };
            listed = self.listed(&home.with_tag(&tag), access, wanted).await?;
        }
        let Some(OciManifest::ImageIndex(index)) = listed else {
            return Ok(());
        };
        // A list may leave the type out, and cosign 2 lists the type of the configuration; then the manifest says it.
        let candidates = index.manifests.iter().filter(|entry| {
            let named = entry.artifact_type.as_deref().unwrap_or_default();
            let annotations = entry.annotations.as_ref();
            matches!(named, "" | EMPTY_TYPE | BUNDLE)
                && found.may_count(annotations.and_then(|annotations| annotations.get(PREDICATE_TYPE)))
        });
        for entry in candidates.take(SIGNATURES).collect::<Vec<_>>() {
            let digest = Digest::parse(&entry.digest).map_err(|error| unusable(&home, error.to_string()))?;
            let wanted = FetchTarget::Manifest {
                digest: &digest,
                limit: MANIFEST_BYTES,
            };
            let reference = pinned.reference();
            let Some(OciManifest::Image(manifest)) = self.listed(&reference, access, wanted).await? else {
                continue;
            };
            let annotations = manifest.annotations.as_ref();
            if !found.may_count(annotations.and_then(|annotations| annotations.get(PREDICATE_TYPE))) {
                continue;
            }
            for layer in bundle_layers(&manifest).take(1) {
                let layer = blob(layer).map_err(|message| unusable(&reference, message))?;
                let Some(limit) = found.room(&layer, found.bundle_limit) else {
                    continue;
                };
                let text = self.small(&reference, access, &layer, limit).await?;
                found.add(text.len(), Some(Signature::Bundle(Bundle::new(text))));
            }
        }
        Ok(())
    }

    /// A manifest or list, if there is one.
    async fn listed(
        &self,
        reference: &Reference,
        access: &Access,
        wanted: FetchTarget<'_>,
    ) -> Result<Option<OciManifest>, PullError> {
        match self.fetch(reference, access, WHAT, wanted).await {
            Ok((text, _)) => parse_manifest(&text)
                .map(Some)
                .map_err(|message| unusable(reference, message)),
            Err(PullError::Fetch {
                source: RegistryError::NotFound { .. },
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn small(
        &self,
        reference: &Reference,
        access: &Access,
        blob: &Blob,
        limit: u64,
    ) -> Result<Vec<u8>, PullError> {
        let wanted = FetchTarget::Blob { blob, limit };
        let (bytes, _) = self.fetch(reference, access, WHAT, wanted).await?;
        Ok(bytes.to_vec())
    }
}

/// The signatures and attestations of an image that were fetched.
struct Collected {
    signatures: Vec<Signature>,
    /// The number of those that are larger than allowed.
    too_large: usize,
    /// The bytes that may still be fetched.
    left: u64,
    /// The most bytes of a bundle.
    bundle_limit: u64,
    /// The types of predicates that the requirements ask for.
    predicate_types: BTreeSet<String>,
}

impl Collected {
    fn new(wanted: &[policy::RequiredSignature<'_>]) -> Self {
        let types = wanted.iter().map(|one| match one.signed.attestation() {
            Some(attestation) => attestation.predicate_type(),
            None => SIGNATURE_PREDICATE_TYPE,
        });
        let is_attested = wanted.iter().any(|one| one.signed.attestation().is_some());
        Self {
            signatures: Vec::new(),
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
    fn may_count(&self, predicate_type: Option<&String>) -> bool {
        predicate_type.is_none_or(|named| self.predicate_types.contains(named))
    }

    /// The most bytes to fetch of a blob; none if it is too large. Then it is only counted, so that a large bill of
    /// materials beside the image does not refuse it.
    fn room(&mut self, blob: &Blob, limit: u64) -> Option<u64> {
        let limit = limit.min(self.left);
        if blob.size > limit {
            self.too_large += 1;
            return None;
        }
        Some(limit)
    }

    fn add(&mut self, bytes: usize, signature: Option<Signature>) {
        self.left = self.left.saturating_sub(bytes as u64);
        self.signatures.extend(signature);
    }
}

/// The signature that satisfies a requirement.
fn approval(
    wanted: &policy::RequiredSignature<'_>,
    found: &[Signature],
    digests: &BTreeSet<&Digest>,
    image: &Reference,
    now: Timestamp,
) -> Result<Approval, PolicyRejection> {
    let rule = wanted.rule.clone();
    let attestation = wanted.signed.attestation();
    let mut unfit = Vec::new();
    for signature in found {
        match wanted.signed.check(signature, digests, image, now) {
            Ok(verified) => {
                return Ok(Approval {
                    rule,
                    predicate_type: attestation.map(|attestation| attestation.predicate_type().to_owned()),
                    verified,
                });
            }
            Err(fault) => unfit.push(fault),
        }
    }
    Err(unsatisfied(rule, kind_of(wanted), &unfit))
}

/// The refusal of a requirement that no signature satisfies.
fn unsatisfied(rule: Rule, what: &'static str, unfit: &[SignatureMismatch]) -> PolicyRejection {
    let kind = unfit
        .iter()
        .map(SignatureMismatch::kind)
        .min_by_key(|kind| distance(kind));
    let mut reasons: Vec<String> = unfit.iter().map(ToString::to_string).collect();
    reasons.sort();
    reasons.dedup();
    reasons.truncate(5);
    PolicyRejection::Signature {
        rule,
        what,
        reasons,
        kind: kind.unwrap_or("form"),
    }
}

/// Distance of a fault of this kind from a good signature.
fn distance(kind: &str) -> usize {
    let place = OUTCOMES.iter().position(|other| *other == kind);
    place.unwrap_or(OUTCOMES.len())
}

fn unusable(reference: &Reference, message: String) -> PullError {
    PullError::Manifest {
        reference: reference.to_string(),
        message,
    }
}

/// The layers of an artifact that hold a bundle.
fn bundle_layers(
    manifest: &OciImageManifest,
) -> impl Iterator<Item = &oci_distribution::manifest::OciDescriptor> {
    let is_bundle = artifact_type(manifest).as_deref() == Some(BUNDLE);
    let layers = manifest.layers.iter().filter(move |_| is_bundle);
    layers.filter(|layer| layer.media_type == BUNDLE)
}

/// What a requirement asks for, for messages.
fn kind_of(requirement: &policy::RequiredSignature<'_>) -> &'static str {
    match AttachedForm::of(requirement) {
        AttachedForm::Signature => "signature",
        AttachedForm::Attestation => "attestation",
    }
}

/// What lies at a tag beside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttachedForm {
    Signature,
    Attestation,
}

impl AttachedForm {
    const fn of(requirement: &policy::RequiredSignature<'_>) -> Self {
        match requirement.signed.attestation() {
            Some(_) => Self::Attestation,
            None => Self::Signature,
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Signature => SIMPLE_SIGNING,
            Self::Attestation => ENVELOPE,
        }
    }

    const fn limit(self) -> u64 {
        match self {
            Self::Signature => SIGNED_BYTES,
            Self::Attestation => ATTESTATION_BYTES as u64,
        }
    }

    /// The tag at which those of a manifest lie.
    fn tag(self, digest: &Digest) -> String {
        let ending = match self {
            Self::Signature => "sig",
            Self::Attestation => "att",
        };
        format!("{}.{ending}", digest.to_string().replace(':', "-"))
    }
}
