//! Signatures that lie beside an image, and whether the policy is satisfied with them.

use std::collections::BTreeSet;

use bytes::Bytes;
use oci_distribution::manifest::OciManifest;

use super::{Images, PullError};
use crate::access::Access;
use crate::access::policy::{Refusal, SIGNATURE_ANNOTATION, SIGNATURES, SIMPLE_SIGNING, Signed};
use crate::digest::Digest;
use crate::limits::Limits;
use crate::manifest::{blob, parse_manifest};
use crate::reference::Pinned;
use crate::registry::error::RegistryError;
use crate::registry::fetch::Wanted;

/// The most bytes of what a signature is about.
const SIGNED_BYTES: u64 = 64 << 10;

impl Images {
    /// Looks for the signatures that the policy asks for: each requirement needs one of its own.
    pub(super) async fn check_signatures(
        &self,
        wanted: &[&Signed],
        pinned: &Pinned,
        digests: &[Digest],
        access: &Access,
    ) -> Result<(), PullError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let refused = |source| PullError::Policy {
            reference: pinned.to_string(),
            source,
        };
        // By the tag, if it was one: what is signed may have another, of an older version say.
        let image = &pinned.requested();
        let mut found = Vec::new();
        for digest in digests.iter().collect::<BTreeSet<_>>() {
            found.extend(self.signatures(pinned, digest, access).await?);
        }
        if found.is_empty() {
            return Err(refused(Refusal::Unsigned {
                tag: signature_tag(pinned.digest()),
            }));
        }
        for requirement in wanted {
            let mut reasons = Vec::new();
            let good = found.iter().any(|(payload, signature)| {
                match requirement.check(payload, signature, digests, image) {
                    Ok(()) => true,
                    Err(reason) => {
                        reasons.push(reason);
                        false
                    }
                }
            });
            if !good {
                reasons.sort();
                reasons.dedup();
                reasons.truncate(5);
                return Err(refused(Refusal::Signature { reasons }));
            }
        }
        Ok(())
    }

    /// What is signed, and the signature in base64, of everything that lies beside the image as its signature.
    async fn signatures(
        &self,
        pinned: &Pinned,
        digest: &Digest,
        access: &Access,
    ) -> Result<Vec<(Bytes, String)>, PullError> {
        let tag = signature_tag(digest);
        let reference = pinned.reference().with_tag(&tag);
        let limit = Limits::bundle().manifest_bytes;
        let what = "the signatures";
        let text = match self
            .fetch(
                &reference,
                access,
                what,
                Wanted::TaggedManifest { tag: &tag, limit },
            )
            .await
        {
            Ok((text, _)) => text,
            Err(PullError::Fetch {
                source: RegistryError::NotFound { .. },
                ..
            }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let unusable = |message: String| PullError::Manifest {
            reference: reference.to_string(),
            message,
        };
        let OciManifest::Image(manifest) = parse_manifest(&text).map_err(unusable)? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let layers = manifest.layers.iter();
        for layer in layers
            .filter(|layer| layer.media_type == SIMPLE_SIGNING)
            .take(SIGNATURES)
        {
            let annotations = layer.annotations.as_ref();
            let Some(signature) = annotations.and_then(|all| all.get(SIGNATURE_ANNOTATION)) else {
                continue;
            };
            let payload = blob(layer).map_err(unusable)?;
            let wanted = Wanted::Blob {
                blob: &payload,
                limit: SIGNED_BYTES,
            };
            let (payload, _) = self.fetch(&reference, access, what, wanted).await?;
            found.push((payload, signature.clone()));
        }
        Ok(found)
    }
}

/// The tag at which the signatures of a manifest lie.
fn signature_tag(digest: &Digest) -> String {
    format!("{}.sig", digest.to_string().replace(':', "-"))
}
