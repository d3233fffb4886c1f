//! One pass over a Subscription: its InstallPlan, the health of its catalogs, deprecations.

use jiff::Timestamp;
use serde_json::Value;

use super::catalogs::Health;
use super::deprecations::DeprecatedEntry;
use super::{catalogs, deprecations, plan_state, stamp};
use crate::cluster::Cluster;

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubscriptionDecision {
    /// The Subscription after the pass.
    pub subscription: Value,
    /// Whether its status must be written.
    pub is_changed: bool,
    /// Error that makes the pass be retried.
    pub error: Option<String>,
}

/// One pass over a Subscription as it is on the wire.
///
/// `cluster` holds InstallPlans and CatalogSources, `global` is the namespace of global catalogs, `health` the verdict
/// about a CatalogSource, and `entries` the entries of the catalogs for the Subscription's package.
pub fn pass(
    subscription: &Value,
    cluster: &Cluster,
    global: &str,
    health: &dyn Fn(&Value) -> Health,
    entries: &[DeprecatedEntry],
    now: Timestamp,
) -> SubscriptionDecision {
    let time = format!("{now:.0}");
    let mut decision = SubscriptionDecision {
        subscription: subscription.clone(),
        ..SubscriptionDecision::default()
    };
    if plan_state::settle(&mut decision.subscription, cluster, &time) {
        stamp(&mut decision.subscription, &time);
        decision.is_changed = true;
    }
    match catalogs::settle(&mut decision.subscription, cluster, global, health, &time) {
        Ok(is_changed) => {
            if deprecations::settle(&mut decision.subscription, entries, &time) || is_changed {
                stamp(&mut decision.subscription, &time);
                decision.is_changed = true;
            }
        }
        Err(error) => decision.error = Some(error),
    }
    decision
}
