//! What a Subscription says about its move to a ClusterExtension.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{find_condition, set, stamp, unset};
use crate::cluster::{annotation, text};
use crate::names;

/// The type of the condition about the move.
pub const MIGRATED: &str = "Migrated";

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
}

impl MigrationState {
    /// The reason of the condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Blocked => "Blocked",
            Self::Moving => "Moving",
            Self::Failed => "Failed",
            Self::Moved => "Moved",
        }
    }
}

/// Whether the annotation [`names::MIGRATE_ANNOTATION`] requests the move of a Subscription.
pub fn is_moving(subscription: &Value) -> bool {
    annotation(subscription, names::MIGRATE_ANNOTATION) == "true"
}

/// Whether nothing is resolved for a Subscription: its move is requested, and it has installed nothing. A tool that
/// applies it again after the move does not install the operator once more.
pub fn is_held(subscription: &Value) -> bool {
    is_moving(subscription) && text(subscription, "/status/installedCSV").is_empty()
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

/// The Subscription without the condition about a move that nobody requests any more; `None` if it has none.
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
            "metadata": {"annotations": {names::MIGRATE_ANNOTATION: value}},
            "status": {"installedCSV": installed},
        })
    }

    #[test]
    fn a_subscription_that_moves_and_has_installed_nothing_is_held() {
        assert!(is_held(&subscription("true", "")));
        assert!(!is_held(&subscription("true", "a.v1")));
        assert!(!is_held(&subscription("", "")));
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
