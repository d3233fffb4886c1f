//! The evaluation of expressions. Every step is charged to the budget.

mod functions;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Variable;
use super::ast::{Kind, Logic, Macro, Node, type_name};
use super::value::Value;
use crate::pattern::Pattern;

/// The most steps of one evaluation, whatever is left of the budget.
const MOST_STEPS: u64 = 1_000_000;

/// Steps that evaluations may spend together. A step is about the work of adding two numbers or comparing a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// A budget of `steps`.
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Charges work outside an evaluation. `false` if the budget is too small; then it is exhausted.
    #[must_use]
    pub fn spend(&mut self, steps: u64) -> bool {
        let rest = self.left.checked_sub(steps);
        self.left = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Whether the budget is exhausted.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

impl Default for Budget {
    /// Enough for thousands of ordinary rules, and spent within a second.
    fn default() -> Self {
        Self::new(20 * MOST_STEPS)
    }
}

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// An operation is not possible.
    #[error("{0}")]
    Failed(String),
    /// The budget is used up.
    #[error("the expression takes too many steps")]
    Exhausted,
}

/// The value of an expression.
type EvalResult = Result<Value, EvalError>;

fn failed(text: impl Into<String>) -> EvalError {
    EvalError::Failed(text.into())
}

fn no_overload() -> EvalError {
    failed("no such overload")
}

/// Evaluates a checked expression that yields a boolean, for a value of its variable.
pub(super) fn evaluate(
    root: &Node,
    variable: Variable,
    value: &Value,
    budget: &mut Budget,
) -> Result<bool, EvalError> {
    let allowed = budget.left.min(MOST_STEPS);
    let mut machine = Evaluator {
        variable: (variable.name(), value),
        variables: Vec::new(),
        steps: allowed,
        patterns: HashMap::new(),
    };
    let outcome = machine.value(root);
    budget.left -= allowed - machine.steps;
    truth(&outcome?)
}

fn truth(value: &Value) -> Result<bool, EvalError> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => Err(no_overload()),
    }
}

struct Evaluator<'a> {
    /// The variable of the rule: its name and its value.
    variable: (&'static str, &'a Value),
    /// The variables of the macros around, innermost last.
    variables: Vec<(&'a str, Value)>,
    steps: u64,
    /// Patterns that were compiled.
    patterns: HashMap<Arc<str>, Option<Pattern>>,
}

impl<'a> Evaluator<'a> {
    fn pay(&mut self, steps: usize) -> Result<(), EvalError> {
        let left = self.steps.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.steps = left.unwrap_or(0);
        left.map(drop).ok_or(EvalError::Exhausted)
    }

    /// Calls itself no deeper than expressions are.
    fn value(&mut self, node: &'a Node) -> EvalResult {
        self.pay(1)?;
        match &node.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Name(name) => self.name(name, node),
            Kind::Select { operand, field } => {
                if let Some(name) = type_name(node) {
                    return Ok(Value::Type(name));
                }
                let operand = self.value(operand)?;
                self.field(&operand, field)?
                    .ok_or_else(|| failed(format!("no such key: {field}")))
            }
            Kind::Has { operand, field } => {
                let operand = self.value(operand)?;
                match operand {
                    Value::Map(_) | Value::List(_) => Ok(Value::Bool(self.field(&operand, field)?.is_some())),
                    // A value without fields does not have this one.
                    _ => Ok(Value::Bool(false)),
                }
            }
            Kind::Call { name, arguments, .. } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                self.call(name, &values)
            }
            Kind::List(elements) => {
                let elements: Result<Vec<Value>, EvalError> =
                    elements.iter().map(|element| self.value(element)).collect();
                Ok(Value::List(elements?.into()))
            }
            Kind::Map(entries) => {
                let mut map = BTreeMap::new();
                for (key, value) in entries {
                    let key = self.value(key)?;
                    let key = match key {
                        Value::Double(_) => None,
                        other => other.key(),
                    };
                    let key = key.ok_or_else(|| failed("unsupported key type"))?;
                    let value = self.value(value)?;
                    if map.insert(key, value).is_some() {
                        return Err(failed("Failed with repeated key"));
                    }
                }
                Ok(Value::Map(Arc::new(map)))
            }
            Kind::Chain { logic, terms } => self.chain(*logic, terms),
            Kind::Choose { condition, yes, no } => {
                let condition = self.value(condition)?;
                if truth(&condition)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            Kind::Fold {
                fold,
                range,
                variable,
                filter,
                body,
            } => self.fold(*fold, range, variable, filter.as_deref(), body),
        }
    }

    fn name(&mut self, name: &str, node: &Node) -> EvalResult {
        let known = self.variables.iter().rev().find(|(known, _)| *known == name);
        match known {
            Some((_, value)) => Ok(value.clone()),
            None if name == self.variable.0 => Ok(self.variable.1.clone()),
            None => type_name(node)
                .map(Value::Type)
                .ok_or_else(|| failed(format!("no such attribute: {name}"))),
        }
    }

    fn field(&mut self, operand: &Value, field: &Arc<str>) -> Result<Option<Value>, EvalError> {
        match operand {
            Value::Map(map) => {
                self.pay(1)?;
                Ok(map
                    .get(&super::value::Key::String(Arc::clone(field)))
                    .map(|value| value.read().clone()))
            }
            _ => Err(no_overload()),
        }
    }

    /// A term that decides the chain does so even if other terms fail.
    fn chain(&mut self, logic: Logic, terms: &'a [Node]) -> EvalResult {
        let decides = logic == Logic::Or;
        let mut error = None;
        for term in terms {
            match self.value(term).and_then(|value| truth(&value)) {
                Ok(value) if value == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(EvalError::Exhausted) => return Err(EvalError::Exhausted),
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
        }
        error.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn fold(
        &mut self,
        fold: Macro,
        range: &'a Node,
        variable: &'a str,
        filter: Option<&'a Node>,
        body: &'a Node,
    ) -> EvalResult {
        let range = self.value(range)?;
        let mut error = None;
        let mut count = 0_usize;
        let mut kept = Vec::new();
        let elements: Box<dyn Iterator<Item = Value>> = match &range {
            Value::List(elements) => Box::new(elements.iter().cloned()),
            Value::Map(map) => Box::new(map.keys().map(super::value::Key::value)),
            _ => return Err(no_overload()),
        };
        for element in elements {
            self.pay(1)?;
            self.variables.push((variable, element.clone()));
            let passes = filter.map_or(Ok(true), |filter| {
                self.value(filter).and_then(|value| truth(&value))
            });
            let outcome = match passes {
                Ok(true) => self.value(body).map(Some),
                Ok(false) => Ok(None),
                Err(failed) => Err(failed),
            };
            self.variables.pop();
            let Some(outcome) = outcome.transpose() else {
                continue;
            };
            if fold == Macro::Map {
                kept.push(outcome?);
                continue;
            }
            match (fold, outcome.and_then(|value| truth(&value))) {
                (Macro::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                (Macro::All, Ok(false)) => return Ok(Value::Bool(false)),
                (Macro::All | Macro::Exists, Err(EvalError::Failed(text))) => {
                    error.get_or_insert(EvalError::Failed(text));
                }
                (_, Err(failed)) => return Err(failed),
                (Macro::Filter, Ok(true)) => kept.push(element),
                (Macro::ExistsOne, Ok(true)) => count += 1,
                (_, Ok(_)) => {}
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
        Ok(match fold {
            Macro::All => Value::Bool(true),
            Macro::Exists => Value::Bool(false),
            Macro::ExistsOne => Value::Bool(count == 1),
            Macro::Map | Macro::Filter => Value::List(kept.into()),
        })
    }
}
