//! Metrics of CatalogSources.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use olm_classic::resolve::EntryIndex;
use olm_platform::metrics::Metrics;
use parking_lot::Mutex;
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
    /// The listings that were counted last. A weak reference keeps another one from the same place in memory.
    counted: Arc<Mutex<BTreeMap<Key, Weak<EntryIndex>>>>,
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

    /// Counts the listing of a source, once.
    pub(in crate::registry) fn snapshot(&self, key: &Key, listing: &Arc<EntryIndex>) {
        let listing = Arc::downgrade(listing);
        let before = self.counted.lock().insert(key.clone(), Weak::clone(&listing));
        if before.is_none_or(|before| !before.ptr_eq(&listing)) {
            self.snapshots.get_or_create(&key.into()).inc();
        }
    }

    pub(in crate::registry) fn forget(&self, key: &Key) {
        self.ready.remove(&key.into());
        self.snapshots.remove(&key.into());
        self.counted.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_that_is_used_again_counts_once() {
        let (metrics, key) = (SourceMetrics::default(), ("n".to_owned(), "c".to_owned()));
        let listing = || Arc::new(EntryIndex::new(Vec::new(), &BTreeMap::new()));
        let count = || metrics.snapshots.get_or_create(&(&key).into()).get();
        let first = listing();
        metrics.snapshot(&key, &first);
        metrics.snapshot(&key, &first);
        assert_eq!(count(), 1);
        drop(first);
        metrics.snapshot(&key, &listing());
        assert_eq!(count(), 2);
    }
}
