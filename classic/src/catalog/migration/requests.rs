//! What annotations request, and the facts about it that the program follows. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use olm_api::names::{self as api, migration};
use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::names;
use olm_migrate::facts::ClassicObjects;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The requests of annotations. Subscriptions are named `NAMESPACE/NAME`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Subscriptions that move, and those whose move has begun.
    pub(super) there: Vec<String>,
    /// ClusterExtensions that return, by name. One that was not made from a Subscription has nothing to return to.
    pub(super) back: BTreeSet<String>,
}

/// Whether an annotation of an object requests a move.
fn is_about_move(object: &Value) -> bool {
    let has = |key: &str| !annotation(object, key).is_empty();
    match text(object, "/kind") {
        names::SUBSCRIPTION_KIND => has(migration::MIGRATE),
        api::CLUSTER_EXTENSION => has(migration::MIGRATE) || has(migration::MIGRATE_BACK),
        _ => false,
    }
}

/// Whether a change makes or withdraws a request, or acknowledges a finding.
pub(super) fn is_request(before: Option<&Value>, now: Option<&Value>) -> bool {
    let is_about = [before, now].into_iter().flatten().any(is_about_move);
    let annotations = |object: Option<&Value>| object?.pointer("/metadata/annotations").cloned();
    let told = |object: Option<&Value>| {
        let mut found = annotations(object);
        if let Some(found) = found.as_mut().and_then(Value::as_object_mut) {
            found.retain(|key, _| key != migration::MIGRATE_BACK_STATUS);
        }
        found
    };
    is_about && told(before) != told(now)
}

impl Requests {
    /// The requests on a cluster. An operator that returns does not move.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let is_set = |object: &Value, key: &str| annotation(object, key) == "true";
        let extensions = || cluster.of_kind(api::CLUSTER_EXTENSION);
        let origin = |extension: &Value| annotation(extension, migration::SUBSCRIPTION).to_owned();
        let returning = || {
            extensions().filter(|extension| {
                is_set(extension, migration::MIGRATE_BACK) && !origin(extension).is_empty()
            })
        };
        let begun = extensions()
            .filter(|extension| is_set(extension, migration::MIGRATE))
            .map(origin);
        let asked = cluster
            .of_kind(names::SUBSCRIPTION_KIND)
            .filter(|subscription| is_set(subscription, migration::MIGRATE))
            .map(|subscription| {
                let part = |pointer: &str| text(subscription, pointer);
                format!("{}/{}", part("/metadata/namespace"), part("/metadata/name"))
            });
        let held: BTreeSet<String> = returning().map(origin).collect();
        let there: BTreeSet<String> = asked.chain(begun).filter(|key| !key.is_empty()).collect();
        Self {
            there: there.into_iter().filter(|key| !held.contains(key)).collect(),
            back: returning()
                .map(|extension| text(extension, "/metadata/name").to_owned())
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.there.is_empty() && self.back.is_empty()
    }
}

/// The facts that the program follows. OperatorConditions and certificates are not among them.
pub(super) fn facts(cluster: &Cluster, now: Timestamp) -> ClassicObjects {
    let all = |kind: &str| cluster.of_kind(kind).cloned().collect();
    ClassicObjects {
        subscriptions: all(names::SUBSCRIPTION_KIND),
        versions: all(names::CSV_KIND),
        groups: all(names::OPERATOR_GROUP_KIND),
        plans: all(names::INSTALL_PLAN_KIND),
        sources: all(names::CATALOG_SOURCE_KIND),
        conditions: Vec::new(),
        catalogs: typed(cluster, api::CLUSTER_CATALOG),
        extensions: typed(cluster, api::CLUSTER_EXTENSION),
        certificates: Vec::new(),
        now,
    }
}

fn typed<K: DeserializeOwned>(cluster: &Cluster, kind: &str) -> Vec<K> {
    let objects = cluster.of_kind(kind).cloned();
    objects
        .filter_map(|object| serde_json::from_value(object).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, annotations: &Value) -> Value {
        json!({"kind": kind, "metadata": {"namespace": "n", "name": name, "annotations": annotations}})
    }

    #[test]
    fn what_is_said_about_a_request_is_none() {
        let asked = object("Subscription", "a", &json!({migration::MIGRATE: "true"}));
        let mut answered = asked.clone();
        answered["status"] = json!({"conditions": [{"type": "Migrated"}]});
        assert!(!is_request(Some(&asked), Some(&answered)));
        assert!(is_request(None, Some(&asked)));
        let withdrawn = object("Subscription", "a", &json!({}));
        assert!(is_request(Some(&asked), Some(&withdrawn)));
        assert!(!is_request(None, Some(&withdrawn)));
        let back = |more: &Value| object("ClusterExtension", "a", more);
        let plain = back(&json!({migration::MIGRATE_BACK: "true"}));
        let blocked = back(&json!({migration::MIGRATE_BACK: "true", migration::MIGRATE_BACK_STATUS: "no"}));
        assert!(!is_request(Some(&plain), Some(&blocked)));
    }

    #[test]
    fn annotations_request_a_move_and_a_return_stops_it() {
        let origin =
            |name: &str, key: &str| json!({key: "true", migration::SUBSCRIPTION: format!("n/{name}")});
        let cluster: Cluster = [
            object("Subscription", "a", &json!({migration::MIGRATE: "true"})),
            object("Subscription", "b", &json!({migration::MIGRATE: "false"})),
            object("Subscription", "c", &json!({migration::MIGRATE: "true"})),
            object("ClusterExtension", "c", &origin("c", migration::MIGRATE_BACK)),
            object("ClusterExtension", "d", &origin("d", migration::MIGRATE)),
            object("ClusterExtension", "e", &json!({migration::MIGRATE_BACK: "true"})),
        ]
        .into_iter()
        .collect();
        let requests = Requests::of(&cluster);
        assert_eq!(requests.there, ["n/a", "n/d"]);
        assert_eq!(requests.back, BTreeSet::from(["c".to_owned()]));
        assert!(Requests::of(&Cluster::default()).is_empty());
    }
}
