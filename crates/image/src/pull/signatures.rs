//! Signatures that lie beside an image, and whether the policy is satisfied with them.

mod evaluation;

use std::collections::BTreeSet;

use jiff::Timestamp;
use oci_distribution::manifest::{
    ImageIndexEntry, OciDescriptor, OciImageIndex, OciImageManifest, OciManifest,
};
use olm_signature::{
    ATTESTATION_BYTES, Attached, BUNDLE, Bundle, ENVELOPE, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, Signature,
};

use evaluation::Evaluation;
pub(super) use evaluation::LargeAttestations;

use super::{Images, PullError};
use crate::access::Access;
use crate::access::policy::{self, Approval, PolicyRejection, SIGNATURES};
use crate::access::tally::VERIFIED;
use crate::digest::Digest;
use crate::limits::Limits;
use crate::manifest::{Blob, artifact_type, blob, parse_manifest};
use crate::reference::{Pinned, Reference};
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;
use crate::registry::referrers::may_be_signature;

/// The most bytes of the payload of a signature of the older form.
const SIGNED_BYTES: u64 = 64 << 10;
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
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // By the tag, if the reference has one: an image signed for another tag, such as an older version, must not
        // count.
        let image = &pinned.requested();
        let digests: BTreeSet<_> = digests.iter().collect();
        let mut evaluation = Evaluation::new(wanted, &digests, image, Timestamp::now());
        for digest in &digests {
            for form in [AttachedForm::Signature, AttachedForm::Attestation] {
                if wanted.iter().any(|one| AttachedForm::of(one) == form) {
                    self.attached(pinned, digest, form, access, &mut evaluation)
                        .await?;
                }
            }
        }
        // The older form first: registries that know nothing of referrers answer questions about them as they like.
        for digest in &digests {
            self.bundles(pinned, digest, access, &mut evaluation).await?;
        }
        let judged = evaluation.verdict(kind_of, |missing| AttachedForm::of(missing).tag(pinned.digest()));
        let outcome = judged
            .as_ref()
            .map_or_else(PolicyRejection::outcome, |_| VERIFIED);
        self.inner.checks.count(outcome);
        judged.map_err(|source| PullError::Policy {
            reference: pinned.to_string(),
            source,
        })
    }

    /// Checks the signatures or attestations at the tag of a digest.
    async fn attached(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        form: AttachedForm,
        access: &Access,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), PullError> {
        if evaluation.is_satisfied() {
            return Ok(());
        }
        let tag = form.tag(digest);
        let reference = pinned.reference().with_tag(&tag);
        let wanted = FetchTarget::TaggedManifest {
            tag: &tag,
            limit: MANIFEST_BYTES,
        };
        let found = self.listed(&reference, access, wanted).await;
        let Some(OciManifest::Image(manifest)) = evaluation.readable(found)?.flatten() else {
            return Ok(());
        };
        let layers = manifest.layers.iter().filter(|layer| {
            let annotation = |name: &str| layer.annotations.as_ref()?.get(name);
            layer.media_type == form.media_type()
                && annotation(SIGNATURE_ANNOTATION).is_some()
                && evaluation.may_count(annotation(ATTACHED_PREDICATE_TYPE))
        });
        for layer in layers.take(SIGNATURES).collect::<Vec<_>>() {
            let checked = self
                .attached_layer(&reference, layer, form, access, evaluation)
                .await;
            evaluation.readable(checked)?;
            if evaluation.is_satisfied() {
                break;
            }
        }
        Ok(())
    }

    /// Checks one of them.
    async fn attached_layer(
        &self,
        reference: &Reference,
        layer: &OciDescriptor,
        form: AttachedForm,
        access: &Access,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), PullError> {
        let annotations = layer.annotations.as_ref();
        let annotation = |name: &str| annotations?.get(name).map(String::as_str);
        let payload = blob(layer).map_err(|message| unusable(reference, message))?;
        if !evaluation.has_room(&payload, form.limit()) {
            return Ok(());
        }
        // Until the content is checked and dropped.
        let _permit = self.inner.large_attestations.take(payload.size).await;
        let payload = self.small(reference, access, &payload).await?;
        let bytes = payload.len() as u64;
        let signature = match form {
            AttachedForm::Signature => Attached::new(payload, annotation),
            AttachedForm::Attestation => Some(Attached::envelope(payload, annotation)),
        };
        evaluation.check(bytes, signature.map(Signature::Attached).as_ref());
        Ok(())
    }

    /// Checks the bundles among the referrers: those that the registry lists, else those listed at the tag for registries
    /// that list none.
    async fn bundles(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        access: &Access,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), PullError> {
        if evaluation.is_satisfied() {
            return Ok(());
        }
        let home = pinned.reference();
        let wanted = FetchTarget::Referrers {
            digest,
            limit: MANIFEST_BYTES,
        };
        let mut outage = None;
        let mut listed = match self.listed(&home, access, wanted).await {
            Err(error) if is_outage(&error) => {
                outage = Some(error);
                None
            }
            // Registries answer a path that they do not know as they like.
            Err(
                PullError::Fetch {
                    source: RegistryError::Status { .. } | RegistryError::Protocol { .. },
                    ..
                }
                | PullError::Manifest { .. },
            ) => None,
            found => evaluation.readable(found)?.flatten(),
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
            let found = self.listed(&home.with_tag(&tag), access, wanted).await;
            listed = evaluation.readable(found)?.flatten();
        }
        if let Some(OciManifest::ImageIndex(index)) = listed {
            self.listed_bundles(&home, &index, access, evaluation).await?;
        }
        match outage {
            Some(error) if !evaluation.is_satisfied() => evaluation.readable::<()>(Err(error)).map(drop),
            _ => Ok(()),
        }
    }

    /// Checks the bundles of a list of referrers.
    async fn listed_bundles(
        &self,
        home: &Reference,
        index: &OciImageIndex,
        access: &Access,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), PullError> {
        // Where the list leaves the type out, the manifest says it.
        let candidates = index.manifests.iter().filter(|entry| {
            let annotations = entry.annotations.as_ref();
            may_be_signature(entry)
                && evaluation
                    .may_be_bundle(annotations.and_then(|annotations| annotations.get(PREDICATE_TYPE)))
        });
        for entry in candidates.take(SIGNATURES).collect::<Vec<_>>() {
            let checked = self.bundle(home, entry, access, evaluation).await;
            evaluation.readable(checked)?;
            if evaluation.is_satisfied() {
                break;
            }
        }
        Ok(())
    }

    /// Checks the bundle of one referrer, if it has one.
    async fn bundle(
        &self,
        home: &Reference,
        entry: &ImageIndexEntry,
        access: &Access,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), PullError> {
        let digest = Digest::parse(&entry.digest).map_err(|error| unusable(home, error.to_string()))?;
        let wanted = FetchTarget::Manifest {
            digest: &digest,
            limit: MANIFEST_BYTES,
        };
        let Some(OciManifest::Image(manifest)) = self.listed(home, access, wanted).await? else {
            return Ok(());
        };
        let annotations = manifest.annotations.as_ref();
        if !evaluation.may_be_bundle(annotations.and_then(|annotations| annotations.get(PREDICATE_TYPE))) {
            return Ok(());
        }
        let Some(layer) = bundle_layers(&manifest).next() else {
            return Ok(());
        };
        let layer = blob(layer).map_err(|message| unusable(home, message))?;
        if !evaluation.has_room(&layer, evaluation.bundle_limit) {
            return Ok(());
        }
        let _permit = self.inner.large_attestations.take(layer.size).await;
        let text = self.small(home, access, &layer).await?;
        let bytes = text.len() as u64;
        evaluation.check(bytes, Some(&Signature::Bundle(Bundle::new(text))));
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

    /// A blob, of no more bytes than its descriptor says.
    async fn small(&self, reference: &Reference, access: &Access, blob: &Blob) -> Result<Vec<u8>, PullError> {
        let limit = blob.size;
        let wanted = FetchTarget::Blob { blob, limit };
        let (bytes, _) = self.fetch(reference, access, WHAT, wanted).await?;
        Ok(bytes.into())
    }
}

fn unusable(reference: &Reference, message: String) -> PullError {
    PullError::Manifest {
        reference: reference.to_string(),
        message,
    }
}

/// Whether the registry answered that it cannot answer now.
const fn is_outage(error: &PullError) -> bool {
    matches!(error, PullError::Fetch { source, .. } if source.is_outage())
}

/// The layers of an artifact that hold a bundle.
fn bundle_layers(manifest: &OciImageManifest) -> impl Iterator<Item = &OciDescriptor> {
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
