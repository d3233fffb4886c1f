//! The metrics of work queues. They have the names of client-go and controller-runtime, so that existing dashboards and
//! alerts match.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::work::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    controller: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// A queue has the name of its controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
    controller: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of all queues; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Families {
    reconciles: Family<Result, Counter>,
    errors: Family<Controller, Counter>,
    refusals: Family<Controller, Counter>,
    panics: Family<Controller, Counter>,
    seconds: Histograms<Controller>,
    active: Family<Controller, Gauge>,
    most: Family<Controller, Gauge>,
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    waited: Histograms<Name>,
    worked: Histograms<Name>,
    under_way: RunningWork,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Self {
        fn reconcile_seconds() -> Histogram {
            Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
                0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0,
                20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
            ])
        }
        fn queue_seconds() -> Histogram {
            Histogram::new(exponential_buckets(1e-8, 10.0, 12))
        }
        let these = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            refusals: Family::default(),
            panics: Family::default(),
            seconds: Family::new_with_constructor(reconcile_seconds),
            active: Family::default(),
            most: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(queue_seconds),
            worked: Family::new_with_constructor(queue_seconds),
            under_way: RunningWork::default(),
        };
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations by controller and result",
            these.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciliations by controller",
            these.errors.clone(),
        );
        registry.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciliations that only a change of the object can fix, by controller",
            these.refusals.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciliations that panicked, by controller",
            these.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciliations by controller",
            these.seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Reconciliations in progress by controller",
            these.active.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum concurrent reconciliations by controller",
            these.most.clone(),
        );
        registry.register("workqueue_depth", "Length of the work queue", these.depth.clone());
        registry.register(
            "workqueue_adds",
            "Objects added to the work queue",
            these.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Delayed additions to the work queue, retries included",
            these.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time that objects wait in the work queue",
            these.waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Duration of the work on an object",
            these.worked.clone(),
        );
        registry.register_collector(Box::new(these.under_way.clone()));
        these
    }

    /// The metrics of one queue; `look` returns the running work.
    pub(super) fn queue(
        &self,
        name: &'static str,
        look: impl Fn() -> Running + Send + Sync + 'static,
    ) -> QueueMetrics {
        self.under_way.add(name, look);
        let controller = Controller { controller: name };
        let queue = Name {
            name,
            controller: name,
        };
        let these = QueueMetrics {
            families: self.clone(),
            controller,
            queue,
        };
        // The series exist from the start, so that the first rate over them is correct.
        for result in [Outcome::Done, Outcome::After(Duration::ZERO), Outcome::Failed] {
            let _ = self.reconciles.get_or_create(&these.result(result));
        }
        let _ = self.errors.get_or_create(&these.controller);
        let _ = self.refusals.get_or_create(&these.controller);
        let _ = self.panics.get_or_create(&these.controller);
        let _ = self.active.get_or_create(&these.controller);
        let _ = self.depth.get_or_create(&these.queue);
        let _ = self.adds.get_or_create(&these.queue);
        let _ = self.retries.get_or_create(&these.queue);
        these
    }
}

/// The metrics of one queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueMetrics {
    families: Families,
    controller: Controller,
    queue: Name,
}

impl QueueMetrics {
    fn result(&self, outcome: Outcome) -> Result {
        Result {
            controller: self.controller.controller,
            result: match outcome {
                Outcome::Done | Outcome::Refused => "success",
                Outcome::After(_) => "requeue_after",
                Outcome::Failed => "error",
            },
        }
    }

    pub(crate) fn added(&self) {
        self.families.adds.get_or_create(&self.queue).inc();
    }

    pub(crate) fn waiting(&self, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.families.depth.get_or_create(&self.queue).set(depth);
    }

    pub(crate) fn began(&self, waited: Duration) {
        self.families
            .waited
            .get_or_create(&self.queue)
            .observe(waited.as_secs_f64());
        self.families.active.get_or_create(&self.controller).inc();
    }

    pub(crate) fn finished(&self, took: Duration, outcome: Outcome) {
        let these = &self.families;
        these.active.get_or_create(&self.controller).dec();
        these
            .worked
            .get_or_create(&self.queue)
            .observe(took.as_secs_f64());
        these
            .seconds
            .get_or_create(&self.controller)
            .observe(took.as_secs_f64());
        these.reconciles.get_or_create(&self.result(outcome)).inc();
        match outcome {
            Outcome::Failed => {
                these.errors.get_or_create(&self.controller).inc();
            }
            Outcome::Refused => {
                these.refusals.get_or_create(&self.controller).inc();
            }
            Outcome::Done | Outcome::After(_) => {}
        }
    }

    pub(crate) fn comes_back(&self) {
        self.families.retries.get_or_create(&self.queue).inc();
    }

    pub(crate) fn panicked(&self) {
        self.families.panics.get_or_create(&self.controller).inc();
    }

    pub(crate) fn at_once(&self, most: usize) {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.families.most.get_or_create(&self.controller).set(most);
    }
}

/// The duration of the running work, in total and of the longest item.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Running {
    pub(crate) total: Duration,
    pub(crate) longest: Duration,
}

/// Reads the running work of a controller.
type RunningReader = Box<dyn Fn() -> Running + Send + Sync>;

/// The running work, read when metrics are scraped: a counter never shows work that hangs.
#[derive(Clone, Default)]
struct RunningWork(Arc<Mutex<Vec<(&'static str, RunningReader)>>>);

impl fmt::Debug for RunningWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("UnderWay")
    }
}

impl RunningWork {
    fn add(&self, name: &'static str, look: impl Fn() -> Running + Send + Sync + 'static) {
        let mut queues = self.0.lock();
        queues.push((name, Box::new(look)));
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(Running) -> Duration,
    ) -> fmt::Result {
        let queues = self.0.lock();
        let kind = ConstGauge::new(0.0).metric_type();
        let mut descriptor = encoder.encode_descriptor(name, help, None, kind)?;
        for (queue, look) in queues.iter() {
            let labels = Name {
                name: queue,
                controller: queue,
            };
            ConstGauge::new(of(look()).as_secs_f64()).encode(descriptor.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for RunningWork {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.gauge(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "Total duration of the work in progress",
            |running| running.total,
        )?;
        self.gauge(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "Duration of the longest work in progress",
            |running| running.longest,
        )
    }
}
