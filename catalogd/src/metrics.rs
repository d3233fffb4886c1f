//! What catalogd counts.

use std::time::Duration;

use olm_platform::metrics::Metrics;
use olm_serve::{Access, Record};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    endpoint: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Catalog {
    catalog: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CatalogFailure {
    catalog: String,
    reason: &'static str,
}

type Histograms = Family<Code, Histogram, fn() -> Histogram>;

/// The counters of catalogd; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct CatalogMetrics {
    /// Under the name, label and buckets of the reference implementation.
    duration: Histograms,
    requests: Family<Request, Counter>,
    sent: Family<Request, Counter>,
    unpack_seconds: Family<Catalog, Gauge<f64, std::sync::atomic::AtomicU64>>,
    bytes: Family<Catalog, Gauge>,
    blobs: Family<Catalog, Gauge>,
    findings: Family<Catalog, Gauge>,
    stored: Family<Catalog, Gauge>,
    failures: Family<CatalogFailure, Counter>,
}

impl CatalogMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        fn buckets() -> Histogram {
            Histogram::new([
                0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0,
                10.0,
            ])
        }
        let these = Self {
            duration: Family::new_with_constructor(buckets),
            requests: Family::default(),
            sent: Family::default(),
            unpack_seconds: Family::default(),
            bytes: Family::default(),
            blobs: Family::default(),
            findings: Family::default(),
            stored: Family::default(),
            failures: Family::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "catalogd_http_request_duration_seconds",
                "Time from a request's head to the end of its answer",
                these.duration.clone(),
            );
            registry.register(
                "catalogd_http_requests",
                "Requests answered",
                these.requests.clone(),
            );
            registry.register(
                "catalogd_http_response_bytes",
                "Bytes of bodies sent",
                these.sent.clone(),
            );
            registry.register(
                "catalogd_catalog_unpack_seconds",
                "Time that the latest content took from registry to served",
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
                "When the content that is served was stored",
                these.stored.clone(),
            );
            registry.register(
                "catalogd_catalog_failures",
                "Attempts that brought no content, by reason",
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
        let request = Request {
            endpoint: access.endpoint,
            code,
        };
        self.requests.get_or_create(&request).inc();
        self.sent.get_or_create(&request).inc_by(access.bytes);
    }

    pub(crate) fn serves(&self, record: &Record) {
        let catalog = Catalog {
            catalog: record.catalog.clone(),
        };
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.bytes.get_or_create(&catalog).set(number(record.bytes));
        self.blobs.get_or_create(&catalog).set(number(record.blobs));
        self.findings
            .get_or_create(&catalog)
            .set(number(record.findings.total));
        self.stored.get_or_create(&catalog).set(record.stored.as_second());
    }

    pub(crate) fn unpacked(&self, catalog: &str, took: Duration) {
        self.unpack_seconds
            .get_or_create(&Catalog {
                catalog: catalog.to_owned(),
            })
            .set(took.as_secs_f64());
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
        let catalog = Catalog {
            catalog: catalog.to_owned(),
        };
        self.unpack_seconds.remove(&catalog);
        for gauge in [&self.bytes, &self.blobs, &self.findings, &self.stored] {
            gauge.remove(&catalog);
        }
    }
}
