//! Verifies the images that the Pods of a bundle run, where the extension asks for it.

use olm_api::ClusterObjectSet;
use olm_api::names::{annotation, user};
use serde_json::Value;

use super::access::PreflightError;
use crate::bundles::operands::{OperandVerdicts, listed};
use crate::bundles::pulls::Pulled;
use crate::extension::bundle::Rendered;
use crate::extension::bundle::images::verdicts;
use crate::extension::context::Context;

/// Checks the images of the objects against the signature policy and the rules of the extension. Returns their signers,
/// if a rule asks for any.
pub(super) async fn verify(
    context: &Context,
    rendered: &Rendered<'_>,
    objects: &[&Value],
) -> Result<Option<String>, PreflightError> {
    match verdicts(context, &rendered.resolved, objects).await {
        Pulled::Done(Ok(verdicts)) if verdicts.refused.is_empty() => Ok(verdicts.signers()),
        Pulled::Done(Ok(verdicts)) => Err(PreflightError::Images(message(&verdicts))),
        Pulled::Done(Err(error)) => Err(PreflightError::Access(error)),
        Pulled::Pending(state) => Err(PreflightError::Verifying(state)),
    }
}

/// Adds the signers of the images to those of the bundle on a new revision.
pub(super) fn note(set: &mut ClusterObjectSet, signers: &str) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let verified = annotations
        .entry(annotation::BUNDLE_VERIFIED.to_owned())
        .or_default();
    if !verified.is_empty() {
        verified.push_str("; ");
    }
    verified.push_str(signers);
}

fn message(verdicts: &OperandVerdicts) -> String {
    format!(
        "the annotation {} asks for verified images of its Pods: {}",
        user::VERIFY_IMAGES,
        listed(verdicts.refused.iter().map(|refused| refused.reason.as_str()))
    )
}
