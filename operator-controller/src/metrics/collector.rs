//! The metrics of all extensions, computed at each scrape: series appear and vanish with their extension.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use kube::runtime::reflector::Store;
use olm_api::cluster_extension::controlling_extension;
use olm_api::conditions::{self, reason};
use olm_api::pending_change::APPLIED;
use olm_api::{ClusterExtension, ClusterObjectSet, PendingChange};
use olm_platform::metrics::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::sample::{ExtensionState, Sample};
use crate::extension::revisions::Revisions;
use crate::object_set::store::Sets;

/// The reasons why a PendingChange waits.
const WAITING: [&str; 4] = [
    reason::AWAITING_APPROVAL,
    reason::REJECTED,
    reason::AWAITING_WINDOW,
    reason::FROZEN,
];

/// Registers the extensions and PendingChanges of stores.
pub(crate) fn register(
    metrics: &Metrics,
    extensions: Store<ClusterExtension>,
    sets: Arc<Sets>,
    changes: Store<PendingChange>,
) {
    let read = move || ExtensionSamples {
        samples: samples(&extensions.state(), &sets.state()),
        waiting: waiting(&changes.state()),
    };
    let collector = Extensions { read: Box::new(read) };
    metrics.register(|registry| registry.register_collector(Box::new(collector)));
}

/// The samples of all extensions, by name.
fn samples(extensions: &[Arc<ClusterExtension>], sets: &[Arc<ClusterObjectSet>]) -> Vec<Sample> {
    let mut revisions: HashMap<&str, Vec<Arc<ClusterObjectSet>>> = HashMap::new();
    for set in sets {
        if let Some(uid) = controlling_extension(&set.metadata) {
            revisions.entry(uid).or_default().push(Arc::clone(set));
        }
    }
    let mut samples: Vec<Sample> = extensions
        .iter()
        .map(|extension| {
            let uid = extension.metadata.uid.as_deref().unwrap_or_default();
            let revisions = Revisions::new(revisions.remove(uid).unwrap_or_default());
            Sample::of(extension, &revisions)
        })
        .collect();
    samples.sort_by(|a, b| a.extension.cmp(&b.extension));
    samples
}

/// The number of waiting PendingChanges by reason. Those that need an approval have a series even at zero.
fn waiting(changes: &[Arc<PendingChange>]) -> BTreeMap<&'static str, i64> {
    let mut waiting = BTreeMap::from([(reason::AWAITING_APPROVAL, 0)]);
    for change in changes {
        let applied = conditions::find(change.conditions(), APPLIED);
        let reason = applied.and_then(|applied| WAITING.into_iter().find(|known| *known == applied.reason));
        if let Some(reason) = reason {
            *waiting.entry(reason).or_default() += 1;
        }
    }
    waiting
}

/// The samples of one scrape.
#[derive(Clone)]
struct ExtensionSamples {
    samples: Vec<Sample>,
    waiting: BTreeMap<&'static str, i64>,
}

struct Extensions {
    read: Box<dyn Fn() -> ExtensionSamples + Send + Sync>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

/// One gauge with all its series.
fn gauge<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = ([(&'static str, &'a str); N], i64)>,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(descriptor.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The number of extensions by state and reason. The healthy state has a series even at zero.
fn states(samples: &[Sample]) -> BTreeMap<(&'static str, &'static str), i64> {
    let mut states = BTreeMap::from([((ExtensionState::Ready.as_str(), reason::HEALTHY), 0)]);
    for sample in samples {
        *states.entry((sample.state.as_str(), sample.reason)).or_default() += 1;
    }
    states
}

impl Collector for Extensions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = (self.read)();
        gauge(
            &mut encoder,
            "operator_controller_pending_changes",
            "Waiting changes by reason",
            seen.waiting
                .iter()
                .map(|(reason, count)| ([("reason", *reason)], *count)),
        )?;
        encode(&mut encoder, &seen.samples)
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, samples: &[Sample]) -> fmt::Result {
    gauge(
        encoder,
        "operator_controller_extensions",
        "Extensions by state and reason",
        states(samples)
            .into_iter()
            .map(|((state, reason), count)| ([("state", state), ("reason", reason)], count)),
    )?;
    let some = |value: fn(&Sample) -> Option<i64>| {
        samples
            .iter()
            .filter_map(move |sample| Some(([("extension", sample.extension.as_str())], value(sample)?)))
    };
    gauge(
        encoder,
        "operator_controller_extension_ready",
        "Whether the extension matches its spec and works",
        some(|sample| Some(i64::from(sample.state == ExtensionState::Ready))),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_state",
        "State of the extension and its reason, in the labels; always 1",
        samples.iter().map(|sample| {
            let labels = [
                ("extension", sample.extension.as_str()),
                ("state", sample.state.as_str()),
                ("reason", sample.reason),
            ];
            (labels, 1)
        }),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_info",
        "Installed bundle, in the labels; always 1",
        samples.iter().map(|sample| {
            let labels = [
                ("extension", sample.extension.as_str()),
                ("package", sample.package.as_str()),
                ("version", sample.version.as_str()),
                ("channel", sample.channel.as_str()),
                ("catalog", sample.catalog.as_str()),
            ];
            (labels, 1)
        }),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_installed",
        "Whether a bundle is installed",
        some(|sample| Some(i64::from(sample.is_installed))),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_available",
        "Whether the objects of the installed bundle pass their probes",
        some(|sample| sample.is_available.map(i64::from)),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_deprecated",
        "Whether the catalog deprecates the package, the channel or the installed bundle",
        some(|sample| sample.is_deprecated.map(i64::from)),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_rollout_started_timestamp_seconds",
        "Creation time of the revision that is rolling out",
        some(|sample| sample.rollout_started),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_deletion_requested_timestamp_seconds",
        "Time of the deletion request",
        some(|sample| sample.deletion_requested),
    )?;
    updates(encoder, samples)
}

fn updates(encoder: &mut DescriptorEncoder<'_>, samples: &[Sample]) -> fmt::Result {
    let newer = || {
        samples
            .iter()
            .filter_map(|sample| Some((sample, sample.update.as_ref()?)))
    };
    gauge(
        encoder,
        "operator_controller_extension_update_available",
        "Newer bundle than the installed one, in the labels; always 1",
        newer().map(|(sample, update)| {
            let labels = [
                ("extension", sample.extension.as_str()),
                ("version", update.version.as_str()),
                ("catalog", update.catalog.as_str()),
            ];
            (labels, 1)
        }),
    )?;
    gauge(
        encoder,
        "operator_controller_extension_update_held_back",
        "Newer bundle that is held back and the reason, in the labels; always 1",
        newer().filter_map(|(sample, update)| {
            let labels = [
                ("extension", sample.extension.as_str()),
                ("version", update.version.as_str()),
                ("reason", update.held_back_by?),
            ];
            Some((labels, 1))
        }),
    )
}

#[cfg(test)]
mod tests {
    use olm_api::readiness::Verdict;

    use super::super::sample::Update;
    use super::super::sample::tests::extension;
    use super::*;

    fn text(samples: Vec<Sample>) -> String {
        let metrics = Metrics::default();
        let waiting = waiting(&[]);
        let read = move || ExtensionSamples {
            samples: samples.clone(),
            waiting: waiting.clone(),
        };
        let collector = Extensions { read: Box::new(read) };
        metrics.register(|registry| registry.register_collector(Box::new(collector)));
        metrics
            .text(olm_platform::metrics::TextFormat::OpenMetrics)
            .unwrap()
    }

    fn lines(text: &str) -> Vec<&str> {
        let ours = |line: &&str| line.starts_with("operator_controller_");
        text.lines().filter(ours).collect()
    }

    #[test]
    fn without_extensions_their_number_is_zero() {
        assert_eq!(
            lines(&text(Vec::new())),
            [
                "operator_controller_pending_changes{reason=\"AwaitingApproval\"} 0",
                "operator_controller_extensions{state=\"Ready\",reason=\"Healthy\"} 0"
            ]
        );
    }

    #[test]
    fn every_extension_has_one_series_of_each_metric() {
        let well = Arc::new(extension("b", Verdict::Ready, reason::HEALTHY));
        let blocked = Arc::new(extension("a", Verdict::Stalled, reason::BLOCKED));
        let mut samples = samples(&[well, blocked], &[]);
        if let Some(sample) = samples.last_mut() {
            sample.version = "1.0\"0".to_owned();
            sample.is_available = Some(true);
            sample.deletion_requested = Some(7);
            sample.update = Some(Update {
                version: "2.0.0".to_owned(),
                catalog: "hub".to_owned(),
                held_back_by: Some("Range"),
            });
        }
        assert_eq!(
            lines(&text(samples)),
            [
                "operator_controller_pending_changes{reason=\"AwaitingApproval\"} 0",
                "operator_controller_extensions{state=\"Ready\",reason=\"Healthy\"} 1",
                "operator_controller_extensions{state=\"Stalled\",reason=\"Blocked\"} 1",
                "operator_controller_extension_ready{extension=\"a\"} 0",
                "operator_controller_extension_ready{extension=\"b\"} 1",
                "operator_controller_extension_state{extension=\"a\",state=\"Stalled\",reason=\"Blocked\"} 1",
                "operator_controller_extension_state{extension=\"b\",state=\"Ready\",reason=\"Healthy\"} 1",
                "operator_controller_extension_info{extension=\"a\",package=\"asked-for\",version=\"\",\
                 channel=\"stable,fast\",catalog=\"\"} 1",
                "operator_controller_extension_info{extension=\"b\",package=\"asked-for\",version=\"1.0\\\"0\",\
                 channel=\"stable,fast\",catalog=\"\"} 1",
                "operator_controller_extension_installed{extension=\"a\"} 0",
                "operator_controller_extension_installed{extension=\"b\"} 0",
                "operator_controller_extension_available{extension=\"b\"} 1",
                "operator_controller_extension_deletion_requested_timestamp_seconds{extension=\"b\"} 7",
                "operator_controller_extension_update_available{extension=\"b\",version=\"2.0.0\",catalog=\"hub\"} 1",
                "operator_controller_extension_update_held_back{extension=\"b\",version=\"2.0.0\",reason=\"Range\"} 1",
            ]
        );
    }
}
