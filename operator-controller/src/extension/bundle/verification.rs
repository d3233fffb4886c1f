//! The verdict of the current signature policy about the image of the installed bundle, and about those of its Pods where
//! the extension asks for it. The bundle stays in any case.

use std::time::Instant;

use olm_api::ClusterObjectSet;
use olm_api::names::annotation;
use olm_image::{CachedVerification, Pinned, Reference, Rules, SignatureStatus, Verification};
use olm_rollout::policy::VerifiedImages;

use super::operands;
use crate::bundles::pulls::Pulled;
use crate::extension::context::Context;

/// The last answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct VerificationCache {
    bundle: Option<CachedVerification>,
    operands: operands::OperandCache,
}

impl VerificationCache {
    /// The verdict of the policy and the rules about the images of the installed revision.
    pub(crate) async fn verify(
        &mut self,
        context: &Context,
        extension: &str,
        installed: Option<&ClusterObjectSet>,
        images: VerifiedImages,
        rules: &Rules,
    ) -> Verification {
        let bundle = self.verify_bundle(context, extension, installed, rules).await;
        let wanted = installed.filter(|_| images == VerifiedImages::All);
        let operands = if let Some(installed) = wanted {
            self.operands.verify(context, extension, installed, rules).await
        } else {
            self.operands = operands::OperandCache::default();
            Verification::NotAsked
        };
        both(bundle, operands)
    }

    /// The verdict of the policy and the rules about the image of the installed revision. While these and the image
    /// stay the same, no request is sent; a late answer of the registry starts another run.
    async fn verify_bundle(
        &mut self,
        context: &Context,
        extension: &str,
        installed: Option<&ClusterObjectSet>,
        rules: &Rules,
    ) -> Verification {
        let reference = installed.and_then(reference);
        let Some((installed, reference)) = installed.zip(reference) else {
            self.bundle = None;
            return Verification::NotAsked;
        };
        let Some(image) = image(installed, &reference) else {
            self.bundle = None;
            if !context.bundles.policy().asks_about(&reference, rules).await {
                return Verification::NotAsked;
            }
            let why = format!("the digest of {reference} at the installation is not recorded");
            return Verification::Known(SignatureStatus::unreadable(&why));
        };
        let policy = context.bundles.policy().number(rules).await;
        let known = self.bundle.as_ref();
        if let Some(known) = known.and_then(|known| known.about(policy, &image, Instant::now())) {
            return known;
        }
        let Pulled::Done(answer) = context.bundles.signature_status(extension, &image, rules).await else {
            return Verification::Pending;
        };
        self.bundle.insert(answer).verification()
    }
}

/// The verdict about a bundle and the images of its Pods: that of the bundle, unless it is good.
fn both(bundle: Verification, operands: Verification) -> Verification {
    match (bundle, operands) {
        (bundle, Verification::NotAsked) => bundle,
        (Verification::Known(bundle), _) if bundle.accepted != Some(true) => Verification::Known(bundle),
        (Verification::Pending, _) | (_, Verification::Pending) => Verification::Pending,
        (Verification::Known(bundle), Verification::Known(operands)) if operands.accepted == Some(true) => {
            Verification::Known(SignatureStatus {
                accepted: Some(true),
                message: format!("{}; {}", bundle.message, operands.message),
            })
        }
        (_, operands) => operands,
    }
}

/// The reference of a revision's image.
fn reference(set: &ClusterObjectSet) -> Option<Reference> {
    Reference::parse(set.annotation(annotation::BUNDLE_REFERENCE)?).ok()
}

/// The image of a revision by digest, with its tag. If the reference has a tag alone, the digest is recorded only for
/// an image that was verified.
fn image(set: &ClusterObjectSet, reference: &Reference) -> Option<Pinned> {
    reference.pinned().or_else(|| {
        let verified = set.annotation(annotation::BUNDLE_VERIFIED)?;
        let (pinned, _) = verified.split_once(' ')?;
        Some(Pinned::parse(pinned).ok()?.of_tag(reference))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::revisions::tests::revision;

    fn pinned(digit: char) -> Pinned {
        Pinned::parse(&format!("a.example/x@sha256:{}", digit.to_string().repeat(64))).unwrap()
    }

    #[test]
    fn the_bundle_comes_before_the_images_of_its_pods() {
        let known = |accepted: Option<bool>, message: &str| {
            Verification::Known(SignatureStatus {
                accepted,
                message: message.to_owned(),
            })
        };
        let (good, bad) = (known(Some(true), "b"), known(Some(false), "bad"));
        let (images, refused) = (known(Some(true), "i"), known(Some(false), "refused"));
        let (nothing, pending) = (Verification::NotAsked, Verification::Pending);
        for (bundle, operands, expected) in [
            (&good, &nothing, good.clone()),
            (&nothing, &nothing, nothing.clone()),
            (&nothing, &images, images.clone()),
            (&nothing, &refused, refused.clone()),
            (&good, &images, known(Some(true), "b; i")),
            (&good, &refused, refused.clone()),
            (&good, &pending, pending.clone()),
            (&pending, &refused, pending.clone()),
            (&bad, &pending, bad.clone()),
            (&bad, &images, bad.clone()),
        ] {
            assert_eq!(
                both(bundle.clone(), operands.clone()),
                expected,
                "{bundle:?} {operands:?}"
            );
        }
    }

    #[test]
    fn a_revision_with_a_tag_knows_the_digest_that_was_verified() {
        let mut set = (*revision(1, &[])).clone();
        let mut found = |reference: &str, verified: Option<String>| {
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::BUNDLE_REFERENCE.to_owned(), reference.to_owned());
            if let Some(verified) = verified {
                annotations.insert(annotation::BUNDLE_VERIFIED.to_owned(), verified);
            }
            image(&set, &super::reference(&set)?)
        };
        assert_eq!(found(&pinned('a').to_string(), None), Some(pinned('a')));
        assert_eq!(found("a.example/x:v1", None), None);
        let tagged = Reference::parse("a.example/x:v1").unwrap();
        let verified = format!("{} is signed by key 1", pinned('b'));
        assert_eq!(
            found("a.example/x:v1", Some(verified)),
            Some(pinned('b').of_tag(&tagged))
        );
    }
}
