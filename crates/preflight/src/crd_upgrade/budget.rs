//! A budget for the check of one object. Schemas and objects are hostile input: a default may apply to every item of a
//! long list, and every item to every schema of a long list.

use std::collections::BTreeMap;

use olm_constraint::pattern::Pattern;
use serde_json::Value;

/// The steps for one object. A step is about the work of one field lookup.
const MAX_STEPS: usize = 5_000_000;
/// The maximum number of bytes that are created for one object.
const MAX_BYTES: usize = 8 << 20;
/// The size of a value without its text, in bytes.
const VALUE_BYTES: usize = 72;
/// Bytes of text that cost one step.
pub(super) const STEP_BYTES: usize = 16;
/// The cost of compiling a pattern, without its length.
const PATTERN_STEPS: usize = 5000;
/// The maximum size of all compiled patterns in bytes.
const MAX_PATTERNS: usize = 16 << 20;

/// The cost of a text that is not a pattern, so that many of them use up the budget.
const NO_PATTERN: usize = 4 << 10;

/// The budget is used up. Earlier findings are not reliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// The remaining budget for one object.
#[derive(Debug)]
pub(super) struct Budget {
    steps: usize,
    bytes: usize,
}

impl Budget {
    /// The budget for one object.
    pub(super) fn of_one_object() -> Self {
        Self {
            steps: MAX_STEPS,
            bytes: MAX_BYTES,
        }
    }

    /// Takes steps.
    pub(super) fn steps(&mut self, count: usize) -> Result<(), Exhausted> {
        self.steps = self.steps.checked_sub(count).ok_or(Exhausted)?;
        Ok(())
    }

    /// Takes bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), Exhausted> {
        self.bytes = self.bytes.checked_sub(count).ok_or(Exhausted)?;
        Ok(())
    }

    /// Takes the steps of looking fields up.
    pub(super) fn names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<(), Exhausted> {
        for name in names {
            self.steps(1 + name.len() / STEP_BYTES)?;
        }
        Ok(())
    }

    /// Charges the steps to read a whole value; returns its size in bytes.
    pub(super) fn read(&mut self, value: &Value) -> Result<usize, Exhausted> {
        let mut bytes: usize = 0;
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            let text = match value {
                Value::String(text) => text.len(),
                Value::Array(items) => {
                    open.extend(items);
                    0
                }
                Value::Object(map) => {
                    open.extend(map.values());
                    map.keys().map(String::len).sum()
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            };
            self.steps(1 + text / STEP_BYTES)?;
            bytes = bytes.saturating_add(VALUE_BYTES + text);
        }
        Ok(bytes)
    }

    /// A copy of a value.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, Exhausted> {
        let bytes = self.read(value)?;
        self.bytes(bytes)?;
        Ok(value.clone())
    }
}

/// Patterns of schemas, each compiled once; `None` for a text that is not a pattern here.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    compiled: BTreeMap<String, Option<Pattern>>,
    size: usize,
}

impl Patterns {
    /// Whether a text matches. A pattern that cannot be compiled here matches everything, because the API server may be
    /// able to compile it.
    pub(super) fn matches(
        &mut self,
        pattern: &str,
        text: &str,
        budget: &mut Budget,
    ) -> Result<bool, Exhausted> {
        budget.steps(1 + pattern.len() / STEP_BYTES)?;
        if !self.compiled.contains_key(pattern) {
            budget.steps(PATTERN_STEPS + pattern.len())?;
            if self.size >= MAX_PATTERNS {
                return Err(Exhausted);
            }
            let compiled = Pattern::compile(pattern);
            let size = compiled.as_ref().map_or(NO_PATTERN, |compiled| compiled.size);
            self.size += size;
            self.compiled.insert(pattern.to_owned(), compiled);
        }
        let Some(Some(compiled)) = self.compiled.get(pattern) else {
            return Ok(true);
        };
        budget.steps(text.len().saturating_mul(compiled.steps))?;
        Ok(compiled.expression.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_costs_its_size() {
        let mut budget = Budget::of_one_object();
        let value = json!({"ab": ["c".repeat(1000), 1, null]});
        assert_eq!(budget.copy(&value), Ok(value.clone()));
        assert_eq!(MAX_BYTES - budget.bytes, 5 * VALUE_BYTES + 1002);
        let large = Value::from("x".repeat(MAX_BYTES));
        assert_eq!(budget.copy(&large), Err(Exhausted));
    }

    #[test]
    fn patterns_hold_so_much_together() {
        let mut patterns = Patterns::default();
        let mut matches = |number: usize| {
            patterns.matches(
                &format!("^[a-c]{{400}}{number}"),
                "x",
                &mut Budget::of_one_object(),
            )
        };
        assert_eq!(matches(0), Ok(false));
        assert!((1..1000).any(|number| matches(number) == Err(Exhausted)));
        assert_eq!(matches(0), Ok(false));
    }
}
