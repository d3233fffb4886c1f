//! Verification of the images that the Pods of a bundle run.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_image::{Access, Reference, RequestPermits, Rules};
use olm_platform::log::chain;
use olm_platform::queue::Queue;
use parking_lot::Mutex;

use super::pulls::{Pending, Pulled, Pulls, Turns};
use super::{FetchError, Registries};

/// The time for which a verification stands if it may change without an event: an image is refused, or named by a tag.
const STANDS: Duration = Duration::from_secs(20);
/// The most images of a bundle that are verified at the same time.
const AT_ONCE: usize = 4;

/// The images that the signature policy refuses, each with the reason.
pub(crate) type ImageRefusals = Vec<String>;

/// Verifies the images of bundles, at most one set for each extension at a time.
pub(super) struct Operands {
    jobs: Pulls<Result<ImageRefusals, FetchError>>,
    known: Mutex<HashMap<String, Known>>,
}

/// A finished verification.
struct Known {
    /// The images and the policy.
    what: String,
    /// Whether every image is named by its digest.
    are_pinned: bool,
    refusals: ImageRefusals,
    since: Instant,
}

impl Known {
    fn holds(&self, what: &str, now: Instant) -> bool {
        let is_lasting = self.refusals.is_empty() && self.are_pinned;
        self.what == what && (is_lasting || now.saturating_duration_since(self.since) < STANDS)
    }
}

impl Operands {
    pub(super) fn new(permits: Arc<RequestPermits>, wake: Queue<String>) -> Self {
        Self {
            jobs: Pulls::new(permits, wake),
            known: Mutex::default(),
        }
    }

    /// Verifies the images. `policy` is the number of the policy with the rules.
    pub(super) async fn verify(
        &self,
        registries: &Arc<Registries>,
        extension: &str,
        images: BTreeSet<String>,
        policy: u64,
        rules: &Rules,
    ) -> Pulled<Result<ImageRefusals, FetchError>> {
        let names: Vec<&str> = images.iter().map(String::as_str).collect();
        let what = format!("{policy} {}", names.join(" "));
        if let Some(refusals) = self.known_refusals(extension, &what) {
            return Pulled::Done(Ok(refusals));
        }
        let are_pinned = images.iter().all(|image| image.contains('@'));
        let (registries, rules) = (Arc::clone(registries), rules.clone());
        let work = |turns| async move {
            match all(&registries, &turns, images, rules).await {
                Ok(refusals) => Some(Ok(refusals)),
                Err(VerificationEnd::Fault(error)) => Some(Err(error)),
                Err(VerificationEnd::Unwanted) => None,
            }
        };
        let answer = self.jobs.ask_many(extension, &what, work).await;
        if let Pulled::Done(Ok(refusals)) = &answer {
            let known = Known {
                what,
                are_pinned,
                refusals: refusals.clone(),
                since: Instant::now(),
            };
            self.known.lock().insert(extension.to_owned(), known);
        }
        answer
    }

    /// The refusals of the last verification, while it holds.
    fn known_refusals(&self, extension: &str, what: &str) -> Option<ImageRefusals> {
        let known = self.known.lock();
        let known = known
            .get(extension)
            .filter(|known| known.holds(what, Instant::now()))?;
        Some(known.refusals.clone())
    }

    pub(super) fn forget(&self, extension: &str) {
        self.jobs.forget(extension);
        self.known.lock().remove(extension);
    }

    pub(super) fn tidy(&self) {
        self.jobs.tidy();
    }
}

/// Reason why a verification ends without a verdict.
enum VerificationEnd {
    Fault(FetchError),
    /// The job is no longer wanted.
    Unwanted,
}

async fn all(
    registries: &Registries,
    turns: &Turns,
    images: BTreeSet<String>,
    rules: Rules,
) -> Result<ImageRefusals, VerificationEnd> {
    let access = registries.access(rules).await.map_err(VerificationEnd::Fault)?;
    // Collected first: a closure inside the stream would make the future not `Send`.
    let asked: Vec<_> = images
        .iter()
        .map(|image| one(registries, turns, &access, image))
        .collect();
    let refused: Vec<Option<String>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    Ok(refused.into_iter().flatten().collect())
}

/// The reason why an image is refused, if it is. A registry that does not answer is an error, not a refusal. Each image
/// counts as one request to its registry.
async fn one(
    registries: &Registries,
    turns: &Turns,
    access: &Access,
    image: &str,
) -> Result<Option<String>, VerificationEnd> {
    let Ok(reference) = Reference::parse_familiar(image) else {
        return Ok(Some(format!("{image:?} is not an image reference")));
    };
    let Some(_turn) = turns.take(reference.registry()).await else {
        return Err(VerificationEnd::Unwanted);
    };
    let Err(error) = registries.images.verify_for_all_nodes(&reference, access).await else {
        return Ok(None);
    };
    registries.forget_after_refusal(Some(&error));
    if error.is_verdict() {
        return Ok(Some(chain(&error)));
    }
    Err(VerificationEnd::Fault(FetchError::Resolve(Box::new(error))))
}

/// The message about a verification under way.
pub(crate) fn pending(state: Pending) -> &'static str {
    match state {
        Pending::UnderWay => "verifying the images of the bundle's Pods",
        Pending::Queued => {
            "waiting to verify the images of the bundle's Pods: --pulls or --pulls-per-registry limits concurrent requests"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_stands_for_a_moment_and_longer_where_nothing_can_change() {
        let since = Instant::now();
        let known = |refusals: &[&str], are_pinned: bool| Known {
            what: "1 a".to_owned(),
            are_pinned,
            refusals: refusals.iter().map(|text| (*text).to_owned()).collect(),
            since,
        };
        let later = since + STANDS;
        for (known, lasts) in [
            (known(&[], true), true),
            (known(&[], false), false),
            (known(&["a is not signed"], true), false),
        ] {
            assert!(known.holds("1 a", since));
            assert!(!known.holds("2 a", since), "another policy");
            assert_eq!(known.holds("1 a", later), lasts);
        }
    }
}
