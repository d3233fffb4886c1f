//! What annotations request, and the facts about it that the program follows. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use olm_api::names::{self as api, migration};
use olm_api::object::qualified_name;
use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::names;
use olm_classic::subscription::invalid_request;
use olm_migrate::facts::ClassicObjects;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The requests of annotations. Subscriptions are named `NAMESPACE/NAME`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Subscriptions that move, and those whose move has begun.
    pub(super) forward: Vec<String>,
    /// ClusterExtensions that return, by name. One that was not made from a Subscription has nothing to return to.
    pub(super) back: BTreeSet<String>,
}

/// Whether an annotation of an object requests a move.
fn is_about_move(object: &Value) -> bool {
    let has = |key: &str| !annotation(object, key).is_empty();
    match text(object, "/kind") {
        names::SUBSCRIPTION_KIND => has(migration::MIGRATE),
        api::CLUSTER_EXTENSION => {
            has(migration::MIGRATE) || has(migration::MIGRATE_BACK) || has(migration::MIGRATE_BACK_STATUS)
        }
        _ => false,
    }
}

/// Whether a change makes or withdraws a request, or acknowledges a finding.
pub(super) fn is_request(before: Option<&Value>, now: Option<&Value>) -> bool {
    let is_about = [before, now].into_iter().flatten().any(is_about_move);
    let annotations = |object: Option<&Value>| object?.pointer("/metadata/annotations").cloned();
    let relevant = |object: Option<&Value>| {
        let mut found = annotations(object);
        if let Some(found) = found.as_mut().and_then(Value::as_object_mut) {
            found.retain(|key, _| key != migration::MIGRATE_BACK_STATUS);
        }
        found
    };
    is_about && relevant(before) != relevant(now)
}

impl Requests {
    /// The requests on a cluster. An operator that returns does not move, whoever has begun its return.
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
            .map(qualified_name);
        let begun_back = extensions().filter(|extension| is_returning(extension));
        let held: BTreeSet<String> = returning().chain(begun_back).map(origin).collect();
        let forward: BTreeSet<String> = asked.chain(begun).filter(|key| !key.is_empty()).collect();
        Self {
            forward: forward.into_iter().filter(|key| !held.contains(key)).collect(),
            back: returning()
                .map(|extension| text(extension, "/metadata/name").to_owned())
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.forward.is_empty() && self.back.is_empty()
    }

    /// The Subscriptions that do not move. One whose move has begun moves without its annotation, too.
    pub(super) fn at_rest<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Value> {
        let subscriptions = cluster.of_kind(names::SUBSCRIPTION_KIND);
        subscriptions.filter(|subscription| !self.forward.contains(&qualified_name(subscription)))
    }
}

/// Whether a return of a ClusterExtension has begun: it is paused so that its deletion leaves the objects.
pub(super) fn is_returning(extension: &Value) -> bool {
    annotation(extension, api::user::PAUSED) == "true"
        && annotation(extension, api::user::UNINSTALL) == "orphan"
}

/// The fault of an annotation that would request the move or the return of a ClusterExtension.
pub(super) fn invalid(extension: &Value) -> Option<String> {
    [migration::MIGRATE_BACK, migration::MIGRATE]
        .iter()
        .find_map(|key| invalid_request(extension, key))
}

/// The ClusterExtensions without a request to return about which something is or must be said. Those that were not made
/// from a Subscription are not ours to write.
pub(super) fn unrequested(cluster: &Cluster) -> impl Iterator<Item = &Value> {
    cluster.of_kind(api::CLUSTER_EXTENSION).filter(|extension| {
        let is_due = !annotation(extension, migration::MIGRATE_BACK_STATUS).is_empty()
            || is_returning(extension)
            || invalid(extension).is_some();
        is_due
            && !annotation(extension, migration::SUBSCRIPTION).is_empty()
            && annotation(extension, migration::MIGRATE_BACK) != "true"
    })
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
        assert_eq!(requests.forward, ["n/a", "n/d"]);
        assert_eq!(requests.back, BTreeSet::from(["c".to_owned()]));
        assert!(Requests::of(&Cluster::default()).is_empty());
    }

    #[test]
    fn a_move_that_has_begun_is_not_at_rest_without_its_annotation() {
        let begun = json!({migration::MIGRATE: "true", migration::SUBSCRIPTION: "n/a"});
        let cluster: Cluster = [
            object("Subscription", "a", &json!({})),
            object("Subscription", "b", &json!({})),
            object("Subscription", "c", &json!({migration::MIGRATE: "true"})),
            object("ClusterExtension", "a", &begun),
        ]
        .into_iter()
        .collect();
        let requests = Requests::of(&cluster);
        assert_eq!(requests.forward, ["n/a", "n/c"]);
        let at_rest: Vec<&str> = requests
            .at_rest(&cluster)
            .map(|subscription| text(subscription, "/metadata/name"))
            .collect();
        assert_eq!(at_rest, ["b"]);
    }

    #[test]
    fn a_return_that_a_command_has_begun_stops_the_move() {
        let requests = |uninstall: &str, paused: &str| {
            let annotations = json!({
                migration::MIGRATE: "true", migration::SUBSCRIPTION: "n/a",
                api::user::PAUSED: paused, api::user::UNINSTALL: uninstall,
            });
            let cluster: Cluster = [
                object("Subscription", "a", &json!({migration::MIGRATE: "true"})),
                object("ClusterExtension", "a", &annotations),
            ]
            .into_iter()
            .collect();
            Requests::of(&cluster).forward
        };
        assert_eq!(requests("", "true"), ["n/a"]);
        assert_eq!(requests("orphan", "false"), ["n/a"]);
        assert!(requests("orphan", "true").is_empty());
    }

    #[test]
    fn only_extensions_without_a_request_are_looked_after() {
        let with = |name: &str, annotations: &Value| {
            let mut found = object("ClusterExtension", name, annotations);
            found["metadata"]["annotations"][migration::SUBSCRIPTION] = json!(format!("n/{name}"));
            found
        };
        let status = migration::MIGRATE_BACK_STATUS;
        let paused = json!({api::user::PAUSED: "true", api::user::UNINSTALL: "orphan"});
        let cluster: Cluster = [
            with("a", &json!({status: "no", migration::MIGRATE_BACK: "true"})),
            with("b", &json!({status: "no", migration::MIGRATE_BACK: "false"})),
            with("c", &json!({status: "no"})),
            with("d", &json!({})),
            with("e", &json!({migration::MIGRATE_BACK: "yes"})),
            with("f", &json!({migration::MIGRATE: "yes"})),
            with("g", &paused),
            with("h", &json!({api::user::PAUSED: "true"})),
            object("ClusterExtension", "i", &json!({migration::MIGRATE_BACK: "yes"})),
        ]
        .into_iter()
        .collect();
        let found: Vec<&str> = unrequested(&cluster)
            .map(|extension| text(extension, "/metadata/name"))
            .collect();
        assert_eq!(found, ["b", "c", "e", "f", "g"]);
    }

    #[test]
    fn a_change_while_something_is_said_is_noticed() {
        let said = |more: &str| {
            let annotations = json!({migration::MIGRATE_BACK_STATUS: "stopped", api::user::PAUSED: more});
            object("ClusterExtension", "a", &annotations)
        };
        assert!(is_request(Some(&said("true")), Some(&said("false"))));
        assert!(!is_request(Some(&said("true")), Some(&said("true"))));
    }
}
