//! Metrics of CatalogSources.

use olm_platform::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::registry::Key;

/// The source that a metric is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    namespace: String,
    name: String,
}

impl From<&Key> for Labels {
    fn from((namespace, name): &Key) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }
}

/// The metrics of CatalogSources.
#[derive(Debug, Clone, Default)]
pub(in crate::registry) struct SourceMetrics {
    count: Gauge,
    ready: Family<Labels, Gauge>,
    snapshots: Family<Labels, Counter>,
}

impl SourceMetrics {
    pub(in crate::registry) fn register(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.register(|registry| {
            registry.register("catalog_source_count", "CatalogSources", own.count.clone());
            registry.register(
                "catalogsource_ready",
                "1 while the registry of a CatalogSource answers, else 0",
                own.ready.clone(),
            );
            registry.register(
                "catalog_source_snapshots",
                "Times the content of a CatalogSource was read for resolutions",
                own.snapshots.clone(),
            );
        });
        own
    }

    pub(in crate::registry) fn count(&self, sources: usize) {
        self.count.set(i64::try_from(sources).unwrap_or(i64::MAX));
    }

    pub(in crate::registry) fn ready(&self, key: &Key, is_ready: bool) {
        self.ready.get_or_create(&key.into()).set(is_ready.into());
    }

    pub(in crate::registry) fn snapshot(&self, key: &Key) {
        self.snapshots.get_or_create(&key.into()).inc();
    }

    pub(in crate::registry) fn forget(&self, key: &Key) {
        self.ready.remove(&key.into());
        self.snapshots.remove(&key.into());
    }
}
