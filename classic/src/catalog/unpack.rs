//! Unpacks bundles in the process: no Job, no ConfigMap. A bundle is unpacked once however many namespaces ask for it,
//! and no namespace waits longer than a moment for it: it is woken when the bundle is here. A failure is tried again.

mod conditions;
pub mod images;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::names;
use olm_image::{Bounds, Reference, RequestPermits};
use olm_platform::log;
use olm_platform::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use self::conditions::UnpackFailure;
use self::images::{BundleImages, UnpackError, UnpackedBundle};
use crate::registry::access::Puller;
use crate::registry::policies::Policies;

/// Time that a namespace waits for a bundle; most are unpacked within it.
const MOMENT: Duration = Duration::from_millis(500);
/// Time that an unpacked bundle is held for further requests. Its files stay on disk.
const HELD: Duration = Duration::from_mins(1);
/// Time after the first attempt from which Subscriptions that do without a bundle no longer wait for it, if a pull of
/// its image has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest delay after a failure.
const DELAYS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(5));

/// The bundles of a catalog: the namespace of the CatalogSource, the image, and the number of the policies for it.
type Key = (String, String, u64);

/// Time limits for unpacking, from the OperatorGroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackTimeouts {
    /// The time after which it counts as failed; `None`: never.
    pub timeout: Option<Duration>,
    /// The time after which a failed one is retried, where the OperatorGroup sets one.
    pub retry: Option<Duration>,
}

/// The state of a bundle.
#[derive(Debug, Clone)]
pub enum BundleState {
    /// It is unpacked.
    Unpacked(Arc<UnpackedBundle>),
    /// It is not unpacked.
    NotUnpacked {
        /// The reason, as a condition of its lookup.
        condition: Value,
        /// The time after which that changes without an event.
        again: Option<Duration>,
        /// Whether Subscriptions that do without it go on: its pull has failed for a while.
        is_held_up: bool,
    },
}

/// The condition of a lookup whose CatalogSource is gone.
pub fn catalog_missing() -> Value {
    conditions::catalog_missing()
}

/// Unpacks bundles.
pub struct Unpacker {
    images: Arc<BundleImages>,
    policies: Arc<Policies>,
    permits: Arc<RequestPermits>,
    jobs: Arc<Mutex<BTreeMap<Key, Job>>>,
    wake: Queue<String>,
}

/// The unpacking of one bundle.
struct Job {
    puller: Puller,
    began: Instant,
    attempts: u32,
    state: State,
    /// Error of the last attempt.
    failure: Option<UnpackFailure>,
    /// The namespaces that ask for it.
    asked: BTreeSet<String>,
    changed: watch::Sender<()>,
}

enum State {
    Running,
    Failed {
        at: Instant,
        /// The delay until the next attempt, where the OperatorGroup sets none.
        delay: Duration,
    },
    Done {
        bundle: Arc<UnpackedBundle>,
        until: Instant,
    },
}

impl Unpacker {
    /// `wake` is the queue of namespaces.
    pub fn new(images: BundleImages, policies: Arc<Policies>, bounds: Bounds, wake: Queue<String>) -> Self {
        Self {
            images: Arc::new(images),
            policies,
            permits: Arc::new(RequestPermits::new(bounds)),
            jobs: Arc::default(),
            wake,
        }
    }

    /// The images of bundles.
    pub fn images(&self) -> &BundleImages {
        &self.images
    }

    /// The bundle with this image for a namespace, which is woken when the state changes.
    pub async fn ask(
        &self,
        namespace: &str,
        image: &str,
        puller: &Puller,
        timeouts: UnpackTimeouts,
    ) -> BundleState {
        let policy = self.policies.number(&puller.rules).await;
        let key = (puller.namespace.clone(), image.to_owned(), policy);
        let mut changed = {
            let mut jobs = self.jobs.lock();
            let now = Instant::now();
            jobs.retain(|_, job| !matches!(&job.state, State::Done { until, .. } if *until <= now));
            if jobs.get(&key).is_some_and(|job| job.puller != *puller) {
                jobs.remove(&key);
            }
            let job = jobs.entry(key.clone()).or_insert_with(|| {
                self.start(&key, puller);
                Job::new(puller, now)
            });
            job.asked.insert(namespace.to_owned());
            if job.next(timeouts).is_some_and(|next| next <= now) {
                job.state = State::Running;
                self.start(&key, puller);
            }
            if !matches!(job.state, State::Running) || job.attempts > 0 {
                return bundle_state(job, image, timeouts);
            }
            job.changed.subscribe()
        };
        // It may be too late for this pass, never for the next.
        let _ = tokio::time::timeout(MOMENT, changed.changed()).await;
        match self.jobs.lock().get(&key) {
            Some(job) => bundle_state(job, image, timeouts),
            None => BundleState::NotUnpacked {
                condition: conditions::running(None),
                again: Some(MOMENT),
                is_held_up: false,
            },
        }
    }

    /// The bundle with this image, which its catalog has as `reference`, once more, for a plan that is carried out.
    ///
    /// # Errors
    /// When it cannot be pulled, or is no bundle.
    pub async fn fetch(
        &self,
        image: &str,
        reference: &str,
        puller: &Puller,
    ) -> Result<Arc<UnpackedBundle>, Arc<UnpackError>> {
        let policy = self.policies.number(&puller.rules).await;
        let held = |(key, job): (&Key, &Job)| match &job.state {
            State::Done { bundle, .. }
                if key.0 == puller.namespace
                    && key.2 == policy
                    && key.1 == reference
                    && (image == reference || bundle.image == image) =>
            {
                Some(Arc::clone(bundle))
            }
            _ => None,
        };
        if let Some(bundle) = self.jobs.lock().iter().find_map(held) {
            return Ok(bundle);
        }
        let _permit = self.permits.take(&registry(image)).await;
        let bundle = self.images.unpack(image, reference, puller).await;
        bundle.map(Arc::new).map_err(Arc::new)
    }

    /// Has failed bundles of a catalog's namespace tried again at once: pull secrets may have changed.
    pub fn retry(&self, namespace: &str) {
        let mut jobs = self.jobs.lock();
        for (key, job) in jobs.iter_mut().filter(|(key, _)| key.0 == namespace) {
            if matches!(job.state, State::Failed { .. }) {
                job.state = State::Running;
                self.start(key, &job.puller);
            }
        }
    }

    /// Forgets all attempts and their results: the policies for images changed. What runs has no effect any more.
    pub fn forget(&self) {
        self.jobs.lock().clear();
    }

    /// Removes the files of bundles that neither InstallPlans nor namespaces need.
    pub async fn prune(&self, cluster: &Cluster) {
        let plans = cluster.of_kind(names::INSTALL_PLAN_KIND);
        let unfinished = plans.filter(|plan| text(plan, "/status/phase") != "Complete");
        let images = unfinished.map(|plan| annotation(plan, names::BUNDLE_IMAGES_ANNOTATION));
        let images = images.filter_map(|images| serde_json::from_str(images).ok());
        let images: Vec<BTreeMap<String, String>> = images.collect();
        let used = images.iter().flat_map(BTreeMap::values).map(String::as_str);
        self.images.prune(used).await;
    }

    /// Begins an attempt.
    fn start(&self, key: &Key, puller: &Puller) {
        let (images, permits, jobs) = (
            Arc::clone(&self.images),
            Arc::clone(&self.permits),
            Arc::clone(&self.jobs),
        );
        let (key, puller, wake) = (key.clone(), puller.clone(), self.wake.clone());
        tokio::spawn(async move {
            let permit = permits.take(&registry(&key.1)).await;
            // A panic must not leave the bundle in work for ever.
            let work = tokio::spawn(async move {
                let image = key.1.clone();
                (images.unpack(&image, &image, &puller).await, key)
            });
            let Ok((outcome, key)) = work.await else { return };
            drop(permit);
            let mut jobs = jobs.lock();
            if let Some(job) = jobs.get_mut(&key) {
                job.finish(outcome, &key.1);
                job.wake(&wake);
            }
        });
    }
}

impl Job {
    fn new(puller: &Puller, now: Instant) -> Self {
        Self {
            puller: puller.clone(),
            began: now,
            attempts: 0,
            state: State::Running,
            failure: None,
            asked: BTreeSet::new(),
            changed: watch::Sender::new(()),
        }
    }

    fn finish(&mut self, outcome: Result<UnpackedBundle, UnpackError>, image: &str) {
        let now = Instant::now();
        self.attempts = self.attempts.saturating_add(1);
        self.state = match outcome {
            Ok(bundle) => State::Done {
                bundle: Arc::new(bundle),
                until: now + HELD,
            },
            Err(error) => {
                let (first, longest) = DELAYS;
                let delay = first
                    .saturating_mul(2u32.saturating_pow(self.attempts - 1))
                    .min(longest);
                let message = log::chain(&error);
                tracing::warn!(image, error = message, "cannot unpack a bundle; retrying");
                self.failure = Some(UnpackFailure {
                    message,
                    is_final: !error.is_retryable(),
                });
                State::Failed { at: now, delay }
            }
        };
        self.changed.send_replace(());
    }

    /// Time of the next attempt, if the last one has failed.
    fn next(&self, timeouts: UnpackTimeouts) -> Option<Instant> {
        let State::Failed { at, delay } = &self.state else {
            return None;
        };
        let is_final = self.failure.as_ref().is_some_and(|failure| failure.is_final);
        let is_over = is_final
            || timeouts
                .timeout
                .is_some_and(|timeout| self.began.elapsed() >= timeout);
        let delay = timeouts.retry.filter(|_| is_over).unwrap_or(*delay);
        Some(*at + delay)
    }

    /// Wakes those who ask for it.
    fn wake(&self, queue: &Queue<String>) {
        for namespace in &self.asked {
            queue.add(namespace.clone());
        }
    }
}

/// State of the bundle of a job.
fn bundle_state(job: &Job, image: &str, timeouts: UnpackTimeouts) -> BundleState {
    if let State::Done { bundle, .. } = &job.state {
        return BundleState::Unpacked(Arc::clone(bundle));
    }
    let lasted = job.began.elapsed();
    let left = timeouts.timeout.map(|timeout| timeout.saturating_sub(lasted));
    let is_over = left.is_some_and(|left| left.is_zero());
    let until_next = job
        .next(timeouts)
        .map(|next| next.saturating_duration_since(Instant::now()));
    let until_over = left.filter(|left| !left.is_zero());
    let until_held_up = PATIENCE.saturating_sub(lasted);
    let is_held_up = job.failure.is_some() && until_held_up.is_zero();
    let until_held_up = Some(until_held_up).filter(|left| job.failure.is_some() && !left.is_zero());
    let condition = match &job.failure {
        Some(failure) if failure.is_final || is_over => conditions::failed(failure, image),
        Some(failure) => conditions::pulling(failure, image),
        None => conditions::running(is_over.then_some(image)),
    };
    let changes = [until_next, until_over, until_held_up];
    BundleState::NotUnpacked {
        condition,
        again: changes.into_iter().flatten().min(),
        is_held_up,
    }
}

/// The registry of an image; the whole text where it is no reference.
fn registry(image: &str) -> String {
    Reference::parse(image).map_or_else(|_| image.to_owned(), |parsed| parsed.registry().to_owned())
}
