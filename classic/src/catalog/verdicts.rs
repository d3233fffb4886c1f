//! The verdicts of the signature policies about the bundles of installed versions, as far as they are known.

use std::collections::BTreeMap;
use std::time::Instant;

use olm_classic::cluster::text;
use olm_image::{CachedVerification, Pinned, Verification};
use olm_platform::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;

use crate::registry::access::Puller;

/// A Subscription, by namespace and name.
pub type Key = (String, String);

/// The verdicts about installed bundles, by Subscription.
#[derive(Default)]
pub struct Verdicts {
    known: Mutex<BTreeMap<Key, Verdict>>,
    /// Subscriptions whose image must be verified.
    pub queue: Queue<Key>,
}

/// An image to verify, with the rights to read its signatures, and the verdict.
struct Verdict {
    image: Pinned,
    puller: Puller,
    answer: Option<CachedVerification>,
}

impl Verdicts {
    /// The verdict of the policies with this number about the image of a Subscription. One that is not known is queued.
    pub fn about(&self, subscription: &Value, policy: u64, image: Pinned, puller: Puller) -> Verification {
        let key = key(subscription);
        let mut known = self.known.lock();
        let answer = known.get(&key).and_then(|known| known.answer.as_ref());
        if let Some(answer) = answer.and_then(|answer| answer.about(policy, &image, Instant::now())) {
            return answer;
        }
        let verdict = Verdict {
            image,
            puller,
            answer: None,
        };
        known.insert(key.clone(), verdict);
        self.queue.add(key);
        Verification::Pending
    }

    /// The image of a Subscription to verify, with the rights to read its signatures.
    pub fn wanted(&self, key: &Key) -> Option<(Pinned, Puller)> {
        let known = self.known.lock();
        let known = known.get(key)?;
        Some((known.image.clone(), known.puller.clone()))
    }

    /// Notes the verdict about the image of a Subscription, unless that is forgotten.
    pub fn note(&self, key: &Key, answer: CachedVerification) {
        if let Some(known) = self.known.lock().get_mut(key) {
            known.answer = Some(answer);
        }
    }

    /// Forgets a Subscription.
    pub fn forget(&self, subscription: &Value) {
        self.known.lock().remove(&key(subscription));
    }
}

fn key(subscription: &Value) -> Key {
    let part = |pointer: &str| text(subscription, pointer).to_owned();
    (part("/metadata/namespace"), part("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use olm_image::SignatureStatus;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_is_verified_once_for_each_policy() {
        let verdicts = Verdicts::default();
        let subscription = json!({"metadata": {"namespace": "n", "name": "s"}});
        let key = key(&subscription);
        let image = Pinned::parse(&format!("r.example/b@sha256:{}", "a".repeat(64))).unwrap();
        let about = |policy| verdicts.about(&subscription, policy, image.clone(), Puller::default());
        assert_eq!(about(1), Verification::Pending);
        assert_eq!(verdicts.wanted(&key).map(|(image, _)| image), Some(image.clone()));
        let status = SignatureStatus::unreadable("down");
        let answer = CachedVerification::new(1, image.clone(), Some(status.clone()), Instant::now());
        verdicts.note(&key, answer.clone());
        assert_eq!(about(1), Verification::Known(status));
        assert_eq!(about(2), Verification::Pending);
        verdicts.forget(&subscription);
        verdicts.note(&key, answer);
        assert_eq!(verdicts.wanted(&key), None);
    }
}
