//! Deletion of old InstallPlans.

use serde_json::Value;

use super::INSTALL_PLAN_KIND;
use crate::cluster::{Cluster, text};

/// Number of InstallPlans that a namespace keeps.
const KEPT: usize = 5;

/// The names of the plans of a namespace beyond those that are kept: the lowest generations, of these the oldest, by
/// name.
pub(super) fn collected(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let mut plans: Vec<&Value> = cluster.in_namespace(INSTALL_PLAN_KIND, namespace).collect();
    plans.sort_by_key(|plan| {
        (
            generation(plan),
            text(plan, "/metadata/creationTimestamp"),
            text(plan, "/metadata/name"),
        )
    });
    let excess = plans.len().saturating_sub(KEPT);
    plans
        .into_iter()
        .take(excess)
        .map(|plan| text(plan, "/metadata/name").to_owned())
        .collect()
}

/// The generation of a plan; 0 where it has none.
pub(super) fn generation(plan: &Value) -> i64 {
    plan.pointer("/spec/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}
