//! Requests to registries, separate from reconciliation: a run waits only a moment for a registry, so a slow one does
//! not delay other extensions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use olm_image::{RequestPermit, RequestPermits};
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
    /// The number of the last job.
    last: AtomicU64,
    wake: Queue<String>,
}

struct Job<T> {
    number: u64,
    what: String,
    began: Instant,
    turns: Turns,
    outcome: Option<T>,
    /// Cancels requests that still wait for a permit.
    _wanted: DropGuard,
}

impl<T> Job<T> {
    fn pending(&self) -> Pending {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        if count(&self.turns.waiting) > 0 && count(&self.turns.under_way) == 0 {
            Pending::Queued
        } else {
            Pending::UnderWay
        }
    }
}

/// The permits of one job, which asks one registry or several.
#[derive(Clone)]
pub(crate) struct Turns {
    permits: Arc<RequestPermits>,
    waiting: Arc<AtomicUsize>,
    under_way: Arc<AtomicUsize>,
    unwanted: CancellationToken,
}

/// The permit for one request, until it is dropped.
pub(crate) struct Turn {
    _permit: Option<RequestPermit>,
    _under_way: Counted,
}

impl Turns {
    /// Waits for the permit of a request; none when the job is no longer wanted.
    pub(crate) async fn take(&self, registry: &str) -> Option<Turn> {
        let waiting = Counted::new(&self.waiting);
        let permit = tokio::select! {
            permit = self.permits.take(registry) => permit,
            () = self.unwanted.cancelled() => return None,
        };
        let under_way = Counted::new(&self.under_way);
        drop(waiting);
        Some(Turn {
            _permit: permit,
            _under_way: under_way,
        })
    }
}

/// One more in a counter, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Pulls<T> {
    /// `wake` is the queue of extensions.
    pub(crate) fn new(permits: Arc<RequestPermits>, wake: Queue<String>) -> Self {
        Self {
            permits,
            jobs: Arc::default(),
            last: AtomicU64::default(),
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
        let registry = registry.map(str::to_owned);
        // Boxed: it is in the future of everything that asks.
        let work = Box::pin(work);
        self.ask_many(extension, what, move |turns: Turns| async move {
            let _turn = match registry {
                Some(registry) => Some(turns.take(&registry).await?),
                None => None,
            };
            Some(work.await)
        })
        .await
    }

    /// The same for work that sends several requests: it takes a turn for each, and ends without a result when there is
    /// none, because the job is no longer wanted.
    pub(crate) async fn ask_many<F>(
        &self,
        extension: &str,
        what: &str,
        work: impl FnOnce(Turns) -> F,
    ) -> Pulled<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let (mut arrival, number) = {
            let mut jobs = self.jobs.lock();
            if let Some(job) = jobs.get(extension).filter(|job| job.what == what) {
                let (pending, number) = (job.pending(), job.number);
                return match take(&mut jobs, extension, number) {
                    Some(outcome) => Pulled::Done(outcome),
                    None => Pulled::Pending(pending),
                };
            }
            self.begin(&mut jobs, extension, what, work)
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

    fn begin<F>(
        &self,
        jobs: &mut HashMap<String, Job<T>>,
        extension: &str,
        what: &str,
        work: impl FnOnce(Turns) -> F,
    ) -> (oneshot::Receiver<()>, u64)
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        // Never used again, so a job that was forgotten cannot answer for another one.
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let unwanted = CancellationToken::new();
        let turns = Turns {
            permits: Arc::clone(&self.permits),
            waiting: Arc::default(),
            under_way: Arc::default(),
            unwanted: unwanted.clone(),
        };
        let job = Job {
            number,
            what: what.to_owned(),
            began: Instant::now(),
            turns: turns.clone(),
            outcome: None,
            _wanted: unwanted.drop_guard(),
        };
        jobs.insert(extension.to_owned(), job);
        let (arrived, arrival) = oneshot::channel();
        let running = Running {
            jobs: Arc::clone(&self.jobs),
            extension: extension.to_owned(),
            number,
        };
        let (work, wake) = (work(turns), self.wake.clone());
        tokio::spawn(async move {
            let Some(outcome) = work.await else {
                return;
            };
            running.finish(outcome);
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
    /// Gives the job its outcome, unless another one has replaced it.
    fn finish(&self, outcome: T) {
        let mut jobs = self.jobs.lock();
        if let Some(job) = jobs
            .get_mut(&self.extension)
            .filter(|job| job.number == self.number)
        {
            job.outcome = Some(outcome);
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
    async fn each_request_of_a_job_takes_a_turn_at_its_registry() {
        let pulls = pulls(3, 1);
        let slow = |turns: Turns| async move {
            let _turn = turns.take("slow").await?;
            pending::<Option<u8>>().await
        };
        let under_way = Pulled::Pending(Pending::UnderWay);
        assert_eq!(pulls.ask_many("first", "x", slow).await, under_way);
        let queued = Pulled::Pending(Pending::Queued);
        assert_eq!(pulls.ask_many("second", "x", slow).await, queued);
        // One of two requests is under way: that of the other registry.
        let both = |turns: Turns| async move {
            let (slow, good) = futures::join!(turns.take("slow"), async {
                let _turn = turns.take("good").await?;
                pending::<Option<u8>>().await
            });
            slow.and(good)
        };
        assert_eq!(pulls.ask_many("third", "x", both).await, under_way);
        let one_after_another = |turns: Turns| async move {
            drop(turns.take("a").await?);
            drop(turns.take("b").await?);
            Some(7)
        };
        assert_eq!(
            pulls.ask_many("fourth", "x", one_after_another).await,
            Pulled::Done(7)
        );
        // Who is gone gives up its turns, and its late answer is not that of the next job of its name.
        pulls.forget("second");
        pulls.forget("first");
        assert_eq!(pulls.ask_many("second", "x", slow).await, queued);
        assert_eq!(pulls.permits.take("other").await.map(drop), Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_job_does_not_answer_for_a_new_one() {
        let pulls = pulls(2, 2);
        let late = |answer: u8| async move {
            tokio::time::sleep(Duration::from_secs(u64::from(answer))).await;
            answer
        };
        let under_way = Pulled::Pending(Pending::UnderWay);
        assert_eq!(pulls.ask("a", "x", Some("r"), late(1)).await, under_way);
        pulls.forget("a");
        assert_eq!(pulls.ask("a", "y", Some("r"), late(9)).await, under_way);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(pulls.ask("a", "y", Some("r"), late(9)).await, under_way);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(pulls.ask("a", "y", Some("r"), late(9)).await, Pulled::Done(9));
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
