//! One pass over the Subscriptions of a namespace, in two halves: before a resolution, and after it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::plan::{old_reference, planned, point};
use super::{INSTALL_PLAN_KIND, Resolution, collection, condition, joined, reference, set, stamp, unset};
use crate::cluster::{Cluster, object_at, put, text};
use crate::names;

const TIMEOUT: &str = "operatorframework.io/bundle-unpack-timeout";
const RETRY: &str = "operatorframework.io/bundle-unpack-min-retry-interval";
const RESOLUTION_FAILED: &str = "ResolutionFailed";
const UNPACKING: &str = "BundleUnpacking";
const UNPACK_FAILED: &str = "BundleUnpackFailed";
/// The condition of Subscriptions whose preferred version is passed over. The Go implementation does not have it.
const BLOCKED: &str = "UpgradeBlocked";
/// The field of a lookup's condition with the hint for an administrator. It is not part of the status.
const HINT: &str = "/hint";
/// Hint for an administrator about a bundle that a Job cannot unpack.
const GUIDANCE: &str = "Auto-retry in ~5 min after job cleanup (TTL). Common causes: Missing ICSP (ppc64le/s390x/arm64), auth \
                        failure, invalid image. Manual retry: in the CatalogSource namespace, run `kubectl get jobs -l \
                        operatorframework.io/bundle-unpack-ref` and delete the specific failing job.";
/// The same, while its image is tried.
const PULL_GUIDANCE: &str = "Bundle image pull failed. Common causes: Missing ICSP (ppc64le/s390x/arm64), auth failure, invalid \
                             image. Job will retry until timeout (~10 min), then auto-cleanup and retry in ~5 min. Manual \
                             retry: in the CatalogSource namespace, run `kubectl get jobs -l \
                             operatorframework.io/bundle-unpack-ref` and delete the specific failing job.";

/// Actions before a resolution, and the Subscriptions to resolve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prepared {
    /// The Subscriptions whose status must be written.
    pub written: Vec<Value>,
    /// The names of InstallPlans to delete.
    pub deleted: Vec<String>,
    /// The Subscriptions to resolve; nothing where there is nothing to do.
    pub subscriptions: Option<Vec<Value>>,
    /// Error that makes the pass be retried.
    pub error: Option<String>,
}

/// Error of a resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// The constraints contradict each other.
    NotSatisfiable(Vec<String>),
    /// It could not be tried.
    Other(String),
}

/// State of the unpacking of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub enum Unpacked {
    /// The conditions of the lookup; none when it is done. Their field `hint` is the hint for an administrator.
    Conditions(Vec<Value>),
    /// It could not be tried.
    Error(String),
    /// It cannot succeed.
    Fatal(String),
}

impl Unpacked {
    /// Whether the bundle cannot be unpacked, rather than not yet.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Conditions(conditions) => conditions
                .iter()
                .any(|found| is_holding(found, "BundleLookupFailed")),
            Self::Error(_) | Self::Fatal(_) => true,
        }
    }
}

/// Whether a condition of a lookup has this type and holds.
fn is_holding(condition: &Value, kind: &str) -> bool {
    text(condition, "/type") == kind && text(condition, "/status") == "True"
}

/// A warning event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The name of the Subscription that it is about; nothing where it is about the namespace.
    pub subscription: Option<String>,
    /// One word in camel case.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Result of the pass after a resolution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceDecision {
    /// InstallPlans to create and Subscriptions whose status must be written, whole.
    pub written: Vec<Value>,
    /// Warning events.
    pub events: Vec<Warning>,
    /// Error that makes the pass be retried.
    pub error: Option<String>,
}

/// The first half: deletes old plans, and settles the status of the Subscriptions about their plans and versions.
pub fn prepare(namespace: &str, cluster: &Cluster, now: Timestamp) -> Prepared {
    let time = format!("{now:.0}");
    let mut prepared = Prepared {
        deleted: collection::collected(cluster, namespace),
        ..Prepared::default()
    };
    let subscriptions: Vec<&Value> = cluster
        .in_namespace(names::SUBSCRIPTION_KIND, namespace)
        .collect();
    if subscriptions.is_empty() {
        return prepared;
    }
    let groups: Vec<&Value> = cluster
        .in_namespace(names::OPERATOR_GROUP_KIND, namespace)
        .collect();
    let [group] = groups[..] else {
        prepared.error = Some(format!("found {} operatorGroups, expected 1", groups.len()));
        return prepared;
    };
    if let Err(error) = unpack_times(group) {
        prepared.error = Some(error);
        return prepared;
    }
    let fails_forward = text(group, "/spec/upgradeStrategy") == "TechPreviewUnsafeFailForward";
    let mut is_changed = false;
    let mut settled = Vec::new();
    for subscription in subscriptions {
        let mut subscription = subscription.clone();
        is_changed |= adopt_plan(&mut subscription, cluster, fails_forward);
        if settle_version(&mut subscription, cluster, fails_forward) {
            stamp(&mut subscription, &time);
            prepared.written.push(subscription.clone());
            is_changed = true;
        }
        settled.push(subscription);
    }
    let waits = |subscription: &Value| {
        subscription.pointer("/status/installPlanRef").is_some()
            && text(subscription, "/status/state") == "UpgradePending"
    };
    if !is_changed && !settled.iter().all(waits) {
        prepared.subscriptions = Some(settled);
    }
    prepared
}

/// The times that the annotations of an OperatorGroup set for unpacking.
fn unpack_times(group: &Value) -> Result<(), String> {
    for (key, what) in [(TIMEOUT, "timeout"), (RETRY, "retry")] {
        let annotation = group
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(key))
            .and_then(Value::as_str);
        if let Some(value) = annotation
            && let Err(error) = olm_text::duration::parse(value)
        {
            return Err(format!(
                "failed to parse unpack {what} annotation({key}: {value}): {error}"
            ));
        }
    }
    Ok(())
}

/// Points a Subscription that a plan has made to that plan; whether it had no reference. A plan that is gone counts as
/// none.
fn adopt_plan(subscription: &mut Value, cluster: &Cluster, fails_forward: bool) -> bool {
    let has_plan = ["installPlanRef", "installplan"].iter().any(|key| {
        subscription
            .pointer(&format!("/status/{key}"))
            .is_some_and(Value::is_object)
    });
    let maker = subscription
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(names::GENERATED_BY_ANNOTATION))
        .and_then(Value::as_str);
    let Some(maker) = maker.filter(|_| !has_plan).map(str::to_owned) else {
        return false;
    };
    let place = text(subscription, "/metadata/namespace").to_owned();
    let Some(plan) = cluster.get(INSTALL_PLAN_KIND, &place, &maker) else {
        return false;
    };
    let state = if fails_forward && text(plan, "/status/phase") == "Failed" {
        "UpgradeFailed"
    } else {
        "UpgradePending"
    };
    let version = text(subscription, "/spec/startingCSV").to_owned();
    if let Some(status) = object_at(subscription, &["status"]) {
        status.insert("installPlanRef".to_owned(), reference(INSTALL_PLAN_KIND, plan));
        status.insert("installplan".to_owned(), old_reference(plan));
        status.insert("state".to_owned(), state.into());
        status.insert("currentCSV".to_owned(), version.into());
    }
    true
}

/// Sets the state by whether the current version is there; whether it is another.
fn settle_version(subscription: &mut Value, cluster: &Cluster, fails_forward: bool) -> bool {
    let current = text(subscription, "/status/currentCSV").to_owned();
    if current.is_empty() {
        return false;
    }
    let place = text(subscription, "/metadata/namespace").to_owned();
    let is_there = cluster.get(names::CSV_KIND, &place, &current).is_some();
    let plan = text(subscription, "/status/installPlanRef/name");
    let plan = cluster.get(INSTALL_PLAN_KIND, &place, plan);
    let has_failed = plan.is_some_and(|plan| text(plan, "/status/phase") == "Failed");
    let state = match (is_there, fails_forward && has_failed) {
        (true, _) => "AtLatestKnown",
        (false, true) => "UpgradeFailed",
        (false, false) => "UpgradePending",
    };
    if text(subscription, "/status/state") == state {
        return false;
    }
    if let Some(status) = object_at(subscription, &["status"]) {
        status.insert("state".to_owned(), state.into());
        if is_there {
            status.insert("installedCSV".to_owned(), current.into());
        }
    }
    true
}

/// The second half: carries out the resolution of the prepared Subscriptions. `unpacked` has one element for each
/// bundle lookup.
pub fn conclude(
    namespace: &str,
    subscriptions: &[Value],
    cluster: &Cluster,
    resolved: Result<&Resolution, &ResolveError>,
    unpacked: &[Unpacked],
    now: Timestamp,
) -> NamespaceDecision {
    let mut pass = NamespacePass {
        subscriptions,
        resolved: subscriptions.iter().collect(),
        now: format!("{now:.0}"),
        decision: NamespaceDecision::default(),
    };
    match resolved {
        Err(error) => {
            let (reason, message) = explained(error);
            pass.resolution_failed(reason, &message);
            if let ResolveError::Other(error) = error {
                pass.decision.error = Some(error.clone());
            }
        }
        Ok(resolution) => {
            pass.refuse(&resolution.refused);
            pass.leave_out(&resolution.left_out);
            if pass.is_unpacked(unpacked) {
                pass.plan(namespace, resolution, cluster);
            }
        }
    }
    pass.decision
}

/// Reason and message of the condition about a resolution that failed.
fn explained(error: &ResolveError) -> (&'static str, String) {
    match error {
        ResolveError::NotSatisfiable(clauses) => {
            let mut message = "constraints not satisfiable".to_owned();
            if !clauses.is_empty() {
                message = format!("{message}: {}", clauses.join(", "));
            }
            ("ConstraintsNotSatisfiable", message)
        }
        ResolveError::Other(error) => ("ErrorPreventedResolution", error.clone()),
    }
}

struct NamespacePass<'a> {
    subscriptions: &'a [Value],
    /// Those that are not refused.
    resolved: Vec<&'a Value>,
    now: String,
    decision: NamespaceDecision,
}

impl NamespacePass<'_> {
    /// Sets and removes conditions on the resolved Subscriptions, and writes those that differ.
    fn mark(&mut self, wanted: &Value, removed: &[&str]) {
        for subscription in &self.resolved {
            let mut subscription = (*subscription).clone();
            let is_cleared = unset(&mut subscription, removed);
            if set(&mut subscription, wanted.clone(), &self.now) || is_cleared {
                stamp(&mut subscription, &self.now);
                self.decision.written.push(subscription);
            }
        }
    }

    fn resolution_failed(&mut self, reason: &str, message: &str) {
        self.decision.events.push(Warning {
            subscription: None,
            reason: RESOLUTION_FAILED,
            message: message.to_owned(),
        });
        self.mark(&condition(RESOLUTION_FAILED, reason, message), &[]);
    }

    /// Says in Subscriptions why they are refused. They have no part in the rest of the pass.
    fn refuse(&mut self, refused: &BTreeMap<String, ResolveError>) {
        for subscription in self.subscriptions {
            let name = text(subscription, "/metadata/name");
            let Some(error) = refused.get(name) else {
                continue;
            };
            let (reason, message) = explained(error);
            self.decision.events.push(Warning {
                subscription: None,
                reason: RESOLUTION_FAILED,
                message: format!("Subscription {name} is left out: {message}"),
            });
            let mut subscription = subscription.clone();
            let wanted = condition(RESOLUTION_FAILED, reason, &message);
            if set(&mut subscription, wanted, &self.now) {
                stamp(&mut subscription, &self.now);
                self.decision.written.push(subscription);
            }
        }
        self.resolved
            .retain(|subscription| !refused.contains_key(text(subscription, "/metadata/name")));
    }

    /// Says in Subscriptions why the bundle that they need cannot be unpacked. They have no part in the rest of the pass.
    fn leave_out(&mut self, left_out: &BTreeMap<String, Unpacked>) {
        for subscription in std::mem::take(&mut self.resolved) {
            let Some(bundle) = left_out.get(text(subscription, "/metadata/name")) else {
                self.resolved.push(subscription);
                continue;
            };
            let others = std::mem::replace(&mut self.resolved, vec![subscription]);
            self.is_unpacked(std::slice::from_ref(bundle));
            if let Unpacked::Error(error) = bundle {
                let wanted = condition(UNPACK_FAILED, "ErrorPreventedUnpacking", error);
                self.mark(&wanted, &[UNPACKING]);
            }
            self.resolved = others;
        }
    }

    /// Whether all bundles are unpacked; else the Subscriptions say why not.
    fn is_unpacked(&mut self, unpacked: &[Unpacked]) -> bool {
        let errors = unpacked.iter().filter_map(|one| match one {
            Unpacked::Error(error) => Some(error.clone()),
            Unpacked::Conditions(_) | Unpacked::Fatal(_) => None,
        });
        if let Some(joined) = joined(errors.collect()) {
            self.decision.error = Some(format!("bundle unpacking failed with an error: {joined}"));
            return false;
        }
        let fatal = unpacked.iter().find_map(|one| match one {
            Unpacked::Fatal(error) => Some(error),
            Unpacked::Conditions(_) | Unpacked::Error(_) => None,
        });
        if let Some(error) = fatal {
            let wanted = condition(UNPACK_FAILED, "ErrorPreventedUnpacking", error);
            self.mark(&wanted, &[UNPACKING]);
            return false;
        }
        let holding = |kind: &'static str| {
            let conditions = unpacked.iter().filter_map(|one| match one {
                Unpacked::Conditions(conditions) => Some(conditions),
                Unpacked::Error(_) | Unpacked::Fatal(_) => None,
            });
            conditions.flatten().filter(move |found| is_holding(found, kind))
        };
        if let Some(failed) = holding("BundleLookupFailed").next() {
            self.unpack_failed(failed);
            return false;
        }
        let pending: Vec<&Value> = holding("BundleLookupPending").collect();
        let is_unpacked = pending.is_empty();
        if !is_unpacked {
            // A condition that the Go implementation wrote has neither hint nor reason for a failed pull. These words of the
            // kubelet in its message are the only data.
            let is_pull = |pending: &Value| {
                let message = text(pending, "/message");
                text(pending, "/reason") == "JobIncomplete"
                    && (message.contains("ImagePullBackOff") || message.contains("ErrImagePull"))
            };
            let mut hints = pending.iter().map(|pending| text(pending, HINT));
            let hint = match hints.find(|hint| !hint.is_empty()) {
                Some(hint) => hint,
                None if pending.iter().any(|pending| is_pull(pending)) => PULL_GUIDANCE,
                None => "",
            };
            self.mark(&condition(UNPACKING, "UnpackingInProgress", hint), &[]);
        }
        is_unpacked
    }

    fn unpack_failed(&mut self, failed: &Value) {
        let short = format!(
            "Bundle unpacking failed - {}: {}",
            text(failed, "/reason"),
            text(failed, "/message")
        );
        let hint = match text(failed, HINT) {
            "" => GUIDANCE,
            hint => hint,
        };
        let long = format!("{short}. {hint}");
        for subscription in &self.resolved {
            self.decision.events.push(Warning {
                subscription: Some(text(subscription, "/metadata/name").to_owned()),
                reason: UNPACK_FAILED,
                message: long.clone(),
            });
        }
        let own = text(failed, "/message");
        let is_guided = own.contains("Auto-retry") || own.contains("Common causes");
        let message = if is_guided { short } else { long };
        self.mark(&condition(UNPACK_FAILED, UNPACK_FAILED, &message), &[UNPACKING]);
    }

    /// Makes the plan where a Subscription moves, and removes conditions that no longer hold. The refused Subscriptions own
    /// the plan, too.
    fn plan(&mut self, namespace: &str, resolution: &Resolution, cluster: &Cluster) {
        let planned = planned(resolution, self.subscriptions, cluster, namespace)
            .filter(|_| !resolution.updated.is_empty());
        if let Some(planned) = &planned {
            self.decision.written.push(planned.plan.clone());
        }
        for subscription in &self.resolved {
            let mut subscription = (*subscription).clone();
            let name = text(&subscription, "/metadata/name").to_owned();
            let is_explained = match resolution.blocked.get(&name) {
                Some(why) => set(
                    &mut subscription,
                    condition(BLOCKED, "DependencyUnsatisfied", why),
                    &self.now,
                ),
                None => unset(&mut subscription, &[BLOCKED]),
            };
            let version = resolution.updated.get(&name);
            let is_changed = match (version, &planned) {
                (Some(version), planned) => {
                    unset(&mut subscription, &[RESOLUTION_FAILED, UNPACKING, UNPACK_FAILED]);
                    put(&mut subscription, &["status"], "currentCSV", version.as_str());
                    if let Some(planned) = planned {
                        point(&mut subscription, planned);
                    }
                    true
                }
                (None, _) => unset(&mut subscription, &[RESOLUTION_FAILED, UNPACKING, UNPACK_FAILED]),
            };
            if is_changed || is_explained {
                stamp(&mut subscription, &self.now);
                self.decision.written.push(subscription);
            }
        }
    }
}

#[cfg(test)]
mod tests;
