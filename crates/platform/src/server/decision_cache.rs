//! A bounded cache of the API server's answers about clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Verdicts by request.
#[derive(Debug)]
pub(crate) struct DecisionCache<K, V> {
    lifetime: Duration,
    most: usize,
    /// Whether a verdict is kept in preference to others when the cache is full: a client can cause any number of
    /// refusals.
    is_worth: fn(&V) -> bool,
    known: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> DecisionCache<K, V> {
    /// A cache of `most` verdicts for `lifetime`. Verdicts for which `is_worth` holds are evicted last.
    pub(crate) fn new(lifetime: Duration, most: usize, is_worth: fn(&V) -> bool) -> Self {
        Self {
            lifetime,
            most,
            is_worth,
            known: Mutex::default(),
        }
    }

    /// The verdict, unless it is too old.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let known = self.known.lock();
        known
            .get(key)
            .filter(|(at, _)| at.elapsed() < self.lifetime)
            .map(|(_, verdict)| verdict.clone())
    }

    /// Adds a verdict. A full cache first removes expired verdicts, then those that are not worth keeping.
    pub(crate) fn keep(&self, key: K, verdict: V) {
        let mut known = self.known.lock();
        if known.len() >= self.most {
            known.retain(|_, (at, _)| at.elapsed() < self.lifetime);
        }
        if known.len() >= self.most {
            known.retain(|_, (_, verdict)| (self.is_worth)(verdict));
        }
        if known.len() < self.most {
            known.insert(key, (Instant::now(), verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_make_room_for_those_who_are_known() {
        let verdicts = DecisionCache::new(Duration::from_secs(30), 100, Result::is_ok);
        verdicts.keep("scraper".to_owned(), Ok(()));
        for number in 0..300 {
            verdicts.keep(format!("made up {number}"), Err(()));
            assert!(verdicts.known.lock().len() <= 100);
        }
        assert_eq!(verdicts.get(&"scraper".to_owned()), Some(Ok(())));
        for number in 0..200 {
            verdicts.keep(format!("known {number}"), Ok(()));
        }
        assert_eq!(verdicts.known.lock().len(), 100);
        assert!(verdicts.known.lock().values().all(|(_, verdict)| verdict.is_ok()));
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(verdicts.get(&"scraper".to_owned()), None);
    }
}
