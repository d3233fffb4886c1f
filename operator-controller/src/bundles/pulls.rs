//! Requests to registries, separate from reconciliation: a run waits only a moment for a registry, so a slow one does
//! not delay other extensions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use olm_image::RequestPermits;
use olm_platform::queue::Queue;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The time that a run waits for an answer. Most arrive within it.
const MOMENT: Duration = Duration::from_millis(500);
/// The time for which an answer is kept for its extension.
const KEPT: Duration = Duration::from_mins(10);

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pulled<T> {
    /// The answer.
    Done(T),
    /// No answer yet. The extension is reconciled when there is one.
    Pending(Pending),
}

/// The state of a request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The request is under way.
    UnderWay,
    /// The request waits for a permit.
    Queued,
}

/// Requests of one kind, at most one for each extension.
pub(crate) struct Pulls<T> {
    permits: Arc<RequestPermits>,
    jobs: Arc<Mutex<HashMap<String, Job<T>>>>,
    wake: Queue<String>,
}

struct Job<T> {
    number: u64,
    what: String,
    began: Instant,
    is_queued: bool,
    outcome: Option<T>,
    /// Cancels a request that still waits for a permit.
    _wanted: DropGuard,
}

impl<T> Job<T> {
    fn pending(&self) -> Pending {
        if self.is_queued {
            Pending::Queued
        } else {
            Pending::UnderWay
        }
    }
}

impl<T: Send + 'static> Pulls<T> {
    /// `wake` is the queue of extensions.
    pub(crate) fn new(permits: Arc<RequestPermits>, wake: Queue<String>) -> Self {
        Self {
            permits,
            jobs: Arc::default(),
            wake,
        }
    }

    /// The answer to a request of an extension, returned once. `registry` names the registry that limits it; `None` for
    /// a local answer. A new request of an extension replaces its earlier one.
    pub(crate) async fn ask(
        &self,
        extension: &str,
        what: &str,
        registry: Option<&str>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Pulled<T> {
        let (mut arrival, number) = {
            let mut jobs = self.jobs.lock();
            if let Some(job) = jobs.get(extension).filter(|job| job.what == what) {
                let (pending, number) = (job.pending(), job.number);
                return match take(&mut jobs, extension, number) {
                    Some(outcome) => Pulled::Done(outcome),
                    None => Pulled::Pending(pending),
                };
            }
            self.begin(&mut jobs, extension, what, registry, work)
        };
        // A late answer is used by the next run.
        let _ = tokio::time::timeout(MOMENT, &mut arrival).await;
        drop(arrival);
        let mut jobs = self.jobs.lock();
        match take(&mut jobs, extension, number) {
            Some(outcome) => Pulled::Done(outcome),
            None => Pulled::Pending(jobs.get(extension).map_or(Pending::UnderWay, Job::pending)),
        }
    }

    fn begin(
        &self,
        jobs: &mut HashMap<String, Job<T>>,
        extension: &str,
        what: &str,
        registry: Option<&str>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> (oneshot::Receiver<()>, u64) {
        let number = jobs.get(extension).map_or(0, |job| job.number.wrapping_add(1));
        let unwanted = CancellationToken::new();
        let job = Job {
            number,
            what: what.to_owned(),
            began: Instant::now(),
            is_queued: registry.is_some(),
            outcome: None,
            _wanted: unwanted.clone().drop_guard(),
        };
        jobs.insert(extension.to_owned(), job);
        let (arrived, arrival) = oneshot::channel();
        let running = Running {
            jobs: Arc::clone(&self.jobs),
            extension: extension.to_owned(),
            number,
        };
        let (permits, wake) = (Arc::clone(&self.permits), self.wake.clone());
        let registry = registry.map(str::to_owned);
        tokio::spawn(async move {
            let permit = match registry {
                Some(registry) => tokio::select! {
                    permit = permits.take(&registry) => permit,
                    () = unwanted.cancelled() => return,
                },
                None => None,
            };
            running.change(|job| job.is_queued = false);
            let outcome = work.await;
            drop(permit);
            running.change(|job| job.outcome = Some(outcome));
            if arrived.send(()).is_err() {
                wake.add(running.extension.clone());
            }
        });
        (arrival, number)
    }

    /// Drops the request of an extension. A request under way continues and keeps its permit.
    pub(crate) fn forget(&self, extension: &str) {
        self.jobs.lock().remove(extension);
    }

    /// Drops answers that no caller collected.
    pub(crate) fn tidy(&self) {
        self.jobs
            .lock()
            .retain(|_, job| job.outcome.is_none() || job.began.elapsed() < KEPT);
    }
}

/// A running job. One that ends without a result is removed, so it is started again.
struct Running<T> {
    jobs: Arc<Mutex<HashMap<String, Job<T>>>>,
    extension: String,
    number: u64,
}

impl<T> Running<T> {
    /// Updates the job, unless another one has replaced it.
    fn change(&self, change: impl FnOnce(&mut Job<T>)) {
        let mut jobs = self.jobs.lock();
        if let Some(job) = jobs
            .get_mut(&self.extension)
            .filter(|job| job.number == self.number)
        {
            change(job);
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        let mut jobs = self.jobs.lock();
        let is_lost = |job: &Job<T>| job.number == self.number && job.outcome.is_none();
        if jobs.get(&self.extension).is_some_and(is_lost) {
            jobs.remove(&self.extension);
        }
    }
}

/// The result of a finished job, which is removed.
fn take<T>(jobs: &mut HashMap<String, Job<T>>, extension: &str, number: u64) -> Option<T> {
    let job = jobs.get(extension).filter(|job| job.number == number)?;
    job.outcome.as_ref()?;
    jobs.remove(extension)?.outcome
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use olm_image::Bounds;

    use super::*;

    fn pulls(total: usize, each: usize) -> Pulls<u8> {
        Pulls::new(
            Arc::new(RequestPermits::new(Bounds { total, each })),
            Queue::default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_given_once_and_late_ones_to_the_next_run() {
        let pulls = pulls(1, 1);
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 1 }).await, Pulled::Done(1));
        let late = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            2
        };
        let under_way = Pulled::Pending(Pending::UnderWay);
        assert_eq!(pulls.ask("a", "x", Some("r"), late).await, under_way);
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 3 }).await, under_way);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 4 }).await, Pulled::Done(2));
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 5 }).await, Pulled::Done(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_registry_delays_neither_other_registries_nor_cached_bundles() {
        let pulls = pulls(3, 2);
        for (number, expected) in [
            (0, Pending::UnderWay),
            (1, Pending::UnderWay),
            (2, Pending::Queued),
        ] {
            let name = format!("slow-{number}");
            let asked = pulls.ask(&name, "x", Some("slow"), pending()).await;
            assert_eq!(asked, Pulled::Pending(expected), "{number}");
        }
        let good = pulls.ask("good", "x", Some("good"), async { 1 });
        assert_eq!(good.await, Pulled::Done(1));
        assert_eq!(pulls.ask("here", "x", None, async { 2 }).await, Pulled::Done(2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_something_else_or_is_gone_gives_up_its_turn() {
        let pulls = pulls(1, 1);
        let _ = pulls.ask("first", "x", Some("r"), pending()).await;
        let queued = Pulled::Pending(Pending::Queued);
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 1 }).await, queued);
        assert_eq!(pulls.ask("a", "y", None, async { 2 }).await, Pulled::Done(2));
        assert_eq!(pulls.ask("b", "x", Some("r"), async { 3 }).await, queued);
        pulls.forget("b");
        assert!(pulls.jobs.lock().keys().eq(["first"]));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_asked_for_again() {
        let pulls = pulls(1, 1);
        let lost = pulls.ask("a", "x", Some("r"), async { panic!("on purpose") });
        assert_eq!(lost.await, Pulled::Pending(Pending::UnderWay));
        assert_eq!(pulls.ask("a", "x", Some("r"), async { 1 }).await, Pulled::Done(1));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_no_caller_takes_are_forgotten() {
        let pulls = pulls(1, 1);
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            1
        };
        let _ = pulls.ask("a", "x", Some("r"), late).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        pulls.tidy();
        assert_eq!(pulls.jobs.lock().len(), 1);
        tokio::time::sleep(KEPT).await;
        pulls.tidy();
        assert_eq!(pulls.jobs.lock().len(), 0);
    }
}
