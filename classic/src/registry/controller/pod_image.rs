//! The image of a registry Pod where a signature policy asks about it: it is verified before the Pod is made, and the
//! Pod runs it by digest.

use jiff::Timestamp;
use olm_classic::catalog_source::{PinnedCatalog, Source};
use olm_classic::cluster::text;
use olm_image::Pinned;

use super::context::Context;
use super::report::fault;
use super::state::AcceptedImage;
use crate::registry::Key;
use crate::registry::access::{Puller, own_rules, parse};
use crate::registry::pull::ContentError;

/// What the policies say about the image of a registry Pod.
#[derive(Debug)]
pub(super) enum PodImage {
    /// They do not ask about it.
    Unasked,
    /// Pods may run this. The fault, if any, is about what the reference leads to now.
    Accepted(PinnedCatalog, Option<String>),
    /// No Pod may be made, for this reason.
    Refused(String),
}

/// Verifies the image of a source whose registry is a Pod: at first, after a change of the policies, when a newer image
/// is due, and again after a fault.
pub(super) async fn pod_image(context: &Context, key: &Key, source: &Source<'_>) -> PodImage {
    let reference = text(source.object, "/spec/image");
    let rules = own_rules(source.object).and(&context.policies.of_cluster());
    let puller = Puller::of(source.object, rules);
    let policy = context.policies.number(&puller.rules).await;
    if let Ok(parsed) = parse(reference)
        && !context.policies.file().asks_about(&parsed, &puller.rules).await
    {
        return PodImage::Unasked;
    }
    let known = context.sources.with(key, |source| source.pod_image.clone());
    let known = known.filter(|known| {
        known.policy == policy && known.reference == reference && known.secrets == puller.secrets
    });
    if let Some(known) = &known
        && known.fault.is_none()
        && !source.is_poll_due(Timestamp::now())
    {
        return for_pods(known, source);
    }
    let accepted = match verify(context, reference, &puller).await {
        Ok(newest) => AcceptedImage {
            reference: reference.to_owned(),
            secrets: puller.secrets,
            policy,
            earlier: known.and_then(|known| known.before(&newest)),
            newest,
            fault: None,
        },
        Err(error) => {
            let fault = fault(key, reference, &error);
            let Some(known) = known else {
                return PodImage::Refused(fault);
            };
            AcceptedImage {
                fault: Some(fault),
                ..known
            }
        }
    };
    let image = for_pods(&accepted, source);
    context
        .sources
        .with(key, |source| source.pod_image = Some(accepted));
    image
}

async fn verify(context: &Context, reference: &str, puller: &Puller) -> Result<Pinned, ContentError> {
    let contents = context.contents().ok_or(ContentError::Stopped)?;
    contents.verify_for_pods(reference, puller).await
}

/// What Pods of the source may run of an accepted image.
fn for_pods(accepted: &AcceptedImage, source: &Source<'_>) -> PodImage {
    let earlier = accepted.earlier.as_ref().map(ToString::to_string);
    let catalog = PinnedCatalog::new(source, accepted.newest.to_string(), earlier);
    PodImage::Accepted(catalog, accepted.fault.clone())
}
