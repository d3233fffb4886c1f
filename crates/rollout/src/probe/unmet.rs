//! The reasons why an object is not ready, in the words of the reference implementation and in plain words.

use std::fmt;

use serde_json::Value;

use crate::canonical;

/// A reason why an object is not ready; mostly an assertion that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    /// The object is being deleted.
    Terminating,
    /// The object does not exist.
    Absent,
    /// The object's status is older than its spec.
    StatusOutdated,
    /// The object has no conditions.
    NoConditions {
        /// The type of the wanted condition.
        condition: String,
    },
    /// The conditions are no list.
    ConditionsMalformed {
        /// Whether they are null: before its controller has written any, they often are.
        is_null: bool,
    },
    /// The condition is absent.
    ConditionMissing {
        /// Its type.
        condition: String,
    },
    /// The condition is older than the object's spec.
    ConditionOutdated {
        /// Its type.
        condition: String,
    },
    /// The condition has another status.
    ConditionIs {
        /// Its type.
        condition: String,
        /// Its status.
        status: String,
        /// Its message, or its reason if it has none.
        message: String,
        /// The conditions of a definition that say why it is not established.
        definition: Vec<String>,
    },
    /// One of two fields that must be equal is absent.
    FieldMissing {
        /// Its path.
        field: String,
    },
    /// Two fields differ.
    FieldsDiffer {
        /// The path and the value of the first one.
        one: (String, Value),
        /// The path and the value of the second one.
        other: (String, Value),
    },
    /// The field is absent.
    KeyMissing {
        /// Its path.
        path: String,
    },
    /// A value on the path is not a map.
    KeyBlocked {
        /// The path.
        path: String,
        /// That value.
        at: Value,
    },
    /// The field has another value.
    ValueDiffers {
        /// Its path.
        path: String,
        /// The wanted value.
        wanted: String,
        /// The value.
        found: Value,
    },
}

/// The words of the reference implementation: clients read them in the condition `Available`.
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminating => f.write_str("is being deleted"),
            Self::Absent => f.write_str("does not exist"),
            Self::StatusOutdated => f.write_str(".status outdated"),
            Self::NoConditions { .. } => f.write_str("missing .status.conditions"),
            Self::ConditionsMalformed { .. } => f.write_str("malformed .status.conditions"),
            Self::ConditionMissing { condition } => write!(f, "missing .status.condition[\"{condition}\"]"),
            Self::ConditionOutdated { condition } => write!(f, ".status.condition[\"{condition}\"] outdated"),
            Self::ConditionIs {
                condition, status, ..
            } => {
                write!(f, ".status.condition[\"{condition}\"] is {status}")
            }
            Self::FieldMissing { field } => write!(f, "\"{field}\" missing"),
            Self::FieldsDiffer {
                one: (a, one),
                other: (b, other),
            } => write!(
                f,
                "\"{a}\" != \"{b}\" expected: {} got: {}",
                json(one),
                json(other)
            ),
            Self::KeyMissing { path } => write!(f, "missing key: \"{path}\""),
            Self::KeyBlocked { path, at } => write!(
                f,
                "error locating key \"{path}\"; .{path} accessor error: {} is not a map",
                json(at)
            ),
            Self::ValueDiffers { path, wanted, found } => write!(
                f,
                "value at key \"{path}\" != \"{wanted}\"; expected: {} got: {}",
                json(&Value::String(wanted.clone())),
                json(found)
            ),
        }
    }
}

impl Unmet {
    /// Plain words, for people.
    pub fn plain(&self) -> String {
        match self {
            Self::Terminating | Self::Absent => self.to_string(),
            Self::StatusOutdated => "the status does not show the last change yet".to_owned(),
            Self::NoConditions { condition } | Self::ConditionMissing { condition } => {
                format!("condition {condition} is not set yet")
            }
            Self::ConditionsMalformed { is_null: true } => "its conditions are not set yet".to_owned(),
            Self::ConditionsMalformed { is_null: false } => "status.conditions is not a list".to_owned(),
            Self::ConditionOutdated { condition } => {
                format!("condition {condition} does not show the last change yet")
            }
            Self::ConditionIs {
                condition,
                status,
                message,
                definition,
            } => {
                let why = if definition.is_empty() {
                    message.clone()
                } else {
                    definition.join("; ")
                };
                let why = if why.is_empty() { why } else { format!(": {why}") };
                format!("condition {condition} is {status}{why}")
            }
            Self::FieldMissing { field } | Self::KeyMissing { path: field } => {
                format!("{field} is not set yet")
            }
            Self::FieldsDiffer {
                one: (a, one),
                other: (b, other),
            } => format!("{a} is {}, {b} is {}", number(one), number(other)),
            Self::KeyBlocked { path, at } => format!("{path} is not set: {} is not a map", json(at)),
            Self::ValueDiffers { path, wanted, found } => {
                let found = found.as_str().map_or_else(|| json(found), ToOwned::to_owned);
                format!("{path} is {found}, not {wanted}")
            }
        }
    }
}

/// A value. The API server omits counters that are zero.
fn number(value: &Value) -> String {
    if value.is_null() {
        "0".to_owned()
    } else {
        json(value)
    }
}

fn json(value: &Value) -> String {
    String::from_utf8_lossy(&canonical::to_vec(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_words_give_the_values_and_the_message_of_the_condition() {
        let available = Unmet::ConditionIs {
            condition: "Available".into(),
            status: "False".into(),
            message: "Deployment does not have minimum availability.".into(),
            definition: Vec::new(),
        };
        let replicas = |updated: Value| Unmet::FieldsDiffer {
            one: ("status.updatedReplicas".into(), updated),
            other: ("status.replicas".into(), json!(2)),
        };
        let phase = Unmet::ValueDiffers {
            path: "status.phase".into(),
            wanted: "Active".into(),
            found: json!("Terminating"),
        };
        for (unmet, plain) in [
            (
                available,
                "condition Available is False: Deployment does not have minimum availability.",
            ),
            (
                replicas(json!(1)),
                "status.updatedReplicas is 1, status.replicas is 2",
            ),
            (
                replicas(Value::Null),
                "status.updatedReplicas is 0, status.replicas is 2",
            ),
            (phase, "status.phase is Terminating, not Active"),
            (
                Unmet::ConditionsMalformed { is_null: true },
                "its conditions are not set yet",
            ),
            (
                Unmet::ConditionsMalformed { is_null: false },
                "status.conditions is not a list",
            ),
        ] {
            assert_eq!(unmet.plain(), plain);
        }
    }
}
