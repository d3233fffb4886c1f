//! The process's own figures and the text that Prometheus scrapes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Reconciles,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let reconciles = Reconciles::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            reconciles,
        }
    }
}

impl Metrics {
    /// Adds metrics of the product.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what working on an object came to.
    pub fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        self.reconciles
            .total
            .get_or_create(&Reconcile { controller, result })
            .inc();
        self.reconciles
            .seconds
            .get_or_create(&Controller { controller })
            .observe(took.as_secs_f64());
    }

    /// The text that Prometheus scrapes.
    ///
    /// # Errors
    /// When a metric cannot be written, which no metric here does.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    controller: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// Under the names that dashboards for controllers know.
#[derive(Debug, Clone)]
struct Reconciles {
    total: Family<Reconcile, Counter>,
    seconds: Family<Controller, Histogram>,
}

impl Reconciles {
    fn register(registry: &mut Registry) -> Self {
        let buckets = || {
            Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
            ])
        };
        let these = Self {
            total: Family::default(),
            seconds: Family::new_with_constructor(buckets as fn() -> Histogram),
        };
        registry.register(
            "controller_runtime_reconcile",
            "Times an object was worked on, per controller and result",
            these.total.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Time that working on an object took, per controller",
            these.seconds.clone(),
        );
        these
    }
}

/// Figures of the process, read from `/proc` at each scrape.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(bytes) = status_bytes("VmRSS:") {
            let gauge = ConstGauge::new(bytes);
            let descriptor = encoder.encode_descriptor(
                "process_resident_memory_bytes",
                "Resident memory in bytes",
                None,
                gauge.metric_type(),
            )?;
            gauge.encode(descriptor)?;
        }
        if let Some(count) = open_descriptors() {
            let gauge = ConstGauge::new(count);
            let descriptor = encoder.encode_descriptor(
                "process_open_fds",
                "Open file descriptors",
                None,
                gauge.metric_type(),
            )?;
            gauge.encode(descriptor)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let descriptor = encoder.encode_descriptor(
                "process_cpu_seconds",
                "User and system time in seconds",
                None,
                counter.metric_type(),
            )?;
            counter.encode(descriptor)?;
        }
        Ok(())
    }
}

fn status_bytes(field: &str) -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .split_whitespace()
        .next()?;
    kilobytes.parse::<i64>().ok()?.checked_mul(1024)
}

fn open_descriptors() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// The kernel counts in hundredths of a second on every platform that Linux runs on today.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may hold anything, so count from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_holds_the_process_and_the_reconciles() {
        let metrics = Metrics::default();
        metrics.reconciled("extension", "done", Duration::from_millis(7));
        let text = metrics.text().unwrap();
        for line in [
            "controller_runtime_reconcile_total{controller=\"extension\",result=\"done\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"extension\"} 1",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
