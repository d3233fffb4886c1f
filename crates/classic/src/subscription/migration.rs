//! What a Subscription says about its move to a ClusterExtension.

use jiff::Timestamp;
use olm_api::object::qualified_name;
use serde_json::{Value, json};

use super::{find_condition, set, stamp, unset};
use crate::cluster::{Cluster, annotation, object_at, text};
use crate::names;

/// The type of the condition about the move.
pub const MIGRATED: &str = "Migrated";

/// The most characters of a value that are shown.
const MAX_VALUE: usize = 64;

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// A finding blocks it.
    Blocked,
    /// It is under way.
    Moving,
    /// A step has failed, and is tried again.
    Failed,
    /// A ClusterExtension has the operator.
    Moved,
    /// The annotation has a value that neither requests the move nor declines it.
    Invalid,
}

impl MigrationState {
    /// The reason of the condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Blocked => "Blocked",
            Self::Moving => "Moving",
            Self::Failed => "Failed",
            Self::Moved => "Moved",
            Self::Invalid => "Invalid",
        }
    }
}

/// Whether the annotation [`names::MIGRATE_ANNOTATION`] requests the move of a Subscription.
pub fn is_moving(subscription: &Value) -> bool {
    annotation(subscription, names::MIGRATE_ANNOTATION) == "true"
}

/// The fault of a value that neither requests a move, by an annotation such as [`names::MIGRATE_ANNOTATION`], nor
/// declines it; `None` for the others.
pub fn invalid_request(object: &Value, key: &str) -> Option<String> {
    let value = annotation(object, key);
    if matches!(value, "" | "true" | "false") {
        return None;
    }
    let shown: String = value.chars().take(MAX_VALUE).collect();
    Some(format!(
        "annotation {key} has the value {shown:?}, which requests nothing: set it to \"true\", or to \"false\" for no \
         request"
    ))
}

/// Whether nothing is resolved for a Subscription: its move is requested, it has installed nothing, and a
/// ClusterExtension has the operator. A tool that applies it again after the move does not install the operator once
/// more. `is_listed`: whether `cluster` has the ClusterExtensions; without them, there may be one.
pub fn is_held(subscription: &Value, cluster: &Cluster, is_listed: bool) -> bool {
    let has_operator = || {
        let key = qualified_name(subscription);
        let mut extensions = cluster.of_kind(names::CLUSTER_EXTENSION_KIND);
        extensions.any(|extension| annotation(extension, names::ORIGIN_ANNOTATION) == key)
    };
    is_moving(subscription)
        && text(subscription, "/status/installedCSV").is_empty()
        && (!is_listed || has_operator())
}

/// Gives a version of a Subscription the condition about the move that another one has.
pub fn keep_migration(subscription: &mut Value, other: &Value) {
    let kept = find_condition(other, MIGRATED);
    if find_condition(subscription, MIGRATED) == kept {
        return;
    }
    unset(subscription, &[MIGRATED]);
    let Some(kept) = kept else { return };
    let status = object_at(subscription, &["status"]);
    let conditions = status.map(|status| status.entry("conditions").or_insert_with(|| json!([])));
    if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
        conditions.push(kept.clone());
    }
}

/// The Subscription with this condition; `None` if it has it already.
pub fn migration(
    subscription: &Value,
    state: MigrationState,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let time = format!("{now:.0}");
    let mut written = subscription.clone();
    let status = match state {
        MigrationState::Moved => "True",
        _ => "False",
    };
    let wanted = json!({"type": MIGRATED, "status": status, "reason": state.reason(), "message": message});
    let is_changed = set(&mut written, wanted, &time);
    is_changed.then(|| {
        stamp(&mut written, &time);
        written
    })
}

/// The Subscription without the condition about a move whose request was withdrawn; `None` if it has none.
pub fn without_migration(subscription: &Value, now: Timestamp) -> Option<Value> {
    if is_moving(subscription) || find_condition(subscription, MIGRATED).is_none() {
        return None;
    }
    let mut written = subscription.clone();
    unset(&mut written, &[MIGRATED]);
    stamp(&mut written, &format!("{now:.0}"));
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn subscription(value: &str, installed: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "databases", "name": "postgres", "annotations": {names::MIGRATE_ANNOTATION: value},
            },
            "status": {"installedCSV": installed},
        })
    }

    #[test]
    fn a_subscription_that_was_applied_again_is_held_while_its_extension_exists() {
        let extension = |origin: &str| -> Cluster {
            let annotations = json!({names::ORIGIN_ANNOTATION: origin});
            let extension = json!({
                "kind": "ClusterExtension", "metadata": {"name": "postgres", "annotations": annotations},
            });
            [extension].into_iter().collect()
        };
        let moved = extension("databases/postgres");
        assert!(is_held(&subscription("true", ""), &moved, true));
        assert!(!is_held(&subscription("true", "a.v1"), &moved, true));
        assert!(!is_held(&subscription("", ""), &moved, true));
        // The first installation has to end before the move.
        assert!(!is_held(
            &subscription("true", ""),
            &extension("other/postgres"),
            true
        ));
        assert!(!is_held(&subscription("true", ""), &Cluster::default(), true));
        assert!(is_held(&subscription("true", ""), &Cluster::default(), false));
        assert!(!is_held(
            &subscription("true", "a.v1"),
            &Cluster::default(),
            false
        ));
    }

    #[test]
    fn an_older_status_keeps_the_newest_condition_about_the_move() {
        let of = |conditions: &Value| json!({"status": {"state": "AtLatestKnown", "conditions": conditions}});
        let moved = |reason: &str| json!({"type": MIGRATED, "reason": reason});
        let other = json!({"type": "CatalogSourcesUnhealthy"});
        for (stale, live, expected) in [
            (
                json!([other]),
                json!([moved("Moving")]),
                json!([other, moved("Moving")]),
            ),
            (
                json!([moved("Blocked"), other]),
                json!([moved("Moving")]),
                json!([other, moved("Moving")]),
            ),
            (json!([moved("Blocked"), other]), json!([]), json!([other])),
            (
                json!([moved("Blocked"), other]),
                json!([moved("Blocked")]),
                json!([moved("Blocked"), other]),
            ),
            (Value::Null, json!([moved("Moving")]), json!([moved("Moving")])),
        ] {
            let mut written = of(&stale);
            if stale.is_null() {
                written = json!({});
            }
            keep_migration(&mut written, &of(&live));
            assert_eq!(written["status"]["conditions"], expected);
        }
    }

    #[test]
    fn a_value_that_is_no_answer_is_shown() {
        for value in ["", "true", "false"] {
            assert_eq!(
                invalid_request(&subscription(value, ""), names::MIGRATE_ANNOTATION),
                None
            );
        }
        for (value, shown) in [
            ("yes", r#""yes""#),
            ("True", r#""True""#),
            (" true", r#"" true""#),
            ("\u{202e}", r#""\u{202e}""#),
        ] {
            let message = invalid_request(&subscription(value, ""), names::MIGRATE_ANNOTATION).unwrap();
            let start = format!(
                "annotation olm.operatorframework.io/migrate has the value {shown}, which requests nothing"
            );
            assert!(message.starts_with(&start), "{message}");
            assert!(!is_moving(&subscription(value, "")));
        }
        let long = "x".repeat(100_000);
        let message = invalid_request(&subscription(&long, ""), names::MIGRATE_ANNOTATION).unwrap();
        assert!(message.len() < 300, "{}", message.len());
    }

    #[test]
    fn the_condition_is_written_once_and_taken_back_with_the_annotation() {
        let asked = subscription("true", "a.v1");
        let said = migration(&asked, MigrationState::Blocked, "no catalog", now()).unwrap();
        let condition = &said["status"]["conditions"][0];
        assert_eq!(
            [&condition["type"], &condition["status"], &condition["reason"]],
            ["Migrated", "False", "Blocked"]
        );
        assert_eq!(
            migration(&said, MigrationState::Blocked, "no catalog", now()),
            None
        );
        assert!(migration(&said, MigrationState::Moved, "no catalog", now()).is_some());
        assert_eq!(without_migration(&said, now()), None);
        let mut withdrawn = said;
        withdrawn["metadata"]["annotations"] = json!({});
        let silent = without_migration(&withdrawn, now()).unwrap();
        assert_eq!(silent["status"]["conditions"], json!([]));
        assert_eq!(without_migration(&silent, now()), None);
    }
}
