//! A work queue: one task per key, many keys at the same time, and a backoff per key after failures.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::hash::{BuildHasher as _, Hash};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use super::outcome::{Outcome, Severity};

use crate::metrics::Metrics;
use crate::metrics::work::{QueueMetrics, Running};

/// The first delay after a failure.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay after repeated failures.
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// A handle to the queue; clones share it.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<QueueState<K>>,
    changed: Notify,
    metrics: OnceLock<QueueMetrics>,
}

#[derive(Debug)]
struct QueueState<K> {
    ready: VecDeque<K>,
    waiting: HashSet<K>,
    /// The running keys, with the times at which their work began.
    running: HashMap<K, Instant>,
    /// The times at which waiting keys were added.
    added: HashMap<K, Instant>,
    /// The keys added while running: they run once more.
    again: HashSet<K>,
    /// The keys added patiently while running.
    again_patiently: HashSet<K>,
    delayed: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> Default for Queue<K> {
    fn default() -> Self {
        let state = QueueState {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashMap::new(),
            added: HashMap::new(),
            again: HashSet::new(),
            again_patiently: HashSet::new(),
            delayed: HashMap::new(),
            failures: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Notify::new(),
                metrics: OnceLock::new(),
            }),
        }
    }
}

impl<K: Clone + Eq + Hash + Debug + Send + 'static> Queue<K> {
    /// Reports the metrics of this queue under the name of the controller from now on.
    pub fn report_to(&self, metrics: &Metrics, controller: &'static str) {
        // The metrics are part of the queue, so they must not keep it alive.
        let shared = Arc::downgrade(&self.shared);
        let look = move || {
            let Some(shared) = shared.upgrade() else {
                return Running::default();
            };
            let state = lock(&shared);
            let lasted = state.running.values().map(Instant::elapsed);
            lasted.fold(Running::default(), |running, lasted| Running {
                total: running.total + lasted,
                longest: running.longest.max(lasted),
            })
        };
        // A second call changes nothing.
        let _ = self
            .shared
            .metrics
            .get_or_init(|| metrics.queue(controller, look));
    }
}

impl<K: Clone + Eq + Hash + Debug> Queue<K> {
    /// Adds a key for work as soon as possible. A waiting key is not added twice.
    pub fn add(&self, key: K) {
        self.add_to(self.state(), key);
    }

    fn add_to(&self, mut state: MutexGuard<'_, QueueState<K>>, key: K) {
        state.delayed.remove(&key);
        self.push(&mut state, key);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Adds a key, but not before its retry time if it failed. For news that cannot be the awaited change, such as a
    /// write of the work itself.
    pub fn add_patiently(&self, key: K) {
        let mut state = self.state();
        if state.running.contains_key(&key) {
            state.again_patiently.insert(key);
        } else if !state.is_retried(&key) {
            self.add_to(state, key);
        }
    }

    /// Adds a key after a time, or earlier if it is due or added earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.delay(self.state(), key, delay);
    }

    fn delay(&self, mut state: MutexGuard<'_, QueueState<K>>, key: K, delay: Duration) {
        let due = Instant::now() + delay;
        if !state.waiting.contains(&key) {
            let entry = state.delayed.entry(key).or_insert(due);
            *entry = due.min(*entry);
            self.measure(QueueMetrics::comes_back);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Adds a key after a time in which more of its changes are expected, but not before its retry time if it failed.
    pub fn add_later(&self, key: K, delay: Duration) {
        let state = self.state();
        if !state.is_retried(&key) {
            self.delay(state, key, delay);
        }
    }

    /// Works on keys until `stop` is cancelled, at most `concurrency` at once, then waits for the running ones.
    ///
    /// Work that panics counts as failed: one object must not stop the others.
    pub async fn run<F, Work>(&self, concurrency: usize, stop: CancellationToken, work: F)
    where
        F: Fn(K) -> Work,
        Work: Future<Output = Outcome>,
    {
        let mut running = FuturesUnordered::new();
        self.measure(|metrics| metrics.at_once(concurrency.max(1)));
        loop {
            while running.len() < concurrency.max(1) && !stop.is_cancelled() {
                let Some(key) = self.take() else { break };
                let outcome = AssertUnwindSafe(work(key.clone())).catch_unwind();
                running.push(async move {
                    let outcome = outcome.await.unwrap_or_else(|_| {
                        self.measure(QueueMetrics::panicked);
                        tracing::error!(?key, "working on this object panicked; retrying");
                        Outcome::Failed
                    });
                    (key, outcome)
                });
            }
            if stop.is_cancelled() && running.is_empty() {
                return;
            }
            let due = self.next_due();
            // A key that is due while all workers are busy waits for a worker, not for the clock.
            let has_place = running.len() < concurrency.max(1) && !stop.is_cancelled();
            tokio::select! {
                Some((key, outcome)) = running.next(), if !running.is_empty() => self.finished(&key, outcome),
                () = self.shared.changed.notified() => {}
                () = sleep_until(due), if has_place => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    fn take(&self) -> Option<K> {
        let mut state = self.state();
        let now = Instant::now();
        let due: Vec<K> = state
            .delayed
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            state.delayed.remove(&key);
            self.push(&mut state, key);
        }
        let key = state.ready.pop_front()?;
        state.waiting.remove(&key);
        state.running.insert(key.clone(), now);
        let added = state.added.remove(&key).unwrap_or(now);
        self.measure(|metrics| {
            metrics.began(now.saturating_duration_since(added));
            metrics.waiting(state.depth());
        });
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.state().delayed.values().min().copied()
    }

    fn finished(&self, key: &K, outcome: Outcome) {
        let mut state = self.state();
        if let Some(began) = state.running.remove(key) {
            self.measure(|metrics| metrics.finished(began.elapsed(), outcome));
        }
        let delay = match outcome {
            Outcome::Done | Outcome::Refused => {
                state.failures.remove(key);
                None
            }
            Outcome::After(delay) => {
                state.failures.remove(key);
                Some(delay)
            }
            Outcome::Failed => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                let delay = backoff(*failures, spread(key, *failures));
                *failures = failures.saturating_add(1);
                Some(delay)
            }
        };
        let again_patiently = state.again_patiently.remove(key) && outcome != Outcome::Failed;
        if state.again.remove(key) {
            // Counted when it was added.
            state.push(key.clone());
        } else if again_patiently {
            self.push(&mut state, key.clone());
        } else if let Some(delay) = delay {
            let due = Instant::now() + delay;
            let entry = state.delayed.entry(key.clone()).or_insert(due);
            *entry = due.min(*entry);
            self.measure(QueueMetrics::comes_back);
        }
    }

    fn push(&self, state: &mut QueueState<K>, key: K) {
        if state.push(key) {
            self.measure(|metrics| {
                metrics.added();
                metrics.waiting(state.depth());
            });
        }
    }

    fn measure(&self, what: impl FnOnce(&QueueMetrics)) {
        if let Some(metrics) = self.shared.metrics.get() {
            what(metrics);
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<K>> {
        lock(&self.shared)
    }
}

/// Runs work on a task of its own, so that all processors are used and long computations do not delay others. A panic
/// is propagated.
pub async fn on_its_own(work: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    tokio::spawn(work).await.unwrap_or_else(|error| {
        error
            .try_into_panic()
            .map_or(Outcome::Failed, |panic| std::panic::resume_unwind(panic))
    })
}

fn lock<K>(shared: &Shared<K>) -> MutexGuard<'_, QueueState<K>> {
    // No code panics while it holds the lock, and the state is consistent between any two statements.
    shared.state.lock()
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    /// Adds a key. Returns whether it did not wait already.
    fn push(&mut self, key: K) -> bool {
        let is_new = if self.running.contains_key(&key) {
            self.again.insert(key.clone())
        } else {
            let is_new = self.waiting.insert(key.clone());
            if is_new {
                self.ready.push_back(key.clone());
            }
            is_new
        };
        if is_new {
            self.added.entry(key).or_insert_with(Instant::now);
        }
        is_new
    }

    /// Whether a key has failed and waits for its retry time.
    fn is_retried(&self, key: &K) -> bool {
        self.failures.contains_key(key) && self.delayed.contains_key(key)
    }

    /// The number of waiting keys, including keys that are also running.
    fn depth(&self) -> usize {
        self.ready.len() + self.again.len()
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// 1 s, 2 s, 4 s, … 5 min, each up to a tenth longer, so that keys that failed together are not retried together.
fn backoff(failures: u32, spread: u8) -> Duration {
    let delay = FIRST_DELAY
        .saturating_mul(2u32.saturating_pow(failures))
        .min(LONGEST_DELAY);
    delay + delay.mul_f64(f64::from(spread) / 2560.0)
}

fn spread<K: Hash>(key: &K, failures: u32) -> u8 {
    let hash = std::collections::hash_map::RandomState::new().hash_one((key, failures));
    hash.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn delays_double_up_to_a_bound() {
        let seconds: Vec<u64> = (0..12).map(|n| backoff(n, 0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert!(backoff(40, 255) < Duration::from_secs(331));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_worked_on_is_worked_on_once_more() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let count = AtomicUsize::new(0);
        queue.add("a");
        let run = queue.run(4, stop.clone(), |key| {
            let (queue, stop, count) = (queue.clone(), stop.clone(), &count);
            async move {
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    queue.add(key);
                    queue.add(key);
                } else {
                    stop.cancel();
                }
                Outcome::Done
            }
        });
        run.await;
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_reports_its_metrics() {
        let (queue, stop, metrics) = (Queue::default(), CancellationToken::new(), Metrics::default());
        queue.report_to(&metrics, "thing");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let seen = Mutex::new(Vec::new());
        queue
            .run(1, stop.clone(), |key| {
                let (metrics, stop, seen, queue) = (&metrics, &stop, &seen, &queue);
                async move {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    if key == "a" && seen.lock().is_empty() {
                        queue.add("a");
                    }
                    let runs = {
                        let mut seen = seen.lock();
                        seen.push(metrics.text(crate::metrics::TextFormat::OpenMetrics).unwrap());
                        seen.len()
                    };
                    match (key, runs) {
                        ("a", 1) => Outcome::After(Duration::from_secs(100)),
                        ("b", 2) => Outcome::Failed,
                        (_, 3) => panic!("on purpose"),
                        _ => {
                            stop.cancel();
                            Outcome::Refused
                        }
                    }
                }
            })
            .await;
        // While `a` runs for the first time, `b` waits, and `a` waits again.
        let seen = seen.into_inner();
        reports(
            &seen[0],
            &[
                ("workqueue_depth", "2"),
                ("workqueue_adds_total", "3"),
                ("workqueue_unfinished_work_seconds", "3.0"),
                ("workqueue_longest_running_processor_seconds", "3.0"),
                ("controller_runtime_active_workers", "1"),
                ("controller_runtime_max_concurrent_reconciles", "1"),
                ("controller_runtime_reconcile_errors_total", "0"),
            ],
        );
        reports(
            &metrics.text(crate::metrics::TextFormat::OpenMetrics).unwrap(),
            &[
                ("workqueue_depth", "0"),
                ("workqueue_retries_total", "2"),
                ("workqueue_unfinished_work_seconds", "0.0"),
                ("workqueue_queue_duration_seconds_count", "4"),
                ("workqueue_work_duration_seconds_sum", "12.0"),
                ("success", "1"),
                ("requeue_after", "1"),
                ("error", "2"),
                ("controller_runtime_reconcile_errors_total", "2"),
                ("controller_runtime_terminal_reconcile_errors_total", "1"),
                ("controller_runtime_reconcile_panics_total", "1"),
                ("controller_runtime_reconcile_time_seconds_count", "4"),
                ("controller_runtime_active_workers", "0"),
            ],
        );
    }

    /// Metrics of the queue and of its controller, and results of the latter.
    fn reports(text: &str, expected: &[(&str, &str)]) {
        for (name, value) in expected {
            let series = if name.starts_with("workqueue") {
                format!("{name}{{name=\"thing\",controller=\"thing\"}}")
            } else if name.starts_with("controller") {
                format!("{name}{{controller=\"thing\"}}")
            } else {
                format!("controller_runtime_reconcile_total{{controller=\"thing\",result=\"{name}\"}}")
            };
            assert!(
                text.contains(&format!("{series} {value}\n")),
                "{series} {value} is not in {text}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_follow_each_other_make_one_run_and_no_earlier_retry() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let started = Instant::now();
        let times = Mutex::new(Vec::new());
        let add = || queue.add_later("a", Duration::from_secs(2));
        add();
        let run = queue.run(1, stop.clone(), |_| {
            let mut times = times.lock();
            times.push(started.elapsed().as_secs());
            std::future::ready(match times.len() {
                1..=3 => Outcome::Failed,
                _ => Outcome::Done,
            })
        });
        let changes = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if started.elapsed() < Duration::from_secs(10) {
                    add();
                }
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            stop.cancel();
        };
        tokio::join!(run, changes);
        // Two seconds after the first change; then the retries in their own time, and one run for later changes.
        assert_eq!(times.into_inner(), [2, 3, 5, 9, 11]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_an_addition_cuts_the_wait_short() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let started = Instant::now();
        let times = Mutex::new(Vec::new());
        queue.add("a");
        let run = queue.run(1, stop.clone(), |_| {
            let mut times = times.lock();
            times.push(started.elapsed());
            if times.len() == 5 {
                stop.cancel();
            }
            std::future::ready(Outcome::Failed)
        });
        let nudge = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            queue.add("a");
        };
        tokio::join!(run, nudge);
        let times = times.into_inner();
        assert!(
            times[1] >= Duration::from_secs(1) && times[2] >= Duration::from_secs(3),
            "{times:?}"
        );
        assert_eq!(times[3].as_secs(), 4, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_added_patiently_wait_only_after_a_failure() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let started = Instant::now();
        let times = Mutex::new(Vec::new());
        queue.add_patiently("a");
        let run = queue.run(1, stop.clone(), |key| {
            // The work's own writes come back as news.
            queue.add_patiently(key);
            let mut times = times.lock();
            times.push(started.elapsed().as_secs());
            std::future::ready(match times.len() {
                1 | 2 => Outcome::Failed,
                3 => Outcome::Done,
                4 => Outcome::After(Duration::from_secs(100)),
                _ => {
                    stop.cancel();
                    Outcome::Done
                }
            })
        });
        let late_news = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            queue.add_patiently("a");
        };
        tokio::join!(run, late_news);
        assert_eq!(times.into_inner(), [0, 1, 3, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_fails_and_disturbs_no_other_key() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.add("broken");
        queue.add("sound");
        let (broken, sound) = (AtomicUsize::new(0), AtomicUsize::new(0));
        queue
            .run(1, stop.clone(), |key| {
                let (broken, sound, stop) = (&broken, &sound, stop.clone());
                async move {
                    if key == "sound" {
                        sound.fetch_add(1, Ordering::SeqCst);
                    } else if broken.fetch_add(1, Ordering::SeqCst) == 0 {
                        panic!("on purpose");
                    } else {
                        stop.cancel();
                    }
                    Outcome::Done
                }
            })
            .await;
        assert_eq!(broken.load(Ordering::SeqCst), 2);
        assert_eq!(sound.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_worked_on_twice_at_once_and_many_are_side_by_side() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        for key in 0..8 {
            queue.add(key);
        }
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        queue
            .run(3, stop.clone(), |_| async {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                if done.fetch_add(1, Ordering::SeqCst) == 7 {
                    stop.cancel();
                }
                Outcome::Done
            })
            .await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert_eq!(done.load(Ordering::SeqCst), 8);
    }
}
