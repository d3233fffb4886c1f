//! The time in which a healthy operator may be down before its phase says so: while its Deployment is rolled out, or a
//! node is drained.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use olm_classic::csv::phases::UnreadyDeployments;
use parking_lot::Mutex;

use super::work::Name;

/// The time in which too few Pods may run.
const GRACE: Duration = Duration::from_mins(1);

/// The operators that were healthy and do not run for the moment, with the time since when.
#[derive(Debug, Default)]
pub struct Unready {
    since: Mutex<BTreeMap<Name, Instant>>,
}

impl Unready {
    /// The time after which a healthy operator is looked at again if nothing changes meanwhile; `None` where its phase
    /// is due now.
    pub fn rest(&self, name: &Name, unready: Option<UnreadyDeployments>, now: Instant) -> Option<Duration> {
        let mut since = self.since.lock();
        match unready {
            None => {
                since.remove(name);
                None
            }
            // Its end has a deadline of its own.
            Some(UnreadyDeployments::RollingOut) => {
                since.remove(name);
                Some(GRACE)
            }
            Some(UnreadyDeployments::Unavailable) => {
                let began = *since.entry(name.clone()).or_insert(now);
                let left = GRACE.saturating_sub(now.duration_since(began));
                if left.is_zero() {
                    since.remove(name);
                    return None;
                }
                Some(left)
            }
        }
    }

    /// Forgets an operator that is gone.
    pub fn forget(&self, name: &Name) {
        self.since.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_may_be_down_for_a_minute_and_rolled_out_for_longer() {
        let name = Name {
            namespace: "n".to_owned(),
            name: "a.v1".to_owned(),
        };
        let (unready, start) = (Unready::default(), Instant::now());
        let (down, rolling) = (
            Some(UnreadyDeployments::Unavailable),
            Some(UnreadyDeployments::RollingOut),
        );
        for (state, seconds, expected) in [
            (down, 0, Some(60)),
            (down, 20, Some(40)),
            (None, 30, None),
            (down, 40, Some(60)),
            (rolling, 60, Some(60)),
            (rolling, 600, Some(60)),
            (down, 610, Some(60)),
            (down, 670, None),
            (down, 671, Some(60)),
        ] {
            let rest = unready.rest(&name, state, start + Duration::from_secs(seconds));
            assert_eq!(rest, expected.map(Duration::from_secs), "after {seconds} s");
        }
        unready.forget(&name);
        assert_eq!(unready.rest(&name, down, start), Some(GRACE));
    }
}
