//! Metrics of Subscriptions and InstallPlans, under the names of the Go implementation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_classic::cluster::text;
use olm_classic::names;
use olm_platform::metrics::{Metrics, Summary};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::Value;

use crate::objects::store::Store;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SubscriptionLabels {
    name: String,
    installed: String,
    channel: String,
    package: String,
    approval: String,
}

/// The metrics; clones share them.
#[derive(Clone)]
pub struct CatalogMetrics {
    synced: Family<SubscriptionLabels, Counter>,
    /// The labels under which each Subscription is counted, by namespace and name.
    labels: Arc<Mutex<BTreeMap<(String, String), SubscriptionLabels>>>,
    resolutions: Summary,
    warnings: Counter,
}

impl Default for CatalogMetrics {
    fn default() -> Self {
        Self {
            synced: Family::default(),
            labels: Arc::default(),
            resolutions: Summary::new(
                "olm_resolution_duration_seconds",
                "Time that the resolution of a namespace took",
                "outcome",
            ),
            warnings: Counter::default(),
        }
    }
}

impl CatalogMetrics {
    /// Shows the metrics, and how many objects the store has.
    pub fn register(&self, metrics: &Metrics, store: Arc<Store>) {
        metrics.summary(self.resolutions.clone());
        metrics.register(|registry| {
            registry.register(
                "subscription_sync",
                "Passes over Subscriptions",
                self.synced.clone(),
            );
            registry.register(
                "installplan_warnings",
                "Warnings of the API server about objects of InstallPlans",
                self.warnings.clone(),
            );
            registry.register_collector(Box::new(Objects(store)));
        });
    }

    /// Counts a pass over a Subscription. One whose labels change is counted anew.
    pub fn synced(&self, subscription: &Value) {
        let of = |pointer: &str| text(subscription, pointer).to_owned();
        let labels = SubscriptionLabels {
            name: of("/metadata/name"),
            installed: of("/status/installedCSV"),
            channel: of("/spec/channel"),
            package: of("/spec/name"),
            approval: of("/spec/installPlanApproval"),
        };
        let before = self.labels.lock().insert(key(subscription), labels.clone());
        if let Some(before) = before.filter(|before| *before != labels) {
            self.synced.remove(&before);
        }
        self.synced.get_or_create(&labels).inc();
    }

    /// Forgets a Subscription that is gone.
    pub fn forgotten(&self, subscription: &Value) {
        if let Some(labels) = self.labels.lock().remove(&key(subscription)) {
            self.synced.remove(&labels);
        }
    }

    /// Counts a resolution.
    pub fn resolved(&self, is_found: bool, took: Duration) {
        let outcome = if is_found { "succeeded" } else { "failed" };
        self.resolutions
            .observe(outcome, took.as_secs_f64(), Instant::now());
    }

    /// Counts warnings of the API server.
    pub fn warned(&self, warnings: usize) {
        self.warnings.inc_by(u64::try_from(warnings).unwrap_or(u64::MAX));
    }
}

fn key(subscription: &Value) -> (String, String) {
    let of = |pointer: &str| text(subscription, pointer).to_owned();
    (of("/metadata/namespace"), of("/metadata/name"))
}

/// Number of objects.
struct Objects(Arc<Store>);

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Collector for Objects {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cluster = self.0.snapshot();
        for (name, help, kind) in [
            ("subscription_count", "Subscriptions", names::SUBSCRIPTION_KIND),
            ("install_plan_count", "InstallPlans", names::INSTALL_PLAN_KIND),
        ] {
            let count = i64::try_from(cluster.of_kind(kind).count()).unwrap_or(i64::MAX);
            let gauge = ConstGauge::new(count);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
