//! The metrics of catalogd.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use olm_platform::metrics::Metrics;
use olm_serve::{Access, Pull, Record};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::content::FAILURES;

/// Whether a catalog is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Endpoint {
    endpoint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    endpoint: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CatalogLabels {
    catalog: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CatalogFailure {
    catalog: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CatalogContent {
    catalog: String,
    digest: String,
    image: String,
}

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;
type Histograms = Family<Code, Histogram, fn() -> Histogram>;

/// The counters of catalogd; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct CatalogMetrics {
    /// The histogram with the name, label and buckets of the reference implementation.
    duration: Histograms,
    latency: Family<Endpoint, Histogram, fn() -> Histogram>,
    requests: Family<RequestLabels, Counter>,
    sent: Family<RequestLabels, Counter>,
    ready: Family<CatalogLabels, Gauge>,
    content: Family<CatalogContent, Gauge>,
    /// The labels of each catalog's reported content, for their removal.
    reported: Arc<Mutex<HashMap<String, CatalogContent>>>,
    pull_seconds: Family<CatalogLabels, Seconds>,
    unpack_seconds: Family<CatalogLabels, Seconds>,
    pulled: Family<CatalogLabels, Counter>,
    disk: Gauge,
    bytes: Family<CatalogLabels, Gauge>,
    blobs: Family<CatalogLabels, Gauge>,
    findings: Family<CatalogLabels, Gauge>,
    stored: Family<CatalogLabels, Gauge>,
    failures: Family<CatalogFailure, Counter>,
}

/// The buckets of the reference implementation.
fn buckets() -> Histogram {
    Histogram::new([
        0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 10.0,
    ])
}

/// Most answers are faster than the smallest of those.
fn fine_buckets() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
    ])
}

impl CatalogMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let these = Self {
            duration: Family::new_with_constructor(buckets),
            latency: Family::new_with_constructor(fine_buckets),
            requests: Family::default(),
            sent: Family::default(),
            ready: Family::default(),
            content: Family::default(),
            reported: Arc::default(),
            pull_seconds: Family::default(),
            unpack_seconds: Family::default(),
            pulled: Family::default(),
            disk: Gauge::default(),
            bytes: Family::default(),
            blobs: Family::default(),
            findings: Family::default(),
            stored: Family::default(),
            failures: Family::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "catalogd_http_request_duration_seconds",
                "Duration of HTTP requests",
                these.duration.clone(),
            );
            registry.register(
                "catalogd_http_endpoint_duration_seconds",
                "Duration of HTTP requests, by endpoint",
                these.latency.clone(),
            );
            registry.register(
                "catalogd_http_requests",
                "Requests answered",
                these.requests.clone(),
            );
            registry.register(
                "catalogd_http_response_bytes",
                "Bytes of response bodies",
                these.sent.clone(),
            );
            registry.register(
                "catalogd_catalog_ready",
                "Whether the catalog is served by this replica",
                these.ready.clone(),
            );
            registry.register(
                "catalogd_catalog_content",
                "Served content, in the labels; always 1",
                these.content.clone(),
            );
            registry.register(
                "catalogd_catalog_pull_seconds",
                "Download time of the latest image",
                these.pull_seconds.clone(),
            );
            registry.register(
                "catalogd_catalog_pulled_bytes",
                "Bytes of layers that were transferred for content",
                these.pulled.clone(),
            );
            registry.register(
                "catalogd_disk_used_bytes",
                "Bytes of the files in the cache directory",
                these.disk.clone(),
            );
            registry.register(
                "catalogd_catalog_unpack_seconds",
                "Time to unpack the latest content, from registry to serving",
                these.unpack_seconds.clone(),
            );
            registry.register(
                "catalogd_catalog_bytes",
                "Size of the content that is served",
                these.bytes.clone(),
            );
            registry.register(
                "catalogd_catalog_blobs",
                "Blobs in the content that is served",
                these.blobs.clone(),
            );
            registry.register(
                "catalogd_catalog_findings",
                "Findings of the whole-catalog check",
                these.findings.clone(),
            );
            registry.register(
                "catalogd_catalog_stored_timestamp_seconds",
                "Time at which the served content was stored",
                these.stored.clone(),
            );
            registry.register(
                "catalogd_catalog_failures",
                "Failed attempts to fetch content, by reason",
                these.failures.clone(),
            );
        });
        these
    }

    pub(crate) fn answered(&self, access: &Access) {
        let code = access.status.as_u16();
        self.duration
            .get_or_create(&Code { code })
            .observe(access.elapsed.as_secs_f64());
        let endpoint = Endpoint {
            endpoint: access.endpoint,
        };
        self.latency
            .get_or_create(&endpoint)
            .observe(access.elapsed.as_secs_f64());
        let request = RequestLabels {
            endpoint: access.endpoint,
            code,
        };
        self.requests.get_or_create(&request).inc();
        self.sent.get_or_create(&request).inc_by(access.bytes);
    }

    pub(crate) fn serves(&self, record: &Record) {
        let catalog = CatalogLabels {
            catalog: record.catalog.clone(),
        };
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.bytes.get_or_create(&catalog).set(number(record.bytes));
        self.blobs.get_or_create(&catalog).set(number(record.blobs));
        self.findings
            .get_or_create(&catalog)
            .set(number(record.findings.total));
        self.stored.get_or_create(&catalog).set(record.stored.as_second());
        let content = CatalogContent {
            catalog: record.catalog.clone(),
            digest: record.digest.clone(),
            image: record.origin.resolved.clone(),
        };
        let mut reported = self.reported.lock();
        if let Some(before) = reported.insert(record.catalog.clone(), content.clone()) {
            self.content.remove(&before);
        }
        self.content.get_or_create(&content).set(1);
    }

    /// Whether a wanted catalog is served.
    pub(crate) fn ready(&self, catalog: &str, ready: Ready) {
        let catalog = CatalogLabels {
            catalog: catalog.to_owned(),
        };
        self.ready
            .get_or_create(&catalog)
            .set(i64::from(ready == Ready::Yes));
    }

    pub(crate) fn unpacked(&self, catalog: &str, pull: &Pull, took: Duration) {
        let catalog = CatalogLabels {
            catalog: catalog.to_owned(),
        };
        self.pull_seconds
            .get_or_create(&catalog)
            .set(pull.took.as_secs_f64());
        self.pulled.get_or_create(&catalog).inc_by(pull.bytes);
        self.unpack_seconds
            .get_or_create(&catalog)
            .set(took.as_secs_f64());
    }

    pub(crate) fn uses_disk(&self, bytes: u64) {
        self.disk.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn failed(&self, catalog: &str, reason: &'static str) {
        self.failures
            .get_or_create(&CatalogFailure {
                catalog: catalog.to_owned(),
                reason,
            })
            .inc();
    }

    pub(crate) fn forget(&self, catalog: &str) {
        let catalog = CatalogLabels {
            catalog: catalog.to_owned(),
        };
        if let Some(content) = self.reported.lock().remove(&catalog.catalog) {
            self.content.remove(&content);
        }
        for reason in FAILURES {
            self.failures.remove(&CatalogFailure {
                catalog: catalog.catalog.clone(),
                reason,
            });
        }
        self.pulled.remove(&catalog);
        self.pull_seconds.remove(&catalog);
        self.unpack_seconds.remove(&catalog);
        for gauge in [
            &self.ready,
            &self.bytes,
            &self.blobs,
            &self.findings,
            &self.stored,
        ] {
            gauge.remove(&catalog);
        }
    }
}
