//! Whether an object is ready, so that the next phase may begin.

mod unmet;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use olm_api::cluster_object_set::{
    Assertion, AssertionType, ConditionEqual, FieldValue, FieldsEqual, ProbeSelector, ProgressionProbe,
    SelectorType,
};
use olm_api::object::text;
use serde_json::Value;

use crate::object::ObjectId;

pub use unmet::Unmet;

/// The result of all probes of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// The status.
    pub status: ProbeStatus,
    /// The reasons, if the status is not [`ProbeStatus::Passes`].
    pub unmet: Vec<Unmet>,
}

/// The status of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeStatus {
    /// Ready, or no probe selects it.
    Passes,
    /// The object is not ready.
    Fails,
    /// Unknown yet.
    Unknown,
}

impl ProbeResult {
    /// Ready.
    pub const PASSES: Self = Self {
        status: ProbeStatus::Passes,
        unmet: Vec::new(),
    };
}

/// Evaluates every probe that selects the object. All must pass. While the object's status is older than its spec, the
/// result is unknown.
pub fn ask(probes: &[ProgressionProbe], live: &Value) -> ProbeResult {
    if probes.is_empty() {
        return ProbeResult::PASSES;
    }
    let generation = live
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let observed = live.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if observed.is_some_and(|observed| observed != generation) {
        return ProbeResult {
            status: ProbeStatus::Unknown,
            unmet: vec![Unmet::StatusOutdated],
        };
    }
    let mut worst = ProbeResult::PASSES;
    for assertion in probes
        .iter()
        .filter(|probe| selects(&probe.selector, live))
        .flat_map(|p| &p.assertions)
    {
        let Some((status, unmet)) = assert(assertion, live) else {
            continue;
        };
        if status > worst.status {
            worst = ProbeResult {
                status,
                unmet: Vec::new(),
            };
        }
        if status == worst.status && !worst.unmet.contains(&unmet) {
            worst.unmet.push(unmet);
        }
    }
    worst
}

fn selects(selector: &ProbeSelector, live: &Value) -> bool {
    match selector.selector_type {
        SelectorType::GroupKind => selector.group_kind.as_ref().is_some_and(|wanted| {
            let id = ObjectId::of(live);
            id.group == wanted.group && id.kind == wanted.kind
        }),
        SelectorType::Label => selector
            .label
            .as_ref()
            .is_some_and(|selector| matches_labels(selector, live)),
    }
}

fn matches_labels(selector: &LabelSelector, live: &Value) -> bool {
    let label = |key: &str| {
        live.pointer("/metadata/labels")
            .and_then(|l| l.get(key))
            .and_then(Value::as_str)
    };
    let empty = BTreeMap::new();
    let by_value = selector.match_labels.as_ref().unwrap_or(&empty).iter();
    by_value.into_iter().all(|(key, value)| label(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|expression| {
            let present = label(&expression.key);
            let listed = present.is_some_and(|p| expression.values.iter().flatten().any(|v| v == p));
            match expression.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => present.is_some(),
                "DoesNotExist" => present.is_none(),
                _ => false,
            }
        })
}

/// The reason why probes are invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProbeError {
    /// A label selector uses an operator that does not exist.
    #[error("progression probe {index}: \"{operator}\" is not a valid label selector operator")]
    Operator {
        /// The probe's index.
        index: usize,
        /// The operator.
        operator: String,
    },
}

/// Checks that the API server does not make.
///
/// # Errors
/// [`ProbeError`]
pub fn check(probes: &[ProgressionProbe]) -> Result<(), ProbeError> {
    for (index, probe) in probes.iter().enumerate() {
        let expressions = probe
            .selector
            .label
            .iter()
            .flat_map(|s| s.match_expressions.iter().flatten());
        for expression in expressions {
            if !matches!(
                expression.operator.as_str(),
                "In" | "NotIn" | "Exists" | "DoesNotExist"
            ) {
                return Err(ProbeError::Operator {
                    index,
                    operator: expression.operator.clone(),
                });
            }
        }
    }
    Ok(())
}

/// The reason why an assertion does not hold; `None` if it holds.
type ProbeOutcome = Option<(ProbeStatus, Unmet)>;

fn assert(assertion: &Assertion, live: &Value) -> ProbeOutcome {
    match assertion.assertion_type {
        AssertionType::ConditionEqual => assertion
            .condition_equal
            .as_ref()
            .and_then(|a| condition(a, live)),
        AssertionType::FieldsEqual => assertion
            .fields_equal
            .as_ref()
            .and_then(|a| fields_equal(a, live)),
        AssertionType::FieldValue => assertion.field_value.as_ref().and_then(|a| field_value(a, live)),
    }
}

fn condition(wanted: &ConditionEqual, live: &Value) -> ProbeOutcome {
    let unknown = |unmet: Unmet| Some((ProbeStatus::Unknown, unmet));
    let condition = wanted.condition_type.clone();
    let Some(conditions) = live.pointer("/status/conditions") else {
        return unknown(Unmet::NoConditions { condition });
    };
    let Some(conditions) = conditions.as_array() else {
        let is_null = conditions.is_null();
        return unknown(Unmet::ConditionsMalformed { is_null });
    };
    let of_type = |c: &&Value| c.get("type").and_then(Value::as_str) == Some(&condition);
    let Some(found) = conditions.iter().find(of_type) else {
        return unknown(Unmet::ConditionMissing { condition });
    };
    let generation = live
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let observed = found.get("observedGeneration").and_then(Value::as_i64);
    if observed.is_some_and(|observed| observed != generation) {
        return unknown(Unmet::ConditionOutdated { condition });
    }
    let status = text(found, "/status");
    if status == wanted.status {
        return None;
    }
    let id = ObjectId::of(live);
    let definition = if id.group == "apiextensions.k8s.io" && id.kind == "CustomResourceDefinition" {
        unestablished(conditions)
    } else {
        Vec::new()
    };
    let message = match text(found, "/message") {
        "" => text(found, "/reason"),
        message => message,
    };
    let unmet = Unmet::ConditionIs {
        condition,
        status: status.to_owned(),
        message: message.to_owned(),
        definition,
    };
    Some((ProbeStatus::Fails, unmet))
}

/// The reasons why a definition is not established, from its conditions: usually another one has its names.
fn unestablished(conditions: &[Value]) -> Vec<String> {
    conditions
        .iter()
        .filter(|condition| {
            matches!(text(condition, "/type"), "Established" | "NamesAccepted")
                && text(condition, "/status") == "False"
        })
        .map(|condition| format!("{}: {}", text(condition, "/reason"), text(condition, "/message")))
        .collect()
}

enum Lookup<'a> {
    Found(&'a Value),
    Missing,
    /// A value on the path is not a map.
    Blocked(&'a Value),
}

fn look_up<'a>(live: &'a Value, path: &str) -> Lookup<'a> {
    let mut at = live;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let Some(map) = at.as_object() else {
            return Lookup::Blocked(at);
        };
        match map.get(part) {
            Some(value) => at = value,
            None => return Lookup::Missing,
        }
    }
    Lookup::Found(at)
}

/// The value at a path. An absent counter of replicas is zero: the API server omits zeros, and an observed generation
/// shows that a controller has counted.
fn comparable<'a>(live: &'a Value, path: &str) -> Option<&'a Value> {
    const ZERO: &Value = &Value::Null;
    match look_up(live, path) {
        Lookup::Found(value) => Some(value),
        Lookup::Missing
            if path.starts_with("status.")
                && path.to_ascii_lowercase().ends_with("replicas")
                && live.pointer("/status/observedGeneration").is_some() =>
        {
            Some(ZERO)
        }
        Lookup::Missing | Lookup::Blocked(_) => None,
    }
}

fn fields_equal(wanted: &FieldsEqual, live: &Value) -> ProbeOutcome {
    let fails = |unmet: Unmet| Some((ProbeStatus::Fails, unmet));
    let (a, b) = (&wanted.field_a, &wanted.field_b);
    let Some(one) = comparable(live, a) else {
        return fails(Unmet::FieldMissing { field: a.clone() });
    };
    let Some(other) = comparable(live, b) else {
        return fails(Unmet::FieldMissing { field: b.clone() });
    };
    let number = |value: &Value| {
        if value.is_null() {
            Some(0.0)
        } else {
            value.as_f64()
        }
    };
    if one == other || number(one).is_some_and(|n| number(other) == Some(n)) {
        return None;
    }
    fails(Unmet::FieldsDiffer {
        one: (a.clone(), one.clone()),
        other: (b.clone(), other.clone()),
    })
}

fn field_value(wanted: &FieldValue, live: &Value) -> ProbeOutcome {
    let fails = |unmet: Unmet| Some((ProbeStatus::Fails, unmet));
    let (path, value) = (wanted.field_path.clone(), &wanted.value);
    match look_up(live, &path) {
        Lookup::Missing => fails(Unmet::KeyMissing { path }),
        Lookup::Blocked(at) => fails(Unmet::KeyBlocked { path, at: at.clone() }),
        Lookup::Found(found) if found.as_str() == Some(value) => None,
        Lookup::Found(found) => fails(Unmet::ValueDiffers {
            path,
            wanted: value.clone(),
            found: found.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_follow_the_rules_of_the_api() {
        let probe = |selector: Value| ProgressionProbe {
            selector: serde_json::from_value(json!({"type": "Label", "label": selector})).unwrap(),
            assertions: vec![Assertion {
                assertion_type: AssertionType::FieldValue,
                field_value: Some(FieldValue {
                    field_path: "data.ready".into(),
                    value: "yes".into(),
                }),
                ..Assertion::default()
            }],
        };
        let object = json!({"kind": "X", "metadata": {"labels": {"a": "1"}}, "data": {"ready": "no"}});
        for (selector, selected) in [
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["0", "1"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
                true,
            ),
        ] {
            let probes = [probe(selector)];
            assert_eq!(super::check(&probes), Ok(()));
            let expected = if selected {
                ProbeStatus::Fails
            } else {
                ProbeStatus::Passes
            };
            assert_eq!(ask(&probes, &object).status, expected);
        }
        let wrong = probe(json!({"matchExpressions": [{"key": "b", "operator": "Near"}]}));
        assert!(super::check(&[wrong]).is_err());
    }
}
