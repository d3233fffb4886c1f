//! The time of the next run of an extension.

use std::time::{Duration, Instant};

use olm_platform::queue::Outcome;

use crate::extension::failure::Severity;

/// The longest pause in seconds before a run checks whether a user fixed the cause.
const LONGEST_WAIT: u32 = 60;
/// A run that waits for a user and takes longer than this is repeated rarely: it rests for [`REST`] times as long.
const COSTLY: Duration = Duration::from_secs(5);
/// The factor of a costly run's rest.
const REST: u32 = 10;
const LONGEST_REST: Duration = Duration::from_mins(10);
/// The first pause before the retry of a failed write that nothing else depends on.
const REPEAT: Duration = Duration::from_secs(5);
/// The pause before a run that has more to do continues.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(100);
/// The pause before a check of something without events: whether a newer bundle is still held back, or whether the
/// cluster still lacks a requirement of the installed bundle.
pub(crate) const UNANNOUNCED: Duration = Duration::from_mins(5);
/// The time that a pull may take before the status reports it. Most take less.
const BRIEF: Duration = Duration::from_secs(5);
/// The pause before a run checks an image that is being pulled. Its arrival also starts a run.
const ON_THE_WAY: Duration = Duration::from_secs(30);

/// State of this stage between runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetryCache {
    /// The number of consecutive runs that waited for a user.
    waits: u32,
    /// The number of consecutive runs in which a write failed that nothing else depends on.
    failed_writes: u32,
    /// The start of the current image pull.
    pulling: Option<Instant>,
}

impl RetryCache {
    /// The time of the next run after a run of this duration. `is_unannounced`: no event announces the expected change.
    pub(crate) fn after(
        &mut self,
        severity: Option<Severity>,
        is_unannounced: bool,
        taken: Duration,
    ) -> Outcome {
        self.waits = if severity == Some(Severity::Waiting) {
            self.waits.saturating_add(1)
        } else {
            0
        };
        match severity {
            None | Some(Severity::Terminal) if is_unannounced => Outcome::After(UNANNOUNCED),
            None => Outcome::Done,
            Some(Severity::Terminal) => Outcome::Refused,
            Some(Severity::Waiting) => Outcome::After(rest(self.waits, taken)),
            Some(Severity::Unfinished) => Outcome::After(AT_ONCE),
            Some(Severity::Pulling) => Outcome::After(ON_THE_WAY),
            Some(Severity::Transient) => Outcome::Failed,
        }
    }

    /// The outcome, with another run soon if a write failed that nothing else depends on: after 5 s, 10 s, 20 s … 5
    /// min, and later if a run takes long.
    pub(crate) fn unless_written(&mut self, has_failed: bool, outcome: Outcome, taken: Duration) -> Outcome {
        if !has_failed {
            self.failed_writes = 0;
            return outcome;
        }
        self.failed_writes = self.failed_writes.saturating_add(1);
        let doubled = 2u32.saturating_pow(self.failed_writes.saturating_sub(1));
        let pause = REPEAT.saturating_mul(doubled).min(UNANNOUNCED);
        at_the_latest(outcome, pause.max(taken.saturating_mul(REST).min(LONGEST_REST)))
    }

    /// The time of the next run if the image has been pulled for a short time only. Then there is nothing to report
    /// yet.
    pub(crate) fn brief(&mut self, severity: Option<Severity>, now: Instant) -> Option<Outcome> {
        if severity != Some(Severity::Pulling) {
            self.pulling = None;
            return None;
        }
        let since = *self.pulling.get_or_insert(now);
        let left = BRIEF.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(Outcome::After(left))
    }
}

/// The outcome, with another run after this time at the latest.
pub(crate) fn at_the_latest(outcome: Outcome, time: Duration) -> Outcome {
    match outcome {
        Outcome::Done | Outcome::Refused => Outcome::After(time),
        Outcome::After(other) => Outcome::After(other.min(time)),
        Outcome::Failed => Outcome::Failed,
    }
}

/// The rest after a failure that waits for a user: 1 s, 2 s, 4 s … 60 s, and longer if a run takes long.
fn rest(waits: u32, taken: Duration) -> Duration {
    let seconds = 2u32.saturating_pow(waits.saturating_sub(1)).min(LONGEST_WAIT);
    let rest = Duration::from_secs(seconds.into());
    if taken < COSTLY {
        return rest;
    }
    rest.max(taken.saturating_mul(REST).min(LONGEST_REST))
}

/// `outcome`, unless a write failed. A conflict means that an event for a newer extension will arrive.
pub(crate) fn unless_stale(
    action: &'static str,
    name: &str,
    written: Result<(), kube::Error>,
    outcome: Outcome,
) -> Outcome {
    match written {
        Ok(()) => outcome,
        Err(error) => Outcome::overtaken(&error).unwrap_or_else(|| {
            tracing::warn!(
                extension = name,
                error = &error as &dyn std::error::Error,
                "cannot {action}"
            );
            Outcome::Failed
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_costly_run_is_repeated_seldom() {
        for (waits, taken, expected) in [
            (1, 0, 1),
            (2, 1, 2),
            (7, 1, 60),
            (100, 4, 60),
            (1, 5, 50),
            (100, 5, 60),
            (1, 30, 300),
            (1, 3600, 600),
        ] {
            let rest = rest(waits, Duration::from_secs(taken));
            assert_eq!(rest.as_secs(), expected, "{waits} {taken}");
        }
    }

    #[test]
    fn a_failed_write_is_repeated_soon_and_then_less_often() {
        let mut cache = RetryCache::default();
        let mut next =
            |has_failed, taken| cache.unless_written(has_failed, Outcome::Done, Duration::from_secs(taken));
        let after = |seconds| Outcome::After(Duration::from_secs(seconds));
        assert_eq!(next(false, 0), Outcome::Done);
        assert_eq!(
            [next(true, 0), next(true, 0), next(true, 0)],
            [5, 10, 20].map(after)
        );
        assert_eq!(next(true, 9), after(90), "a run that takes long");
        assert_eq!(next(false, 0), Outcome::Done);
        assert_eq!(next(true, 0), after(5));
    }

    #[test]
    fn an_image_on_the_way_is_reported_once_it_takes_long() {
        let mut cache = RetryCache::default();
        let begun = Instant::now();
        let mut brief = |severity, seconds| cache.brief(severity, begun + Duration::from_secs(seconds));
        let pulling = Some(Severity::Pulling);
        assert_eq!(brief(pulling, 0), Some(Outcome::After(BRIEF)));
        assert_eq!(brief(pulling, 4), Some(Outcome::After(Duration::from_secs(1))));
        assert_eq!(brief(pulling, 5), None);
        assert_eq!(brief(None, 6), None);
        assert_eq!(brief(pulling, 7), Some(Outcome::After(BRIEF)), "another one");
    }

    #[test]
    fn waiting_grows_until_something_else_comes() {
        let mut cache = RetryCache::default();
        let mut after = |severity| cache.after(severity, false, Duration::ZERO);
        assert_eq!(
            after(Some(Severity::Waiting)),
            Outcome::After(Duration::from_secs(1))
        );
        assert_eq!(
            after(Some(Severity::Waiting)),
            Outcome::After(Duration::from_secs(2))
        );
        assert_eq!(after(None), Outcome::Done);
        assert_eq!(
            after(Some(Severity::Waiting)),
            Outcome::After(Duration::from_secs(1))
        );
        assert_eq!(
            RetryCache::default().after(None, true, Duration::ZERO),
            Outcome::After(UNANNOUNCED)
        );
    }
}
