//! The verdict of the current signature policy about the image that a catalog is served from. The catalog is served in
//! any case.

use std::sync::Arc;
use std::time::Instant;

use kube::runtime::reflector::ObjectRef;
use olm_api::ClusterCatalog;
use olm_image::{Pinned, Reference, SignatureStatus, Verification};
use olm_platform::queue::Outcome;

use super::Context;
use super::observe::{Observed, Role, ServedContent};
use super::report::ContentOutcome;

/// Images that are looked at together.
const CHECKS_AT_ONCE: usize = 2;

/// The answer of the policy about what is served after a pass, as far as it is known. An unknown one is found out
/// beside the passes, so that a slow registry delays no status, and starts another pass.
pub(super) async fn verification(
    context: &Context,
    observed: &Observed,
    done: &ContentOutcome,
) -> Verification {
    let stored = match done {
        ContentOutcome::Served(stored) | ContentOutcome::Restored(stored) => Some(stored),
        ContentOutcome::Removed(_) => None,
        _ => observed.stored.as_ref(),
    };
    let image = stored.and_then(|stored| image(&observed.catalog, stored));
    let Some(image) = image.filter(|_| observed.role == Role::Leader) else {
        return Verification::NotAsked;
    };
    let rules = match context.rules(&observed.catalog) {
        Ok(rules) => rules,
        Err(fault) => return Verification::Known(SignatureStatus::unreadable(&fault)),
    };
    let policy = context.contents.policy().number(&rules).await;
    let name = observed.catalog.name();
    let known = context.states.of(name).verified;
    let known = known.and_then(|known| known.about(policy, &image, Instant::now()));
    known.unwrap_or_else(|| {
        context.checks.add(name.to_owned());
        Verification::Pending
    })
}

/// The image of served content, with the tag that it was asked for by: a signature is about the tag.
fn image(catalog: &ClusterCatalog, stored: &ServedContent) -> Option<Pinned> {
    let pinned = Pinned::parse(&stored.resolved).ok()?;
    let source = catalog.spec.source.image.as_ref();
    let requested = if stored.requested.is_empty() {
        source.map(|image| image.reference.as_str())
    } else {
        Some(stored.requested.as_str())
    };
    Some(match requested.and_then(|text| Reference::parse(text).ok()) {
        Some(reference) => pinned.of_tag(&reference),
        None => pinned,
    })
}

/// Looks at the signatures of images that are served, and starts a pass of every catalog after a change of a policy.
pub(crate) async fn check(context: Arc<Context>) {
    let all = || {
        for catalog in context.catalogs.state() {
            context.queue.add(catalog.name().to_owned());
        }
    };
    let checks = context
        .checks
        .run(CHECKS_AT_ONCE, context.stop.clone(), |name: String| {
            let context = Arc::clone(&context);
            async move { check_one(&context, &name).await }
        });
    tokio::select! {
        () = context.contents.policy().follow(&all) => {}
        () = context.image_policies.follow(&context.client, &all) => {}
        () = checks => {}
    }
}

async fn check_one(context: &Context, name: &str) -> Outcome {
    let catalog = context.catalogs.get(&ObjectRef::new(name));
    let stored = context
        .store
        .snapshot(name)
        .map(|snapshot| snapshot.record().into());
    let image = catalog
        .zip(stored)
        .and_then(|(catalog, stored)| Some((image(&catalog, &stored)?, context.rules(&catalog).ok()?)));
    if let Some((image, rules)) = image {
        let policy = context.contents.policy().number(&rules).await;
        let known = context.states.of(name).verified;
        if known.is_some_and(|known| known.about(policy, &image, Instant::now()).is_some()) {
            return Outcome::Done;
        }
        let answer = context.contents.signature_status(&image, rules).await;
        context.states.change(name, |state| state.verified = Some(answer));
        context.queue.add(name.to_owned());
    }
    Outcome::Done
}
