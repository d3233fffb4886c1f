//! Verifies the images that the Pods of a bundle run, where the extension asks for it.

use olm_api::names::user;
use olm_plan::images;
use olm_rollout::policy::VerifiedImages;
use serde_json::Value;

use super::access::PreflightError;
use crate::bundles::operands::ImageRefusals;
use crate::bundles::pulls::Pulled;
use crate::extension::bundle::Rendered;
use crate::extension::context::Context;

/// The most images that a message names.
const NAMED: usize = 5;

/// Checks the images of the objects against the signature policy and the rules of the extension.
pub(super) async fn verify(
    context: &Context,
    rendered: &Rendered<'_>,
    objects: &[&Value],
) -> Result<(), PreflightError> {
    let resolved = &rendered.resolved;
    let options = &resolved.settings.options;
    if options.verified_images == VerifiedImages::Bundle {
        return Ok(());
    }
    let extension = resolved.observed.extension.name();
    let answer = context
        .bundles
        .refused_images(extension, images::of(objects), &options.signatures)
        .await;
    match answer {
        Pulled::Done(Ok(refused)) if refused.is_empty() => Ok(()),
        Pulled::Done(Ok(refused)) => Err(PreflightError::Images(message(&refused))),
        Pulled::Done(Err(error)) => Err(PreflightError::Access(error)),
        Pulled::Pending(state) => Err(PreflightError::Verifying(state)),
    }
}

fn message(refused: &ImageRefusals) -> String {
    let more = match refused.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(
        "the annotation {} asks for verified images of its Pods: {}{more}",
        user::VERIFY_IMAGES,
        refused.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_some_images_and_counts_the_others() {
        let refused = |count: usize| {
            (0..count)
                .map(|number| format!("image {number} is unsigned"))
                .collect()
        };
        let text = message(&refused(2));
        assert!(
            text.ends_with("of its Pods: image 0 is unsigned; image 1 is unsigned"),
            "{text}"
        );
        let text = message(&refused(7));
        assert!(text.ends_with("image 4 is unsigned; and 2 more"), "{text}");
    }
}
