//! Looking for a newer catalog behind the same reference, with a Pod of its own.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{CatalogSourceDecision, RegistryChanges, Source, serving};
use crate::cluster::{items, label, object_at, put, text};
use crate::names;

/// The time between two looks where none is given or it cannot be read.
const USUAL: SignedDuration = SignedDuration::from_mins(15);

/// Whether a source is looked after.
pub(super) fn is_polled(source: &Source<'_>) -> bool {
    let poll = source.object.pointer("/spec/updateStrategy/registryPoll");
    source.is_image() && poll.is_some_and(Value::is_object)
}

/// The time between two looks.
pub(super) fn interval(source: &Source<'_>) -> SignedDuration {
    let text = text(source.object, "/spec/updateStrategy/registryPoll/interval");
    let read = olm_text::duration::parse(text).ok().filter(|read| *read >= 0);
    read.map_or(USUAL, SignedDuration::from_nanos)
}

/// Time limit for a Pod that looks for a newer catalog to become ready.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// The shortest time between two passes: an interval of zero does not keep a source busy.
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);

/// Longest delay until the next pass looks for a newer catalog.
pub(super) fn next(
    source: &Source<'_>,
    decision: &CatalogSourceDecision,
    now: Timestamp,
) -> Option<SignedDuration> {
    if decision.is_pending {
        return Some(PATIENCE);
    }
    if !is_polled(source) {
        return None;
    }
    let last = text(&decision.status, "/latestImageRegistryPoll");
    let last = last.parse::<Timestamp>().ok().or_else(|| created(source));
    let left = last
        .map(|last| last.duration_until(now))
        .map_or(SHORTEST, |passed| interval(source).saturating_sub(passed));
    Some(left.clamp(SHORTEST, USUAL))
}

fn created(source: &Source<'_>) -> Option<Timestamp> {
    text(source.object, "/metadata/creationTimestamp").parse().ok()
}

/// The fault of the poll interval; nothing where the image is not polled.
pub(super) fn interval_fault(source: &Source<'_>) -> Option<String> {
    let poll = source.object.pointer("/spec/updateStrategy/registryPoll");
    poll.filter(|poll| poll.is_object())?;
    let text = text(source.object, "/spec/updateStrategy/registryPoll/interval");
    let Err(error) = olm_text::duration::parse(text) else {
        return None;
    };
    Some(format!(
        "error parsing spec.updateStrategy.registryPoll.interval. Using the default value of 15m0s instead. Error: {error}"
    ))
}

pub(super) fn is_due(source: &Source<'_>, now: Timestamp) -> bool {
    let last = text(source.object, "/status/latestImageRegistryPoll");
    let last = last.parse::<Timestamp>().ok().or_else(|| created(source));
    last.and_then(|last| last.checked_add(interval(source)).ok())
        .is_none_or(|due| due < now)
}

/// Continues the check for a newer catalog; whether the rest of the registry may be made.
pub(super) fn poll(
    source: &Source<'_>,
    wanted: &Value,
    now: Timestamp,
    ensured: &mut RegistryChanges,
) -> bool {
    if !is_polled(source) {
        return true;
    }
    let pods = source.cluster.in_namespace("Pod", source.namespace());
    let updates: Vec<&Value> = pods
        .filter(|pod| label(pod, names::UPDATE_LABEL) == source.name())
        .collect();
    let time = json!(format!("{now:.0}"));
    if updates.is_empty() {
        if !is_due(source, now) {
            return true;
        }
        let mut update = wanted.clone();
        if let Some(labels) = object_at(&mut update, &["metadata", "labels"]) {
            labels.insert(names::CATALOG_SOURCE_LABEL.to_owned(), "".into());
            labels.insert(names::UPDATE_LABEL.to_owned(), source.name().into());
        }
        ensured.written.push(update);
        put(&mut ensured.status, &[], "latestImageRegistryPoll", time);
        ensured.is_pending = true;
        return false;
    }
    for update in &updates {
        let name = text(update, "/metadata/name");
        if is_broken(update) {
            ensured.deleted.push(name.to_owned());
            ensured.error = Some(format!(
                "error ensuring update pod for catalog source {}: update pod {name} in a {} state: deleted update pod",
                source.name(),
                text(update, "/status/phase")
            ));
            return false;
        }
        if !is_ready(update) {
            ensured.is_pending = true;
            return false;
        }
    }
    for update in updates {
        if is_newer(source, update) {
            let mut promoted = update.clone();
            if let Some(labels) = object_at(&mut promoted, &["metadata", "labels"]) {
                labels.insert(names::CATALOG_SOURCE_LABEL.to_owned(), source.name().into());
                labels.insert(names::UPDATE_LABEL.to_owned(), "".into());
            }
            ensured.written.push(promoted);
            let old = serving(source).map(|pod| text(pod, "/metadata/name").to_owned());
            ensured.deleted.extend(old);
            return true;
        }
        ensured.deleted.push(text(update, "/metadata/name").to_owned());
    }
    true
}

fn is_broken(pod: &Value) -> bool {
    // One that waits for its image continues when it has it.
    let waits = |status: &Value| text(status, "/state/waiting/reason") == "CrashLoopBackOff";
    matches!(text(pod, "/status/phase"), "Failed" | "Unknown")
        || items(pod, "/status/containerStatuses").any(waits)
        || items(pod, "/status/initContainerStatuses").any(waits)
}

fn is_ready(pod: &Value) -> bool {
    items(pod, "/status/conditions")
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
}

/// Whether a Pod has another catalog than those that serve. Unknown images count as the same.
fn is_newer(source: &Source<'_>, update: &Value) -> bool {
    let own = image(update);
    let mut others = serving(source).map(image);
    let other = others.find(|other| other.is_empty() || *other != own);
    !own.is_empty() && other.is_some_and(|other| !other.is_empty())
}

/// The identifier of the catalog's image: that of the container that serves, or that of the second one that starts it
/// where its content is taken out. Empty where it is not known.
fn image(pod: &Value) -> &str {
    let statuses = |list: &str| items(pod, &format!("/status/{list}")).count();
    match (statuses("initContainerStatuses"), statuses("containerStatuses")) {
        (2, 1) => text(pod, "/status/initContainerStatuses/1/imageID"),
        (0, 1) => text(pod, "/status/containerStatuses/0/imageID"),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Cluster;

    fn pod(name: &str, labels: &Value, image: &str) -> Value {
        json!({
            "kind": "Pod", "metadata": {"name": name, "namespace": "n", "labels": labels},
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"imageID": image}],
            },
        })
    }

    fn look_at(image: &str) -> RegistryChanges {
        let serving = json!({"olm.catalogSource": "cat"});
        let looking = json!({"olm.catalogSource": "", "catalogsource.operators.coreos.com/update": "cat"});
        let cluster: Cluster = [pod("old", &serving, "id1"), pod("new", &looking, image)]
            .into_iter()
            .collect();
        let object = json!({
            "metadata": {"name": "cat", "namespace": "n"},
            "spec": {"sourceType": "grpc", "image": "i", "updateStrategy": {"registryPoll": {"interval": "30m"}}},
        });
        let source = Source {
            object: &object,
            cluster: &cluster,
        };
        let mut ensured = RegistryChanges::default();
        assert!(poll(&source, &json!({}), Timestamp::UNIX_EPOCH, &mut ensured));
        ensured
    }

    #[test]
    fn a_newer_catalog_takes_over_before_the_old_pod_goes() {
        let ensured = look_at("id2");
        assert_eq!(ensured.deleted, ["old"]);
        let labels = &ensured.written[0]["metadata"]["labels"];
        assert_eq!(labels["olm.catalogSource"], "cat");
        assert_eq!(labels["catalogsource.operators.coreos.com/update"], "");
    }

    #[test]
    fn a_pod_that_finds_the_same_catalog_goes() {
        let ensured = look_at("id1");
        assert_eq!(ensured.deleted, ["new"]);
        assert_eq!(ensured.written, Vec::<Value>::new());
    }

    #[test]
    fn the_next_look_is_due_when_what_is_left_of_the_interval_is_over() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let object = json!({
            "metadata": {"name": "cat", "namespace": "n"},
            "spec": {"sourceType": "grpc", "image": "i", "updateStrategy": {"registryPoll": {"interval": "30m"}}},
        });
        let cluster = Cluster::default();
        let source = Source {
            object: &object,
            cluster: &cluster,
        };
        let mut decision = CatalogSourceDecision {
            status: json!({"latestImageRegistryPoll": "2026-01-01T00:00:00Z"}),
            ..CatalogSourceDecision::default()
        };
        for (passed, expected) in [(1, 15 * 60), (20, 10 * 60), (40, 10)] {
            let next = next(&source, &decision, start + SignedDuration::from_mins(passed));
            assert_eq!(
                next,
                Some(SignedDuration::from_secs(expected)),
                "after {passed} min"
            );
        }
        decision.is_pending = true;
        assert_eq!(
            next(&source, &decision, start),
            Some(SignedDuration::from_secs(30))
        );
    }

    #[test]
    fn an_interval_that_cannot_be_read_is_said_and_replaced() {
        for (interval, expected) in [("30m", 30), ("soon", 15), ("", 15)] {
            let object = json!({"spec": {"updateStrategy": {"registryPoll": {"interval": interval}}}});
            let cluster = Cluster::default();
            let source = Source {
                object: &object,
                cluster: &cluster,
            };
            assert_eq!(super::interval(&source), SignedDuration::from_mins(expected));
            assert_eq!(interval_fault(&source).is_some(), expected == 15, "{interval:?}");
        }
    }
}
