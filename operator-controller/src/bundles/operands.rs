//! Verification of the images that the Pods of a bundle run.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_image::{Access, PullError, Reference, RequestPermits, Rules, SignatureStatus};
use olm_platform::log::chain;
use olm_platform::queue::Queue;
use parking_lot::Mutex;

use super::pulls::{Pending, Pulled, Pulls, Turns};
use super::{FetchError, Registries};

/// The time for which a verification stands if it may change without an event: an image is refused, or named by a tag.
const STANDS: Duration = Duration::from_secs(20);
/// The time for which any other one stands: a certificate may have expired, or a signature is gone.
const LASTS: Duration = Duration::from_hours(24);
/// The most images of a bundle that are verified at the same time.
const AT_ONCE: usize = 4;
/// The most images that a message names.
const NAMED: usize = 5;

/// What the signature policy says about the images of a bundle's Pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OperandVerdicts {
    /// The images that are signed, each with its signers and the rules that ask for them.
    pub accepted: Vec<String>,
    /// The images that may not be used.
    pub refused: Vec<OperandRefusal>,
}

/// Refusal of an image of a bundle's Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperandRefusal {
    /// Whether the policy refuses it; otherwise the registry does, or the image is malformed.
    pub by_policy: bool,
    /// The image and the reason.
    pub reason: String,
}

impl OperandVerdicts {
    /// The signers of the images; `None` if no image is signed.
    pub(crate) fn signers(&self) -> Option<String> {
        let signed = !self.accepted.is_empty();
        signed.then(|| {
            format!(
                "images of its Pods: {}",
                listed(self.accepted.iter().map(String::as_str))
            )
        })
    }
}

/// Some of the lines, and the number of the others.
pub(crate) fn listed<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.collect();
    let shown = lines.iter().take(NAMED).copied().collect::<Vec<_>>().join("; ");
    match lines.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// Verifies the images of bundles, at most one set for each extension at a time.
pub(super) struct Operands {
    jobs: Pulls<Result<OperandVerdicts, FetchError>>,
    known: Mutex<HashMap<String, Known>>,
}

/// A finished verification.
struct Known {
    /// The images and the policy.
    what: String,
    /// Whether every image is named by its digest.
    are_pinned: bool,
    verdicts: OperandVerdicts,
    since: Instant,
}

impl Known {
    fn holds(&self, what: &str, now: Instant) -> bool {
        let is_lasting = self.verdicts.refused.is_empty() && self.are_pinned;
        let stands = if is_lasting { LASTS } else { STANDS };
        self.what == what && now.saturating_duration_since(self.since) < stands
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
    ) -> Pulled<Result<OperandVerdicts, FetchError>> {
        let names: Vec<&str> = images.iter().map(String::as_str).collect();
        let what = format!("{policy} {}", names.join(" "));
        if let Some(verdicts) = self.known(extension, &what) {
            return Pulled::Done(Ok(verdicts));
        }
        let are_pinned = images.iter().all(|image| image.contains('@'));
        let (registries, rules) = (Arc::clone(registries), rules.clone());
        let work = |turns| async move {
            match all(&registries, &turns, images, rules).await {
                Ok(verdicts) => Some(Ok(verdicts)),
                Err(VerificationEnd::Fault(error)) => Some(Err(error)),
                Err(VerificationEnd::Unwanted) => None,
            }
        };
        let answer = self.jobs.ask_many(extension, &what, work).await;
        if let Pulled::Done(Ok(verdicts)) = &answer {
            let known = Known {
                what,
                are_pinned,
                verdicts: verdicts.clone(),
                since: Instant::now(),
            };
            self.known.lock().insert(extension.to_owned(), known);
        }
        answer
    }

    /// The verdicts of the last verification, while it holds.
    fn known(&self, extension: &str, what: &str) -> Option<OperandVerdicts> {
        let known = self.known.lock();
        let known = known
            .get(extension)
            .filter(|known| known.holds(what, Instant::now()))?;
        Some(known.verdicts.clone())
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
) -> Result<OperandVerdicts, VerificationEnd> {
    let access = registries.access(rules).await.map_err(VerificationEnd::Fault)?;
    // Collected first: a closure inside the stream would make the future not `Send`.
    let asked: Vec<_> = images
        .iter()
        .map(|image| one(registries, turns, &access, image))
        .collect();
    let found: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut verdicts = OperandVerdicts::default();
    for verdict in found {
        match verdict {
            Ok(accepted) => verdicts.accepted.extend(accepted),
            Err(refused) => verdicts.refused.push(refused),
        }
    }
    Ok(verdicts)
}

/// The signers of an image, if a rule asks for any, or the reason why it is refused. A registry that does not answer is
/// an error, not a refusal. Each image counts as one request to its registry.
async fn one(
    registries: &Registries,
    turns: &Turns,
    access: &Access,
    image: &str,
) -> Result<Result<Option<String>, OperandRefusal>, VerificationEnd> {
    let Ok(reference) = Reference::parse_familiar(image) else {
        return Ok(Err(OperandRefusal {
            by_policy: false,
            reason: format!("{image:?} is not an image reference"),
        }));
    };
    let Some(_turn) = turns.take(reference.registry()).await else {
        return Err(VerificationEnd::Unwanted);
    };
    let error = match registries.images.verify_for_all_nodes(&reference, access).await {
        Ok(image) => {
            let status = SignatureStatus::accepted(&image.pinned, &image.approvals);
            return Ok(Ok(status.map(|status| status.message)));
        }
        Err(error) => error,
    };
    registries.forget_after_refusal(Some(&error));
    if error.is_verdict() {
        return Ok(Err(OperandRefusal {
            by_policy: matches!(error, PullError::Policy { .. }),
            reason: chain(&error),
        }));
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

    fn refused(reason: &str) -> OperandRefusal {
        OperandRefusal {
            by_policy: true,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_verification_stands_for_a_moment_and_for_a_day_where_nothing_else_can_change() {
        let since = Instant::now();
        let known = |refusals: &[&str], are_pinned: bool| Known {
            what: "1 a".to_owned(),
            are_pinned,
            verdicts: OperandVerdicts {
                accepted: Vec::new(),
                refused: refusals.iter().map(|text| refused(text)).collect(),
            },
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
            assert!(!known.holds("1 a", since + LASTS));
        }
    }

    #[test]
    fn a_message_names_some_images_and_counts_the_others() {
        let verdicts = |count: usize| OperandVerdicts {
            accepted: (0..count).map(|number| format!("{number} is signed")).collect(),
            refused: Vec::new(),
        };
        assert_eq!(verdicts(0).signers(), None);
        let text = verdicts(2).signers().unwrap();
        assert_eq!(text, "images of its Pods: 0 is signed; 1 is signed");
        let text = verdicts(7).signers().unwrap();
        assert!(text.ends_with("; 4 is signed; and 2 more"), "{text}");
    }
}
