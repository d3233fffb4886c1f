//! The current signature policy, with a number that changes with it. A verdict is kept as long as its policy holds.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::access::policy::{Policy, Rules};
use crate::access::settings::{Settings, SettingsError};
use crate::access::verification::SignatureStatus;
use crate::reference::{Pinned, Reference};

/// The time between two reads of the files.
const PERIOD: Duration = Duration::from_secs(10);

/// The current signature policy.
pub struct CurrentPolicy {
    settings: Settings,
    known: Mutex<Option<Known>>,
}

#[derive(Clone)]
struct Known {
    number: u64,
    policy: Result<Arc<Policy>, String>,
}

impl CurrentPolicy {
    /// The policy of these files. Nothing is read yet.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            known: Mutex::new(None),
        }
    }

    /// The number of the policy together with these rules. The first call reads the files.
    pub async fn number(&self, rules: &Rules) -> u64 {
        together(self.get().await.number, rules)
    }

    /// The number of the policy together with these rules, and the answer about an image where that needs no
    /// signatures: no rule asks for one, or the policy cannot be read.
    pub async fn without_signatures(
        &self,
        image: &Pinned,
        rules: &Rules,
    ) -> (u64, Option<Option<SignatureStatus>>) {
        let Known { number, policy } = self.get().await;
        let answer = match policy {
            Err(why) => Some(Some(SignatureStatus::unknown(image, &why))),
            Ok(policy) => (!asks(&policy, rules, &image.requested())).then_some(None),
        };
        (together(number, rules), answer)
    }

    /// Whether the policy or these rules ask for a signature of an image with this name; so does a policy that cannot
    /// be read.
    pub async fn asks_about(&self, reference: &Reference, rules: &Rules) -> bool {
        let policy = self.get().await.policy;
        policy.map_or(true, |policy| asks(&policy, rules, reference))
    }

    async fn get(&self) -> Known {
        let known = self.known.lock().clone();
        match known {
            Some(known) => known,
            None => self.take(self.read().await).0,
        }
    }

    /// Reads the files again and again, and calls `changed` after each change. Never returns.
    pub async fn follow(&self, changed: impl Fn()) {
        loop {
            let (_, is_new) = self.take(self.read().await);
            if is_new {
                changed();
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn read(&self) -> Result<Arc<Policy>, String> {
        let settings = self.settings.clone();
        let read = tokio::task::spawn_blocking(move || settings.read()).await;
        let found = read.unwrap_or_else(|_| self.settings.read());
        found
            .map(|(_, policy)| policy)
            .map_err(|error: SettingsError| olm_transport::chain(&error))
    }

    /// Keeps the policy that a read returned. Returns it, and whether it takes the place of something else.
    fn take(&self, policy: Result<Arc<Policy>, String>) -> (Known, bool) {
        let mut known = self.known.lock();
        let before = known.as_ref().map(|known| (known.number, known.policy == policy));
        match (before, &*known) {
            (Some((_, true)), Some(same)) => (same.clone(), false),
            (before, _) => {
                let number = before.map_or(0, |(number, _)| number.wrapping_add(1));
                let next = Known { number, policy };
                *known = Some(next.clone());
                (next, before.is_some())
            }
        }
    }
}

fn together(number: u64, rules: &Rules) -> u64 {
    let mut hasher = DefaultHasher::new();
    (number, rules.mark()).hash(&mut hasher);
    hasher.finish()
}

fn asks(policy: &Policy, rules: &Rules, reference: &Reference) -> bool {
    policy.asks_about(reference) || rules.policies().any(|rules| rules.asks_about(reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_policy_gets_another_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.json");
        let present = CurrentPolicy::new(Settings {
            policy: Some(path.clone()),
            ..Settings::default()
        });
        let none = Rules::default();
        let first = present.number(&none).await;
        let image = Pinned::parse(&format!("a.example/x@sha256:{}", "a".repeat(64))).unwrap();
        let (_, unreadable) = present.without_signatures(&image, &none).await;
        let unreadable = unreadable.flatten().unwrap();
        assert_eq!(unreadable.accepted, None);
        assert!(
            unreadable.message.contains("policy.json"),
            "{}",
            unreadable.message
        );
        let reject = r#"{"default":[{"type":"reject"}]}"#;
        std::fs::write(&path, reject).unwrap();
        assert_eq!(present.number(&none).await, first, "it is not read for each call");
        let (second, is_new) = present.take(present.read().await);
        assert!(is_new && present.number(&none).await != first);
        // The same policy in other words.
        std::fs::write(&path, format!(" {reject} ")).unwrap();
        let (third, is_new) = present.take(present.read().await);
        assert!(!is_new && third.number == second.number);
        assert!(Arc::ptr_eq(&third.policy.unwrap(), &second.policy.unwrap()));
        assert_eq!(
            present.without_signatures(&image, &none).await,
            (present.number(&none).await, None)
        );
        std::fs::write(&path, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
        present.take(present.read().await);
        let (accepting, answer) = present.without_signatures(&image, &none).await;
        assert_eq!(answer, Some(None));
        // Rules of an object ask beside the policy.
        let rules = Rules::parse("us", r#"[{"type":"reject"}]"#).unwrap();
        let (stricter, answer) = present.without_signatures(&image, &rules).await;
        assert_eq!(answer, None);
        assert_ne!(stricter, accepting);
    }
}
