//! Subscriptions: their status, and a pass over all of a namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{items, object_at, put, text};
use crate::names::{self, INSTALL_PLAN_KIND};

mod catalogs;
mod collection;
mod deprecations;
mod failed_plan;
mod installed;
mod migration;
mod namespace;
mod paused;
mod plan;
mod plan_state;
mod repair;
mod restart;
mod status;
mod verified;

pub use catalogs::Health;
pub use deprecations::DeprecatedEntry;
pub use failed_plan::{PlanRetries, reconsidered, retried, superseded};
pub use installed::with_installed;
pub use migration::{
    MIGRATED, MigrationState, invalid_request, is_held, is_moving, keep_migration, migration,
    without_migration,
};
pub use namespace::{NamespaceDecision, Prepared, ResolveError, Unpacked, Warning, conclude, prepare};
pub use paused::{is_namespace_paused, is_paused, is_version_paused};
pub use plan::{point_to_created, settle_plan};
pub use repair::{RepairedPlan, is_living, plan_of_failing, plans_of_failing, repaired, repairing};
pub use restart::restarted;
pub use status::{SubscriptionDecision, pass};
pub use verified::{InstalledImage, installed_image, with_verified};

/// Result of the resolver.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// The steps of the plan.
    pub steps: Vec<Value>,
    /// The bundles to unpack.
    pub bundle_lookups: Vec<Value>,
    /// The Subscriptions that move, by name, with the ClusterServiceVersion that each moves to.
    pub updated: BTreeMap<String, String>,
    /// Reasons why Subscriptions do not move to the version that they prefer, by name.
    pub blocked: BTreeMap<String, String>,
    /// Subscriptions that cannot be satisfied and do not stop the others, by name.
    pub refused: BTreeMap<String, ResolveError>,
    /// Subscriptions that need a bundle which cannot be unpacked and do not stop the others, by name.
    pub left_out: BTreeMap<String, Unpacked>,
    /// The images of the unpacked bundles by digest, by the references of their lookups.
    pub images: BTreeMap<String, String>,
}

/// A condition that holds; without a time, which is set when it changes.
fn condition(kind: &str, reason: &str, message: &str) -> Value {
    let mut condition = json!({"type": kind, "status": "True"});
    for (key, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            put(&mut condition, &[], key, json!(value));
        }
    }
    condition
}

/// Sets a condition; whether it differs from the present one but for its time.
fn set(object: &mut Value, mut wanted: Value, now: &str) -> bool {
    let kind = text(&wanted, "/type").to_owned();
    let Some(status) = object_at(object, &["status"]) else {
        return false;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return false;
    };
    let present = conditions.iter_mut().find(|found| text(found, "/type") == kind);
    if present.as_ref().is_some_and(|found| is_same(found, &wanted)) {
        return false;
    }
    put(&mut wanted, &[], "lastTransitionTime", json!(now));
    match present {
        Some(found) => *found = wanted,
        None => conditions.push(wanted),
    }
    true
}

/// Whether two conditions differ in their times only.
fn is_same(one: &Value, other: &Value) -> bool {
    ["/type", "/status", "/reason", "/message"]
        .iter()
        .all(|key| text(one, key) == text(other, key))
}

/// Removes conditions; whether there was one of them.
fn unset(object: &mut Value, kinds: &[&str]) -> bool {
    let conditions = object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    conditions.is_some_and(|conditions| {
        let before = conditions.len();
        conditions.retain(|found| !kinds.contains(&text(found, "/type")));
        conditions.len() < before
    })
}

/// A condition of a Subscription.
fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").find(|found| text(found, "/type") == kind)
}

/// Several errors as one; each appears once. `None` where there are none.
fn joined(mut errors: Vec<String>) -> Option<String> {
    let mut told = BTreeSet::new();
    errors.retain(|error| told.insert(error.clone()));
    match &errors[..] {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn stamp(object: &mut Value, now: &str) {
    if let Some(status) = object_at(object, &["status"]) {
        status.insert("lastUpdated".to_owned(), now.into());
    }
}

/// A reference to an object of this API group.
fn reference(kind: &str, object: &Value) -> Value {
    let mut reference = json!({"apiVersion": names::CSV_API_VERSION, "kind": kind});
    for (key, pointer) in [
        ("namespace", "/metadata/namespace"),
        ("name", "/metadata/name"),
        ("uid", "/metadata/uid"),
    ] {
        let value = text(object, pointer);
        if !value.is_empty() {
            put(&mut reference, &[], key, json!(value));
        }
    }
    reference
}
