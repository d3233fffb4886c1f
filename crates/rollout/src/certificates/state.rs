//! State of certificates between two runs. All of it can be read again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::civil::Date;
use parking_lot::Mutex;

use super::layout::Layout;
use crate::outline::ObjectPosition;

/// The state of one revision's certificates. Requests of a run may update it at the same time.
#[derive(Debug, Default)]
pub struct CertificateState {
    secrets: Mutex<BTreeMap<ObjectPosition, Secret>>,
    callers: Mutex<BTreeMap<ObjectPosition, u64>>,
}

#[derive(Debug)]
struct Secret {
    looked: Date,
    trusted: String,
}

impl CertificateState {
    /// Records that a Secret was read on a day, and the authorities to trust.
    pub fn secret_seen(&self, position: ObjectPosition, looked: Date, trusted: String) {
        self.secrets.lock().insert(position, Secret { looked, trusted });
    }

    /// Records that a caller was compared with these authorities.
    pub fn caller_seen(&self, position: ObjectPosition, trusted: &str) {
        self.callers.lock().insert(position, mark(trusted));
    }

    /// The authorities to be trusted, PEM.
    pub fn trusted(&self, secret: ObjectPosition) -> Option<String> {
        self.secrets
            .lock()
            .get(&secret)
            .map(|secret| secret.trusted.clone())
    }

    /// Whether the last read of an object is still current although time passes and certificates are renewed. A Secret
    /// is read every day, a caller when the authority has changed.
    pub fn is_current(&self, layout: &Layout, position: ObjectPosition, today: Date) -> bool {
        if layout.names(position).is_some() {
            return self
                .secrets
                .lock()
                .get(&position)
                .is_some_and(|secret| secret.looked == today);
        }
        let Some(secret) = layout.secret_of(position) else {
            return true;
        };
        let Some(trusted) = self.trusted(secret) else {
            return false;
        };
        self.callers.lock().get(&position) == Some(&mark(&trusted))
    }
}

fn mark(trusted: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    trusted.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::CollisionProtection;

    use super::super::layout::{complete, tests::content};
    use super::*;

    #[test]
    fn a_secret_is_looked_at_every_day_and_callers_when_it_changes() {
        let mut content = content();
        complete(CollisionProtection::Prevent, &mut content);
        let layout = Layout::of(&content);
        let (secret, caller, other) = (
            ObjectPosition { phase: 0, object: 0 },
            ObjectPosition { phase: 1, object: 2 },
            ObjectPosition { phase: 1, object: 0 },
        );
        let day = |text: &str| -> Date { text.parse().unwrap() };
        let state = CertificateState::default();
        let current = |position, on| state.is_current(&layout, position, day(on));
        assert!(!current(secret, "2026-01-01") && !current(caller, "2026-01-01"));
        assert!(current(other, "2026-01-01"));
        state.secret_seen(secret, day("2026-01-01"), "one".to_owned());
        assert!(current(secret, "2026-01-01") && !current(secret, "2026-01-02"));
        assert!(!current(caller, "2026-01-01"));
        state.caller_seen(caller, "one");
        assert!(current(caller, "2026-01-01"));
        state.secret_seen(secret, day("2026-01-01"), "two".to_owned());
        assert!(!current(caller, "2026-01-01"));
    }
}
