//! Counters and histograms that are updated when something happens.

use std::time::Duration;

use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_platform::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExtensionLabel {
    extension: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Whether a resolution found a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolutionOutcome {
    /// A bundle was found.
    Succeeded,
    /// No bundle was found.
    Failed,
}

/// Counters and histograms; clones share them.
#[derive(Debug, Clone)]
pub struct Counters {
    resolutions: Family<OutcomeLabel, Histogram, fn() -> Histogram>,
    rollouts: Histogram,
    upgrades: Family<ExtensionLabel, Counter>,
    repairs: Family<ExtensionLabel, Counter>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            resolutions: Family::new_with_constructor(resolution_buckets),
            rollouts: Histogram::new(ROLLOUT_SECONDS),
            upgrades: Family::default(),
            repairs: Family::default(),
        }
    }
}

/// The buckets, from the smallest image to a workload that takes an hour.
const ROLLOUT_SECONDS: [f64; 12] = [
    1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

fn resolution_buckets() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

impl Counters {
    /// Registers the counters and histograms.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            registry.register(
                "operator_controller_resolution_duration_seconds",
                "Time to resolve a bundle, including requests to catalogs",
                self.resolutions.clone(),
            );
            registry.register(
                "operator_controller_rollout_duration_seconds",
                "Time from the creation of a revision until it was complete",
                self.rollouts.clone(),
            );
            registry.register(
                "operator_controller_extension_upgrades",
                "Replacements of the installed bundle by another one",
                self.upgrades.clone(),
            );
            registry.register(
                "operator_controller_extension_drift_repairs",
                "Repaired objects of complete revisions",
                self.repairs.clone(),
            );
        });
    }

    /// Initializes the counters of an extension to zero, so that the first event is an increase.
    pub fn begin(&self, extension: &str) {
        let label = label(extension);
        drop(self.upgrades.get_or_create(&label));
        drop(self.repairs.get_or_create(&label));
    }

    /// Forgets an extension that is gone.
    pub fn forget(&self, extension: &str) {
        let label = label(extension);
        self.upgrades.remove(&label);
        self.repairs.remove(&label);
    }

    /// Counts a resolution.
    pub fn resolved(&self, outcome: ResolutionOutcome, took: Duration) {
        let outcome = match outcome {
            ResolutionOutcome::Succeeded => "succeeded",
            ResolutionOutcome::Failed => "failed",
        };
        self.resolutions
            .get_or_create(&OutcomeLabel { outcome })
            .observe(took.as_secs_f64());
    }

    /// Records a completed rollout.
    pub fn rolled_out(&self, seconds: f64) {
        self.rollouts.observe(seconds);
    }

    /// Counts repaired objects of a complete revision. Ignores an extension that is gone.
    pub fn repaired(&self, extension: &str, objects: u64) {
        if let Some(counter) = self.repairs.get(&label(extension)) {
            counter.inc_by(objects);
        }
    }

    /// Counts the change of an extension's status.
    pub fn changed(
        &self,
        extension: &str,
        before: Option<&ClusterExtensionStatus>,
        now: &ClusterExtensionStatus,
    ) {
        if is_upgrade(before, now) {
            self.upgrades.get_or_create(&label(extension)).inc();
        }
    }
}

/// Whether another bundle replaced the installed one.
fn is_upgrade(before: Option<&ClusterExtensionStatus>, now: &ClusterExtensionStatus) -> bool {
    let before = before.and_then(|status| status.install.as_ref());
    matches!((before, &now.install), (Some(before), Some(now)) if before != now)
}

fn label(extension: &str) -> ExtensionLabel {
    ExtensionLabel {
        extension: extension.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{BundleMetadata, InstallStatus};

    use super::*;

    fn status(version: Option<&str>) -> ClusterExtensionStatus {
        let install = version.map(|version| InstallStatus {
            bundle: BundleMetadata {
                name: format!("pkg.v{version}"),
                version: version.to_owned(),
                release: None,
            },
        });
        ClusterExtensionStatus {
            install,
            ..ClusterExtensionStatus::default()
        }
    }

    #[test]
    fn only_a_bundle_in_the_place_of_another_is_an_upgrade() {
        let check = |before: Option<Option<&str>>, now: Option<&str>, expected: bool| {
            let before = before.map(status);
            assert_eq!(is_upgrade(before.as_ref(), &status(now)), expected);
        };
        check(None, Some("1.0.0"), false);
        check(Some(None), Some("1.0.0"), false);
        check(Some(Some("1.0.0")), Some("1.0.0"), false);
        check(Some(Some("1.0.0")), Some("1.0.1"), true);
        check(Some(Some("1.0.0")), None, false);
    }

    #[test]
    fn counters_begin_at_zero_and_go_with_their_extension() {
        let (metrics, counters) = (Metrics::default(), Counters::default());
        counters.register(&metrics);
        counters.begin("a");
        let upgrades = "operator_controller_extension_upgrades_total{extension=\"a\"}";
        let repairs = "operator_controller_extension_drift_repairs_total{extension=\"a\"}";
        let shows = |lines: &[String]| {
            let text = metrics
                .text(olm_platform::metrics::TextFormat::OpenMetrics)
                .unwrap();
            for line in lines {
                assert!(text.contains(line.as_str()), "{line} is not in {text}");
            }
        };
        shows(&[format!("{upgrades} 0"), format!("{repairs} 0")]);
        counters.changed("a", Some(&status(Some("1.0.0"))), &status(Some("1.0.1")));
        counters.repaired("a", 2);
        counters.repaired("gone", 1);
        counters.resolved(ResolutionOutcome::Failed, Duration::from_millis(2));
        counters.rolled_out(7.0);
        shows(&[
            format!("{upgrades} 1"),
            format!("{repairs} 2"),
            "operator_controller_resolution_duration_seconds_bucket{le=\"0.0025\",outcome=\"failed\"} 1"
                .to_owned(),
            "operator_controller_rollout_duration_seconds_bucket{le=\"10.0\"} 1".to_owned(),
        ]);
        assert!(
            !metrics
                .text(olm_platform::metrics::TextFormat::OpenMetrics)
                .unwrap()
                .contains("gone")
        );
        counters.forget("a");
        assert!(
            !metrics
                .text(olm_platform::metrics::TextFormat::OpenMetrics)
                .unwrap()
                .contains("extension=\"a\"")
        );
    }
}
