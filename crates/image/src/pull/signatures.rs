//! Signatures that lie beside an image, and whether the policy is satisfied with them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oci_distribution::manifest::{OciImageManifest, OciManifest};
use olm_signature::{
    Attached, BUNDLE, BUNDLE_BYTES, Bundle, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, Signature,
};

use super::{Images, PullError};
use crate::access::Access;
use crate::access::policy::{self, Approval, PolicyRejection, Rule, SIGNATURES, Unfit};
use crate::access::tally::{OUTCOMES, VERIFIED};
use crate::digest::Digest;
use crate::limits::Limits;
use crate::manifest::{Blob, EMPTY_TYPE, artifact_type, blob, parse_manifest};
use crate::reference::{Pinned, Reference};
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;

/// The most bytes of the payload of a signature of the older form.
const SIGNED_BYTES: u64 = 64 << 10;
/// The most bytes of a manifest or a list of signatures.
const MANIFEST_BYTES: u64 = Limits::bundle().manifest_bytes;
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
        let mut found = Vec::new();
        for digest in &digests {
            found.extend(self.attached(pinned, digest, access).await?);
        }
        // The older form first: registries that know nothing of referrers answer questions about them as they like.
        let mut judged = judge(&found);
        if judged.is_err() {
            for digest in &digests {
                found.extend(self.bundles(pinned, digest, access).await?);
            }
            judged = if found.is_empty() {
                Err(PolicyRejection::Unsigned {
                    rule: first.rule.clone(),
                    tag: signature_tag(pinned.digest()),
                })
            } else {
                judge(&found)
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

    /// Signatures at the signature tag of a digest.
    async fn attached(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        access: &Access,
    ) -> Result<Vec<Signature>, PullError> {
        let tag = signature_tag(digest);
        let reference = pinned.reference().with_tag(&tag);
        let wanted = FetchTarget::TaggedManifest {
            tag: &tag,
            limit: MANIFEST_BYTES,
        };
        let Some(OciManifest::Image(manifest)) = self.listed(&reference, access, wanted).await? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let layers = manifest.layers.iter();
        for layer in layers
            .filter(|layer| layer.media_type == SIMPLE_SIGNING)
            .take(SIGNATURES)
        {
            let annotations = layer.annotations.as_ref();
            let annotation = |name: &str| annotations?.get(name).map(String::as_str);
            if annotation(SIGNATURE_ANNOTATION).is_none() {
                continue;
            }
            let payload = blob(layer).map_err(|message| unusable(&reference, message))?;
            let payload = self.small(&reference, access, &payload, SIGNED_BYTES).await?;
            found.extend(Attached::new(payload, annotation).map(Signature::Attached));
        }
        Ok(found)
    }

    /// The bundles among the referrers: those that the registry lists, else those listed at the tag for registries that
    /// list none.
    async fn bundles(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        access: &Access,
    ) -> Result<Vec<Signature>, PullError> {
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
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        // A list may leave the type out, and cosign 2 lists the type of the configuration; then the manifest says it.
        let candidates = index.manifests.iter().filter(|entry| {
            let named = entry.artifact_type.as_deref().unwrap_or_default();
            matches!(named, "" | EMPTY_TYPE | BUNDLE)
        });
        for entry in candidates.take(SIGNATURES) {
            let digest = Digest::parse(&entry.digest).map_err(|error| unusable(&home, error.to_string()))?;
            let wanted = FetchTarget::Manifest {
                digest: &digest,
                limit: MANIFEST_BYTES,
            };
            let reference = pinned.reference();
            let Some(OciManifest::Image(manifest)) = self.listed(&reference, access, wanted).await? else {
                continue;
            };
            for layer in bundle_layers(&manifest).take(1) {
                let layer = blob(layer).map_err(|message| unusable(&reference, message))?;
                let text = self.small(&reference, access, &layer, BUNDLE_BYTES).await?;
                found.push(Signature::Bundle(Bundle::new(text)));
            }
        }
        Ok(found)
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

/// The signature that satisfies a requirement.
fn approval(
    wanted: &policy::RequiredSignature<'_>,
    found: &[Signature],
    digests: &BTreeSet<&Digest>,
    image: &Reference,
    now: Timestamp,
) -> Result<Approval, PolicyRejection> {
    let rule = wanted.rule.clone();
    let mut unfit = Vec::new();
    for signature in found {
        match wanted.signed.check(signature, digests, image, now) {
            Ok(verified) => return Ok(Approval { rule, verified }),
            Err(fault) => unfit.push(fault),
        }
    }
    Err(unsatisfied(rule, &unfit))
}

/// The refusal of a requirement that no signature satisfies.
fn unsatisfied(rule: Rule, unfit: &[Unfit]) -> PolicyRejection {
    let kind = unfit.iter().map(Unfit::kind).min_by_key(|kind| distance(kind));
    let mut reasons: Vec<String> = unfit.iter().map(ToString::to_string).collect();
    reasons.sort();
    reasons.dedup();
    reasons.truncate(5);
    PolicyRejection::Signature {
        rule,
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

/// The tag at which the signatures of a manifest lie.
fn signature_tag(digest: &Digest) -> String {
    format!("{}.sig", digest.to_string().replace(':', "-"))
}
