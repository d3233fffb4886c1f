//! The metrics of the process and their text for Prometheus.

mod process;
mod summary;
mod text;
pub(crate) mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{self, DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub use summary::Summary;
pub use text::TextFormat;
use work::{Families, QueueMetrics, Running};

/// All metrics of the process; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    summaries: Arc<Mutex<Vec<Summary>>>,
    queues: Families,
    requests: Family<RequestLabels, Counter>,
    certificates: Certificates,
}

/// A request to the API server, as client-go counts it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// The answer's status; `<error>` when there was none.
    pub(crate) code: String,
    pub(crate) method: String,
    /// Host and port of the API server.
    pub(crate) host: String,
}

/// Readings of the serving certificate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    read: Counter,
    failed: Counter,
}

impl Certificates {
    pub(crate) fn read<T, E>(&self, outcome: &Result<T, E>) {
        self.read.inc();
        if outcome.is_err() {
            self.unusable();
        }
    }

    pub(crate) fn unusable(&self) {
        self.failed.inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Process));
        let queues = Families::register(&mut registry);
        let requests = Family::default();
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by status, method and host",
            requests.clone(),
        );
        let certificates = Certificates::default();
        registry.register(
            "certwatcher_read_certificate",
            "Reloads of the serving certificate",
            certificates.read.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Failed reloads of the serving certificate",
            certificates.failed.clone(),
        );
        Self {
            registry: Arc::new(Mutex::new(registry)),
            summaries: Arc::default(),
            queues,
            requests,
            certificates,
        }
    }
}

impl Metrics {
    /// Adds metrics of the program.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock())
    }

    /// Reports whether this process leads.
    pub fn leadership(&self, lease: &'static str, leading: watch::Receiver<bool>) {
        self.register(|registry| registry.register_collector(Box::new(Leadership { lease, leading })));
    }

    /// Reports the expiry of the serving certificate, in seconds since 1970.
    pub(crate) fn certificate(&self, expires: impl Fn() -> Option<i64> + Send + Sync + 'static) {
        let expiry = Expiry(Box::new(expires));
        self.register(|registry| registry.register_collector(Box::new(expiry)));
    }

    /// Shows counts that are kept elsewhere, by outcome.
    pub fn outcomes(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<(&'static str, u64)> + Send + Sync + 'static,
    ) {
        let outcomes = Outcomes {
            name,
            help,
            read: Box::new(read),
        };
        self.register(|registry| registry.register_collector(Box::new(outcomes)));
    }

    pub(crate) fn queue(
        &self,
        name: &'static str,
        look: impl Fn() -> Running + Send + Sync + 'static,
    ) -> QueueMetrics {
        self.queues.queue(name, look)
    }

    pub(crate) fn requests(&self) -> Family<RequestLabels, Counter> {
        self.requests.clone()
    }

    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Shows a summary.
    pub fn summary(&self, summary: Summary) {
        self.summaries.lock().push(summary);
    }

    /// The text that Prometheus scrapes.
    ///
    /// # Errors
    /// When a metric cannot be written, which no metric here does.
    pub fn text(&self, format: TextFormat) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encoding::text::encode_registry(&mut text, &self.registry.lock())?;
        for summary in self.summaries.lock().iter() {
            summary.write(&mut text, Instant::now())?;
        }
        encoding::text::encode_eof(&mut text)?;
        format.render(text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: &'static str,
}

/// Whether this process leads, with the metric name of client-go.
#[derive(Debug)]
struct Leadership {
    lease: &'static str,
    leading: watch::Receiver<bool>,
}

impl Collector for Leadership {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(i64::from(*self.leading.borrow()));
        let mut descriptor = encoder.encode_descriptor(
            "leader_election_master_status",
            "1 if this replica holds the Lease, else 0",
            None,
            gauge.metric_type(),
        )?;
        let lease = Lease { name: self.lease };
        gauge.encode(descriptor.encode_family(&lease)?)
    }
}

/// The expiry of the serving certificate.
struct Expiry(Box<dyn Fn() -> Option<i64> + Send + Sync>);

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiry").finish_non_exhaustive()
    }
}

impl Collector for Expiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(expires) = (self.0)() else {
            return Ok(());
        };
        let gauge = ConstGauge::new(expires);
        let descriptor = encoder.encode_descriptor(
            "serving_certificate_expiration_timestamp_seconds",
            "Expiry time of the serving certificate",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(descriptor)
    }
}

/// The labels of a count by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Counts by outcome.
struct Outcomes {
    name: &'static str,
    help: &'static str,
    read: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>,
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Collector for Outcomes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut descriptor = encoder.encode_descriptor(self.name, self.help, None, MetricType::Counter)?;
        for (outcome, count) in (self.read)() {
            ConstCounter::new(count).encode(descriptor.encode_family(&OutcomeLabels { outcome })?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_kept_elsewhere_are_shown_by_outcome() {
        let metrics = Metrics::default();
        metrics.outcomes("checks", "Checks", || vec![("good", 2), ("bad", 0)]);
        let text = metrics.text(TextFormat::OpenMetrics).unwrap();
        for line in [
            "# TYPE checks counter",
            "checks_total{outcome=\"good\"} 2",
            "checks_total{outcome=\"bad\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_text_holds_the_process_and_whether_it_leads() {
        let metrics = Metrics::default();
        let (lead, leading) = watch::channel(false);
        metrics.leadership("lock", leading);
        let check = |lines: &[&str]| {
            let text = metrics.text(TextFormat::OpenMetrics).unwrap();
            for line in lines {
                assert!(text.contains(line), "{line} is not in {text}");
            }
        };
        metrics.certificate(|| Some(7));
        check(&[
            "serving_certificate_expiration_timestamp_seconds 7",
            "leader_election_master_status{name=\"lock\"} 0",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_cpu_seconds_total ",
            "process_start_time_seconds ",
        ]);
        lead.send_replace(true);
        check(&["leader_election_master_status{name=\"lock\"} 1"]);
    }
}
