//! Whether an object fits the schema of a definition, as the API server checks it: it drops nulls that are not allowed,
//! fills in defaults, then checks every constraint of a structural schema. Unknown fields are no violations: the API
//! server drops them. Formats and CEL rules are not evaluated.

use std::collections::BTreeSet;

use olm_api::text::counted;
use serde_json::{Map, Value};

use super::budget::{Budget, Exhausted, Patterns, STEP_BYTES};

/// The deepest value or schema that is checked. Readers of JSON stop earlier.
const MAX_DEPTH: usize = 128;
/// The most violations of one object.
const MAX_VIOLATIONS: usize = 100;
/// The longest path or pattern in a message, in bytes.
const MAX_TEXT: usize = 512;

/// A violation of the schema by an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchemaViolation {
    /// The position in the schema, `^.spec.list.items`.
    pub(super) path: String,
    /// The position in the object, `/spec/list/0`.
    pub(super) instance: String,
    /// The keyword of the schema.
    pub(super) keyword: &'static str,
    /// The message. It contains no values of the object, because its readers may not be allowed to read the object.
    pub(super) message: String,
}

/// The violations of an object, in the order of the schema.
///
/// # Errors
/// The check exceeds the budget.
pub(super) fn violations(
    object: &Value,
    schema: &Value,
    patterns: &mut Patterns,
    budget: &mut Budget,
) -> Result<Vec<SchemaViolation>, Exhausted> {
    budget.read(object)?;
    let mut object = object.clone();
    fill(&mut object, schema, MAX_DEPTH, budget)?;
    let mut validator = Validator {
        patterns,
        budget,
        collected: Collected::Violations(Vec::new()),
    };
    validator.at(&object, schema, &Position::ROOT)?;
    Ok(match validator.collected {
        Collected::Violations(violations) => violations,
        Collected::Whether { .. } => Vec::new(),
    })
}

fn flag(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

fn list<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The schema of a field: its own, otherwise that of additional properties.
fn of_field<'a>(schema: &'a Value, name: &str) -> Option<(&'a Value, bool)> {
    let own = schema.get("properties").and_then(|all| all.get(name));
    own.map(|own| (own, true)).or_else(|| {
        let other = schema.get("additionalProperties")?;
        other.is_object().then_some((other, false))
    })
}

/// Drops nulls that are not allowed and fills in defaults, as the API server does when it reads an object.
fn fill(value: &mut Value, schema: &Value, depth: usize, budget: &mut Budget) -> Result<(), Exhausted> {
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(());
    };
    budget.steps(1)?;
    match value {
        Value::Object(map) => {
            fill_fields(map, schema, budget)?;
            budget.names(map.keys().map(String::as_str))?;
            for (name, inner) in map.iter_mut() {
                if let Some((schema, _)) = of_field(schema, name) {
                    fill(inner, schema, depth, budget)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    fill(item, schema, depth, budget)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn fill_fields(map: &mut Map<String, Value>, schema: &Value, budget: &mut Budget) -> Result<(), Exhausted> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    budget.names(properties.keys().map(String::as_str))?;
    for (name, inner) in properties {
        let Some(default) = inner.get("default").filter(|default| !default.is_null()) else {
            continue;
        };
        let is_dropped = map
            .get(name)
            .is_none_or(|present| present.is_null() && !flag(inner, "nullable"));
        if is_dropped {
            budget.bytes(name.len())?;
            map.insert(name.clone(), budget.copy(default)?);
        }
    }
    Ok(())
}

/// The position in the object and the schema. Rendered only for a finding.
struct Position<'a> {
    above: Option<&'a Self>,
    step: Step<'a>,
    depth: usize,
}

/// A step from the position above.
enum Step<'a> {
    Root,
    Item(usize),
    Field(&'a str),
    OtherField(&'a str),
    Within(&'static str),
    WithinOne(&'static str, usize),
}

impl Position<'_> {
    const ROOT: Position<'static> = Position {
        above: None,
        step: Step::Root,
        depth: MAX_DEPTH,
    };

    fn step<'a>(&'a self, step: Step<'a>) -> Option<Position<'a>> {
        Some(Position {
            above: Some(self),
            step,
            depth: self.depth.checked_sub(1)?,
        })
    }

    /// The position in the schema and the position in the object.
    fn texts(&self, budget: &mut Budget) -> Result<(String, String), Exhausted> {
        let (mut path, mut instance) = ("^".to_owned(), String::new());
        let steps: Vec<&Step<'_>> = std::iter::successors(Some(self), |position| position.above)
            .map(|position| &position.step)
            .collect();
        for step in steps.into_iter().rev() {
            let (way, at) = match step {
                Step::Root => continue,
                Step::Item(index) => ("items".to_owned(), Some(index.to_string())),
                Step::Field(name) => ((*name).to_owned(), Some((*name).to_owned())),
                Step::OtherField(name) => ("additionalProperties".to_owned(), Some((*name).to_owned())),
                Step::Within(keyword) => ((*keyword).to_owned(), None),
                Step::WithinOne(keyword, index) => (format!("{keyword}[{index}]"), None),
            };
            budget.bytes(2 * (way.len() + 2))?;
            path.push('.');
            path.push_str(&way);
            if let Some(at) = at {
                instance.push('/');
                instance.push_str(&at);
            }
        }
        Ok((shortened(path), instance))
    }
}

/// The start of a text that fits into a message.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

/// The result that a check collects.
enum Collected {
    /// Every violation.
    Violations(Vec<SchemaViolation>),
    /// Whether there is a violation.
    Whether { is_violated: bool },
}

/// The validation of one object, or of a part of it.
struct Validator<'p> {
    patterns: &'p mut Patterns,
    budget: &'p mut Budget,
    collected: Collected,
}

impl Validator<'_> {
    fn report(
        &mut self,
        position: &Position<'_>,
        keyword: &'static str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Exhausted> {
        match &mut self.collected {
            Collected::Whether { is_violated } => *is_violated = true,
            Collected::Violations(violations) if violations.len() >= MAX_VIOLATIONS => {}
            Collected::Violations(violations) => {
                let (path, instance) = position.texts(self.budget)?;
                let message = message();
                violations.push(SchemaViolation {
                    path,
                    instance,
                    keyword,
                    message,
                });
            }
        }
        Ok(())
    }

    /// Whether no further violation can be found.
    fn is_over(&self) -> bool {
        match &self.collected {
            Collected::Whether { is_violated } => *is_violated,
            Collected::Violations(violations) => violations.len() >= MAX_VIOLATIONS,
        }
    }

    /// Whether a value fits a schema. Adds no violation.
    fn fits(&mut self, value: &Value, schema: &Value, position: &Position<'_>) -> Result<bool, Exhausted> {
        let mut validator = Validator {
            patterns: &mut *self.patterns,
            budget: &mut *self.budget,
            collected: Collected::Whether { is_violated: false },
        };
        validator.at(value, schema, position)?;
        Ok(!validator.is_over())
    }

    fn at(&mut self, value: &Value, schema: &Value, position: &Position<'_>) -> Result<(), Exhausted> {
        self.budget.steps(1)?;
        if self.is_over() {
            return Ok(());
        }
        if value.is_null() && flag(schema, "nullable") {
            return self.among(value, schema, position);
        }
        if !self.kind(value, schema, position)? {
            return Ok(());
        }
        self.among(value, schema, position)?;
        match value {
            Value::String(text) => self.text(text, schema, position)?,
            Value::Number(number) => self.number(number.as_f64(), schema, position)?,
            Value::Array(items) => self.items(items, schema, position)?,
            Value::Object(map) => self.map(map, schema, position)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.junctions(value, schema, position)
    }

    /// Whether the value has the right type. If not, nothing else is checked.
    fn kind(&mut self, value: &Value, schema: &Value, position: &Position<'_>) -> Result<bool, Exhausted> {
        let found = kind_of(value);
        if flag(schema, "x-kubernetes-int-or-string") {
            let fits = matches!(found, "integer" | "string");
            if !fits {
                self.report(position, "type", || {
                    format!("is of type {found}, not integer or string")
                })?;
            }
            return Ok(fits);
        }
        let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        let fits = wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer");
        if !fits {
            self.report(position, "type", || {
                shortened(format!("is of type {found}, not {wanted}"))
            })?;
        }
        Ok(fits)
    }

    fn among(&mut self, value: &Value, schema: &Value, position: &Position<'_>) -> Result<(), Exhausted> {
        let allowed = list(schema, "enum");
        if allowed.is_empty() {
            return Ok(());
        }
        self.budget.steps(allowed.len())?;
        if value.is_array() || value.is_object() {
            for one in allowed {
                self.budget.read(one)?;
            }
        }
        if allowed.iter().any(|one| same(one, value)) {
            return Ok(());
        }
        self.report(position, "enum", || {
            "is none of the values that are allowed".to_owned()
        })
    }

    fn text(&mut self, text: &str, schema: &Value, position: &Position<'_>) -> Result<(), Exhausted> {
        let pattern = schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
        if !pattern.is_empty() && !self.patterns.matches(pattern, text, self.budget)? {
            self.report(position, "pattern", || {
                shortened(format!("does not match {pattern:?}"))
            })?;
        }
        let limits = ["minLength", "maxLength"];
        if limits.iter().all(|limit| schema.get(limit).is_none()) {
            return Ok(());
        }
        self.budget.steps(text.len() / STEP_BYTES)?;
        self.size(text.chars().count(), limits, "character", schema, position)
    }

    fn size(
        &mut self,
        size: usize,
        [least, most]: [&'static str; 2],
        what: &str,
        schema: &Value,
        position: &Position<'_>,
    ) -> Result<(), Exhausted> {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        if let Some(limit) = limit(least).filter(|limit| size < *limit) {
            self.report(position, least, || {
                format!("has fewer than {}", counted(limit, what))
            })?;
        }
        if let Some(limit) = limit(most).filter(|limit| size > *limit) {
            self.report(position, most, || {
                format!("has more than {}", counted(limit, what))
            })?;
        }
        Ok(())
    }

    fn number(
        &mut self,
        number: Option<f64>,
        schema: &Value,
        position: &Position<'_>,
    ) -> Result<(), Exhausted> {
        let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let Some(number) = number else { return Ok(()) };
        if let Some(limit) = limit("minimum") {
            let exclusive = flag(schema, "exclusiveMinimum");
            if number < limit || (exclusive && number <= limit) {
                let or = if exclusive { " or equal to it" } else { "" };
                self.report(position, "minimum", || format!("is less than {limit}{or}"))?;
            }
        }
        if let Some(limit) = limit("maximum") {
            let exclusive = flag(schema, "exclusiveMaximum");
            if number > limit || (exclusive && number >= limit) {
                let or = if exclusive { " or equal to it" } else { "" };
                self.report(position, "maximum", || format!("is more than {limit}{or}"))?;
            }
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| *factor > 0.0) {
            let times = number / factor;
            if (times - times.round()).abs() > 1e-9 {
                self.report(position, "multipleOf", || {
                    format!("is not a multiple of {factor}")
                })?;
            }
        }
        Ok(())
    }

    fn items(&mut self, items: &[Value], schema: &Value, position: &Position<'_>) -> Result<(), Exhausted> {
        self.size(items.len(), ["minItems", "maxItems"], "item", schema, position)?;
        let keys = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Some(&[][..]),
            Some("map") => Some(list(schema, "x-kubernetes-list-map-keys")),
            _ => None,
        };
        if let Some(keys) = keys
            && self.holds_twice(items, keys)?
        {
            self.report(position, "x-kubernetes-list-type", || {
                "holds the same item twice".to_owned()
            })?;
        }
        if let Some(schema) = schema.get("items").filter(|schema| schema.is_object()) {
            for (index, item) in items.iter().enumerate() {
                if let Some(position) = position.step(Step::Item(index)) {
                    self.at(item, schema, &position)?;
                }
            }
        }
        Ok(())
    }

    /// Whether two items are equal in these fields, or as a whole when there are no fields.
    fn holds_twice(&mut self, items: &[Value], keys: &[Value]) -> Result<bool, Exhausted> {
        let mut seen = BTreeSet::new();
        for item in items {
            let mut identity = String::new();
            if keys.is_empty() {
                self.budget.read(item)?;
                identity = item.to_string();
            }
            for key in keys.iter().filter_map(Value::as_str) {
                let value = item.get(key).unwrap_or(&Value::Null);
                self.budget.names(std::iter::once(key))?;
                self.budget.read(value)?;
                identity.push_str(&value.to_string());
                identity.push(',');
            }
            if !seen.insert(identity) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn map(
        &mut self,
        map: &Map<String, Value>,
        schema: &Value,
        position: &Position<'_>,
    ) -> Result<(), Exhausted> {
        let limits = ["minProperties", "maxProperties"];
        self.size(map.len(), limits, "field", schema, position)?;
        let required = list(schema, "required");
        self.budget.names(required.iter().filter_map(Value::as_str))?;
        self.budget.names(map.keys().map(String::as_str))?;
        for name in required.iter().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.report(position, "required", || {
                    shortened(format!("lacks the required field {name:?}"))
                })?;
            }
        }
        for (name, value) in map {
            let Some((schema, named)) = of_field(schema, name) else {
                continue;
            };
            let step = if named {
                Step::Field(name)
            } else {
                Step::OtherField(name)
            };
            if let Some(position) = position.step(step) {
                self.at(value, schema, &position)?;
            }
        }
        Ok(())
    }

    fn junctions(&mut self, value: &Value, schema: &Value, position: &Position<'_>) -> Result<(), Exhausted> {
        for (index, one) in list(schema, "allOf").iter().enumerate() {
            if let Some(position) = position.step(Step::WithinOne("allOf", index)) {
                self.at(value, one, &position)?;
            }
        }
        for (keyword, enough) in [("anyOf", 1), ("oneOf", 2)] {
            let all = list(schema, keyword);
            let Some(inner) = position.step(Step::Within(keyword)).filter(|_| !all.is_empty()) else {
                continue;
            };
            let mut fitting = 0;
            for one in all {
                fitting += usize::from(self.fits(value, one, &inner)?);
                if fitting == enough {
                    break;
                }
            }
            if fitting != 1 {
                let how = if fitting == 0 { "none" } else { "several" };
                self.report(position, keyword, || format!("fits {how} of {keyword}"))?;
            }
        }
        if let (Some(not), Some(inner)) = (schema.get("not"), position.step(Step::Within("not")))
            && not.is_object()
            && self.fits(value, not, &inner)?
        {
            self.report(position, "not", || {
                "matches the schema that `not` excludes".to_owned()
            })?;
        }
        Ok(())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => "integer",
            _ => "number",
        },
        Value::Number(_) => "integer",
    }
}

/// Whether two values are equal; numbers by value.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests;
