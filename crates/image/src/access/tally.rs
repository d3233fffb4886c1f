//! Counts of checks of images against a signature policy, by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use super::policy::PolicyRejection;

/// Every outcome: a good signature, or the fault of the one that came closest. The nearest to a good one is first.
pub(crate) const OUTCOMES: [&str; 13] = [
    VERIFIED,
    "rejected",
    "unsigned",
    "name",
    "predicate",
    "digest",
    "identity",
    "log",
    "time",
    "certificate",
    "key",
    "form",
    "other",
];
/// The outcome of an image with all signatures that the policy asks for.
pub(crate) const VERIFIED: &str = "verified";

/// Counts by outcome.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; OUTCOMES.len()]);

impl Tally {
    /// Counts one.
    pub(crate) fn count(&self, outcome: &str) {
        let place = OUTCOMES.iter().position(|known| *known == outcome);
        if let Some(counter) = self.0.get(place.unwrap_or(OUTCOMES.len() - 1)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|counter| counter.load(Ordering::Relaxed));
        OUTCOMES.into_iter().zip(counts).collect()
    }
}

impl PolicyRejection {
    /// The outcome in one word, for counting.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Self::Rejected { .. } | Self::SignedBy { .. } | Self::Unusable { .. } => "rejected",
            Self::Unsigned { .. } => "unsigned",
            Self::Signature { kind, .. } => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_and_no_other_appears() {
        let tally = Tally::default();
        for outcome in ["verified", "verified", "identity", "nothing known"] {
            tally.count(outcome);
        }
        let seen: Vec<_> = tally.read().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(seen, [("verified", 2), ("identity", 1), ("other", 1)]);
    }
}
