//! Metrics of ClusterServiceVersions, under the names that alerts and dashboards know.

use std::collections::BTreeMap;
use std::fmt;

use olm_classic::cluster::{Cluster, text};
use olm_classic::csv::complete_version;
use olm_classic::names;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;

use super::work::Name;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Identity {
    namespace: String,
    name: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AbnormalLabels {
    namespace: String,
    name: String,
    version: String,
    phase: String,
    reason: String,
}

/// The metrics of ClusterServiceVersions.
#[derive(Debug, Default)]
pub struct Metrics {
    count: Gauge,
    succeeded: Family<Identity, Gauge>,
    abnormal: Family<AbnormalLabels, Gauge>,
    upgrades: BareCounter,
    shown: Mutex<BTreeMap<Name, (Identity, Option<AbnormalLabels>)>>,
}

/// A counter whose name does not end in `_total`: alerts and dashboards know it without.
#[derive(Debug, Clone, Default)]
struct BareCounter(Gauge);

impl EncodeMetric for BareCounter {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl Metrics {
    /// Shows them from now on.
    pub fn register(metrics: &olm_platform::metrics::Metrics) -> Self {
        let own = Self::default();
        metrics.register(|registry| {
            registry.register(
                "csv_count",
                "Number of CSVs successfully registered",
                own.count.clone(),
            );
            registry.register("csv_succeeded", "Successful CSV install", own.succeeded.clone());
            registry.register("csv_abnormal", "CSV is not installed", own.abnormal.clone());
            registry.register(
                "csv_upgrade_count",
                "Monotonic count of CSV upgrades",
                own.upgrades.clone(),
            );
        });
        own
    }

    /// Counts all ClusterServiceVersions.
    pub fn count(&self, cluster: &Cluster) {
        let count = cluster.of_kind(names::CSV_KIND).count();
        self.count.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Shows one as it is now.
    pub fn show(&self, csv: &Value) {
        let identity = Identity {
            namespace: text(csv, "/metadata/namespace").to_owned(),
            name: text(csv, "/metadata/name").to_owned(),
            version: complete_version(text(csv, "/spec/version")),
        };
        let phase = text(csv, "/status/phase");
        let is_succeeded = phase == "Succeeded";
        let abnormal = (!is_succeeded).then(|| AbnormalLabels {
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
            version: identity.version.clone(),
            phase: phase.to_owned(),
            reason: text(csv, "/status/reason").to_owned(),
        });
        let now = (identity, abnormal);
        let mut shown = self.shown.lock();
        let before = shown.insert(Name::of(csv), now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        self.hide(before);
        self.succeeded.get_or_create(&now.0).set(i64::from(is_succeeded));
        if let Some(abnormal) = &now.1 {
            self.abnormal.get_or_create(abnormal).set(1);
        }
    }

    /// Shows one that is gone no longer.
    pub fn forget(&self, name: &Name) {
        let before = self.shown.lock().remove(name);
        self.hide(before);
    }

    /// Counts an upgrade that begins.
    pub fn wrote(&self, before: &Value, now: &Value) {
        let is_replacing = |csv: &Value| text(csv, "/status/phase") == "Replacing";
        if is_replacing(now) && !is_replacing(before) {
            self.upgrades.0.inc();
        }
    }

    fn hide(&self, before: Option<(Identity, Option<AbnormalLabels>)>) {
        if let Some((identity, abnormal)) = before {
            self.succeeded.remove(&identity);
            abnormal.map(|abnormal| self.abnormal.remove(&abnormal));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_series_of_an_earlier_phase_are_gone() {
        let metrics = olm_platform::metrics::Metrics::default();
        let own = Metrics::register(&metrics);
        let csv = |phase: &str| {
            json!({
                "metadata": {"namespace": "n", "name": "c.v1"}, "spec": {"version": "1.0.0"},
                "status": {"phase": phase, "reason": "R"},
            })
        };
        let succeeded = "csv_succeeded{namespace=\"n\",name=\"c.v1\",version=\"1.0.0\"}";
        let pending =
            "csv_abnormal{namespace=\"n\",name=\"c.v1\",version=\"1.0.0\",phase=\"Pending\",reason=\"R\"} 1";
        let has = |line: &str| {
            metrics
                .text(olm_platform::metrics::TextFormat::OpenMetrics)
                .unwrap()
                .contains(line)
        };
        own.show(&csv("Pending"));
        assert!(has(&format!("{succeeded} 0")) && has(pending));
        own.show(&csv("Succeeded"));
        assert!(has(&format!("{succeeded} 1")) && !has(pending));
        own.wrote(&csv("Succeeded"), &csv("Replacing"));
        own.wrote(&csv("Replacing"), &csv("Replacing"));
        assert!(has("# TYPE csv_upgrade_count counter") && has("\ncsv_upgrade_count 1"));
        own.forget(&Name::new("n", "c.v1"));
        assert!(!has("c.v1"));
    }
}
