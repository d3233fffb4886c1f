//! One piece of work per key at a time; concurrent callers share the result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

type Flight<V> = Shared<BoxFuture<'static, Option<V>>>;

/// Work that is under way, by key.
pub(crate) struct Flights<K, V> {
    running: Arc<Mutex<HashMap<K, Flight<V>>>>,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self {
            running: Arc::default(),
        }
    }
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the work for `key`, or starts it. The work continues when the first caller goes away. Nothing when the
    /// work was torn down before its end.
    pub(crate) async fn join(&self, key: K, work: impl Future<Output = V> + Send + 'static) -> Option<V> {
        let flight = {
            let mut running = self.running.lock();
            if let Some(flight) = running.get(&key) {
                flight.clone()
            } else {
                let done = FlightGuard {
                    running: Arc::clone(&self.running),
                    key: key.clone(),
                };
                let task = tokio::spawn(async move {
                    let _done = done;
                    work.await
                });
                let flight = task.map(Result::ok).boxed().shared();
                running.insert(key, flight.clone());
                flight
            }
        };
        flight.await
    }
}

/// Takes the flight off the board when its task ends, however it ends.
struct FlightGuard<K: Eq + Hash, V> {
    running: Arc<Mutex<HashMap<K, Flight<V>>>>,
    key: K,
}

impl<K: Eq + Hash, V> Drop for FlightGuard<K, V> {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_for_one_key_runs_once_and_is_shared() {
        let flights = Arc::new(Flights::<&str, usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let work = || {
            let runs = Arc::clone(&runs);
            async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            }
        };
        let (a, b, other) = tokio::join!(
            flights.join("a", work()),
            flights.join("a", work()),
            flights.join("b", work())
        );
        assert_eq!(a, b);
        assert!(other.is_some());
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(
            flights.join("a", work()).await,
            Some(3),
            "finished work is not remembered"
        );
    }

    #[tokio::test]
    async fn work_survives_the_caller_that_started_it() {
        let flights = Arc::new(Flights::<u8, u8>::default());
        let slow = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            7
        };
        let first = tokio::time::timeout(Duration::from_millis(5), flights.join(1, slow)).await;
        assert!(first.is_err());
        assert_eq!(flights.join(1, async { 8 }).await, Some(7));
    }

    #[tokio::test]
    async fn work_that_panics_leaves_no_trace() {
        let flights = Flights::<u8, u8>::default();
        assert_eq!(flights.join(1, async { panic!("on purpose") }).await, None);
        assert_eq!(flights.join(1, async { 2 }).await, Some(2));
    }
}
