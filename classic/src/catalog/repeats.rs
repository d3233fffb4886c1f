//! The rate of events that passes over a namespace repeat.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The shortest time between two repetitions of the events of a namespace.
const PAUSE: Duration = Duration::from_mins(1);

/// When the events of each namespace were recorded last.
#[derive(Debug, Default)]
pub struct Repeats {
    recorded: Mutex<BTreeMap<String, Instant>>,
}

impl Repeats {
    /// Whether the events of a namespace are recorded now: always where they are news, else at most once a minute.
    pub fn admits(&self, namespace: &str, is_news: bool, now: Instant) -> bool {
        let mut recorded = self.recorded.lock();
        recorded.retain(|_, at| now.duration_since(*at) < PAUSE);
        if recorded.contains_key(namespace) && !is_news {
            return false;
        }
        recorded.insert(namespace.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_events_are_recorded_at_most_once_a_minute_and_news_at_once() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        for (namespace, is_news, seconds, expected) in [
            ("a", false, 0, true),
            ("a", false, 1, false),
            ("b", false, 1, true),
            ("a", true, 2, true),
            ("a", false, 61, false),
            ("a", false, 63, true),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(
                repeats.admits(namespace, is_news, now),
                expected,
                "{namespace} after {seconds} s"
            );
        }
    }
}
