//! The verdicts about the images that the Pods of a wanted bundle run, where the extension asks for them.

use olm_plan::images;
use olm_rollout::policy::VerifiedImages;
use serde_json::Value;

use crate::bundles::FetchError;
use crate::bundles::operands::OperandVerdicts;
use crate::bundles::pulls::Pulled;
use crate::extension::context::Context;
use crate::extension::resolve::Resolved;

/// What the signature policy and the rules of the extension say about the images of the objects.
pub(crate) async fn verdicts(
    context: &Context,
    resolved: &Resolved<'_>,
    objects: &[&Value],
) -> Pulled<Result<OperandVerdicts, FetchError>> {
    let options = &resolved.settings.options;
    if options.verified_images == VerifiedImages::Bundle {
        return Pulled::Done(Ok(OperandVerdicts::default()));
    }
    let extension = resolved.observed.extension.name();
    context
        .bundles
        .verify_images(extension, images::of(objects), &options.signatures)
        .await
}

/// The signed images of the objects, each with its signers, as far as they are known at this moment.
pub(crate) async fn signed(context: &Context, resolved: &Resolved<'_>, objects: &[&Value]) -> Vec<String> {
    match verdicts(context, resolved, objects).await {
        Pulled::Done(Ok(verdicts)) => verdicts.accepted,
        Pulled::Done(Err(_)) | Pulled::Pending(_) => Vec::new(),
    }
}
