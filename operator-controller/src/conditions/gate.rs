//! The upgrade gate of an OperatorCondition. Pure.

use olm_api::names::operator_condition::UPGRADEABLE;
use olm_api::object::text;
use serde_json::Value;

/// Whether an operator allows its upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpgradeGate {
    /// The operator allows the upgrade, or has no condition.
    Upgradeable,
    /// The operator blocks the upgrade.
    Held {
        /// The operator's reason.
        reason: String,
        /// The operator's message.
        message: String,
    },
}

/// The decision in a live OperatorCondition. An administrator's override comes first; conditions in `status` count for
/// types that `spec` does not have.
pub(crate) fn upgrade_gate(object: &Value) -> UpgradeGate {
    let decisive = ["/spec/overrides", "/spec/conditions", "/status/conditions"]
        .into_iter()
        .find_map(|list| condition(object.pointer(list)?));
    match decisive {
        Some(condition) if text(condition, "/status") == "False" => UpgradeGate::Held {
            reason: text(condition, "/reason").to_owned(),
            message: text(condition, "/message").to_owned(),
        },
        _ => UpgradeGate::Upgradeable,
    }
}

fn condition(list: &Value) -> Option<&Value> {
    let mut conditions = list.as_array()?.iter();
    conditions.find(|condition| text(condition, "/type") == UPGRADEABLE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: &Value, held_for: Option<&str>) {
        let reason = match upgrade_gate(object) {
            UpgradeGate::Upgradeable => None,
            UpgradeGate::Held { reason, .. } => Some(reason),
        };
        assert_eq!(reason.as_deref(), held_for, "{object}");
    }

    fn upgradeable(status: &str, reason: &str) -> Value {
        json!([{"type": "Other", "status": "False", "reason": "x"}, {"type": "Upgradeable", "status": status, "reason": reason}])
    }

    #[test]
    fn an_operator_that_is_not_upgradeable_holds_its_upgrade_back() {
        let object = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorCondition",
            "metadata": {"name": "my-operator", "namespace": "operators"},
            "spec": {"conditions": [{
                "type": "Upgradeable", "status": "False", "reason": "migration",
                "message": "The Operator is performing a migration.", "lastTransitionTime": "2020-08-24T23:15:55Z",
            }]},
        });
        assert_eq!(
            upgrade_gate(&object),
            UpgradeGate::Held {
                reason: "migration".to_owned(),
                message: "The Operator is performing a migration.".to_owned(),
            }
        );
        let mut over = object;
        over["spec"]["conditions"][0]["status"] = json!("True");
        assert_eq!(upgrade_gate(&over), UpgradeGate::Upgradeable);
    }

    #[test]
    fn a_missing_condition_holds_nothing_back() {
        check(&json!({}), None);
        check(&json!({"spec": {"conditions": []}}), None);
        check(
            &json!({"spec": {"conditions": [{"type": "Other", "status": "False"}]}}),
            None,
        );
        check(
            &json!({"spec": {"conditions": upgradeable("Unknown", "r")}}),
            None,
        );
        check(&json!({"spec": {"conditions": "nonsense"}}), None);
    }

    #[test]
    fn an_override_comes_first_and_the_status_last() {
        let (no, yes) = (upgradeable("False", "r"), upgradeable("True", "r"));
        check(&json!({"status": {"conditions": no}}), Some("r"));
        check(
            &json!({"spec": {"conditions": yes}, "status": {"conditions": no}}),
            None,
        );
        check(&json!({"spec": {"conditions": no, "overrides": yes}}), None);
        check(
            &json!({"spec": {"conditions": yes, "overrides": upgradeable("False", "by hand")}}),
            Some("by hand"),
        );
    }
}
