//! The verdict of the current signature policy about an image in use. It never takes the image away.

use std::time::{Duration, Instant};

use crate::access::policy::Approval;
use crate::reference::Pinned;

/// The time after which an image that is not accepted is looked at again. No event announces a new signature.
const FRESH: Duration = Duration::from_mins(4);

/// The time after which an accepted image is looked at again: a certificate may have expired, or its signature is gone.
const FRESH_ACCEPTED: Duration = Duration::from_hours(24);

/// The time after which a request without an answer counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// The verdict of the current signature policy about an image in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureStatus {
    /// Whether the policy accepts it; none when that is not known.
    pub accepted: Option<bool>,
    /// The signer and the rule that asks for it, or the reason why the image is not accepted, or why that is unknown.
    pub message: String,
}

impl SignatureStatus {
    /// An image whose signatures could not be read.
    pub fn unknown(image: &Pinned, why: &str) -> Self {
        Self {
            accepted: None,
            message: format!("cannot verify {image}: {why}"),
        }
    }

    /// An image that cannot be verified for a reason of the cluster, such as an annotation that cannot be read.
    pub fn unreadable(why: &str) -> Self {
        Self {
            accepted: None,
            message: format!("cannot verify the image: {why}"),
        }
    }

    /// An image with these signatures; nothing without any, because no rule asks for one. The text begins with the
    /// image.
    pub fn accepted(image: &Pinned, approvals: &[Approval]) -> Option<Self> {
        let approvals: Vec<_> = approvals.iter().map(ToString::to_string).collect();
        (!approvals.is_empty()).then(|| Self {
            accepted: Some(true),
            message: format!("{image} is {}", approvals.join("; and ")),
        })
    }
}

/// The state of the verification of an image in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// No rule asks for a signature, or there is no image.
    NotAsked,
    /// The policy was asked.
    Known(SignatureStatus),
    /// The registry has not answered yet.
    Pending,
}

impl Verification {
    /// The content of the condition: whether the image is accepted, if known, and a message. The inner value is `None`
    /// without a rule, the outer one as long as the condition stays as it is.
    pub fn verdict(&self) -> Option<Option<(Option<bool>, &str)>> {
        match self {
            Self::NotAsked => Some(None),
            Self::Known(status) => Some(Some((status.accepted, &status.message))),
            Self::Pending => None,
        }
    }

    /// The time until the next verification: no event announces a new signature, or that a request failed.
    pub fn again(&self) -> Option<Duration> {
        match self {
            Self::Known(status) if status.accepted != Some(true) => Some(FRESH),
            Self::Known(_) => Some(FRESH_ACCEPTED),
            Self::Pending => Some(LOST),
            Self::NotAsked => None,
        }
    }
}

/// The verification of an image, kept for as long as its policy and its image are the same.
#[derive(Clone, Debug)]
pub struct CachedVerification {
    policy: u64,
    image: Pinned,
    status: Option<SignatureStatus>,
    asked: Instant,
}

impl CachedVerification {
    /// The verdict of the policy with this number; none where it asks for no signature.
    pub const fn new(policy: u64, image: Pinned, status: Option<SignatureStatus>, asked: Instant) -> Self {
        Self {
            policy,
            image,
            status,
            asked,
        }
    }

    /// The answer, if it is about this policy and this image. One that is not good stands for some minutes, a good one
    /// for a day, and that no rule asks for a signature for as long as the policy.
    pub fn about(&self, policy: u64, image: &Pinned, now: Instant) -> Option<Verification> {
        let status = self.status.as_ref();
        let fresh = status.map(|status| match status.accepted {
            Some(true) => FRESH_ACCEPTED,
            Some(false) | None => FRESH,
        });
        let stands = self.policy == policy
            && self.image == *image
            && fresh.is_none_or(|fresh| now.saturating_duration_since(self.asked) < fresh);
        stands.then(|| self.verification())
    }

    /// The answer.
    pub fn verification(&self) -> Verification {
        self.status
            .clone()
            .map_or(Verification::NotAsked, Verification::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(digit: char) -> Pinned {
        Pinned::parse(&format!("a.example/x@sha256:{}", digit.to_string().repeat(64))).unwrap()
    }

    #[test]
    fn an_answer_stands_while_its_policy_and_image_do_for_a_day_and_a_bad_one_for_minutes() {
        let asked = Instant::now();
        for (accepted, age, expected) in [
            (Some(true), FRESH_ACCEPTED / 2, true),
            (Some(true), FRESH_ACCEPTED, false),
            (Some(false), FRESH / 2, true),
            (Some(false), FRESH, false),
            (None, FRESH, false),
        ] {
            let status = SignatureStatus {
                accepted,
                message: "said".to_owned(),
            };
            let answer = CachedVerification::new(1, pinned('a'), Some(status.clone()), asked);
            let found = answer.about(1, &pinned('a'), asked + age);
            assert_eq!(
                found,
                expected.then_some(Verification::Known(status)),
                "{accepted:?}"
            );
            assert_eq!(answer.about(2, &pinned('a'), asked), None);
            assert_eq!(answer.about(1, &pinned('b'), asked), None);
            let again = if accepted == Some(true) {
                FRESH_ACCEPTED
            } else {
                FRESH
            };
            assert_eq!(answer.verification().again(), Some(again));
        }
        let answer = CachedVerification::new(1, pinned('a'), None, asked);
        assert_eq!(answer.verification().verdict(), Some(None));
        assert_eq!(SignatureStatus::accepted(&pinned('a'), &[]), None);
    }
}
