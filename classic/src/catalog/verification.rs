//! The verdict of the signature policies about the bundles of installed versions. These stay in any case.
//!
//! A pass over a namespace asks for the verdicts. Unknown ones are found out beside the passes, so that a slow registry
//! delays none, and wake the namespace.

use std::sync::Arc;
use std::time::Instant;

use olm_classic::cluster::{Cluster, text};
use olm_classic::names;
use olm_classic::resolve::CatalogContent;
use olm_classic::subscription::{InstalledImage, installed_image};
use olm_image::{CachedVerification, Pinned, SignatureStatus, Verification};
use olm_platform::queue::Outcome;
use serde_json::Value;

use super::bundles::rules;
use super::context::Context;
use super::verdicts::Key;
use crate::registry::access::{Puller, parse};

/// Images that are verified at once.
pub const AT_ONCE: usize = 2;

/// The verdict about the bundle of the installed version of a Subscription, as far as it is known.
pub async fn verification(
    context: &Context,
    subscription: &Value,
    cluster: &Cluster,
    catalogs: &[CatalogContent],
) -> Verification {
    let Some(installed) = installed_image(subscription, cluster, catalogs) else {
        context.verdicts.forget(subscription);
        return Verification::NotAsked;
    };
    let (place, name) = &installed.catalog;
    let source = cluster.get(names::CATALOG_SOURCE_KIND, place, name);
    let rules = rules(context, text(subscription, "/metadata/namespace"), [subscription]);
    let puller = Puller::of_catalog(source, place, rules);
    let Some(image) = pinned(&installed) else {
        return without_digest(context, &installed.reference, &puller).await;
    };
    let (policy, answer) = context
        .policies
        .file()
        .without_signatures(&image, &puller.rules)
        .await;
    if let Some(answer) = answer {
        context.verdicts.forget(subscription);
        return answer.map_or(Verification::NotAsked, Verification::Known);
    }
    context.verdicts.about(subscription, policy, image, puller)
}

/// Verifies the image of a Subscription.
pub async fn verify(context: Arc<Context>, key: Key) -> Outcome {
    let Some((image, puller)) = context.verdicts.wanted(&key) else {
        return Outcome::Done;
    };
    let asked = Instant::now();
    let policy = context.policies.number(&puller.rules).await;
    let status = context.unpacker.images().signature_status(&image, &puller).await;
    let answer = CachedVerification::new(policy, image, status, asked);
    context.verdicts.note(&key, answer);
    context.namespaces.add(key.0);
    Outcome::Done
}

/// The image by digest. If its reference has a tag, a signature is about that.
fn pinned(installed: &InstalledImage) -> Option<Pinned> {
    let reference = parse(&installed.reference).ok()?;
    match &installed.pinned {
        Some(pinned) => Some(Pinned::parse(pinned).ok()?.of_tag(&reference)),
        None => reference.pinned(),
    }
}

/// The verdict about an image whose digest is not known.
async fn without_digest(context: &Context, reference: &str, puller: &Puller) -> Verification {
    let is_asked = match parse(reference) {
        Ok(parsed) => context.policies.file().asks_about(&parsed, &puller.rules).await,
        Err(_) => true,
    };
    if !is_asked {
        return Verification::NotAsked;
    }
    let why = format!("the digest of {reference} at the installation is not recorded");
    Verification::Known(SignatureStatus::unreadable(&why))
}
