//! The functions and operators.

use std::cmp::Ordering;
use std::sync::Arc;

use olm_version::blang::parse_tolerant;

use super::{EvalError, EvalResult, Evaluator, failed, no_overload};
use crate::cel::time;
use crate::cel::value::{Value, double_text};
use crate::pattern::Pattern;

/// The cost of compiling a pattern, in addition to its length.
const PATTERN_STEPS: usize = 5_000;

const OVERFLOW: &str = "integer overflow";

impl Evaluator<'_> {
    pub(super) fn call(&mut self, name: &str, arguments: &[Value]) -> EvalResult {
        match (name, arguments) {
            ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
            ("-_", [Value::Int(number)]) => number
                .checked_neg()
                .map(Value::Int)
                .ok_or_else(|| failed(OVERFLOW)),
            ("-_", [Value::Double(number)]) => Ok(Value::Double(-number)),
            ("_==_", [left, right]) => Ok(Value::Bool(self.is_equal(left, right)?)),
            ("_!=_", [left, right]) => Ok(Value::Bool(!self.is_equal(left, right)?)),
            ("_<_", [left, right]) => self.order(left, right, Ordering::is_lt),
            ("_<=_", [left, right]) => self.order(left, right, Ordering::is_le),
            ("_>_", [left, right]) => self.order(left, right, Ordering::is_gt),
            ("_>=_", [left, right]) => self.order(left, right, Ordering::is_ge),
            ("_+_", [left, right]) => self.add(left, right),
            ("_-_" | "_*_" | "_/_" | "_%_", [left, right]) => arithmetic(name, left, right),
            ("@in", [element, container]) => self.is_in(element, container),
            ("_[_]", [container, index]) => self.at(container, index),
            ("size", [value]) => self.size(value),
            ("contains", [Value::String(text), Value::String(part)]) => {
                self.pay(text.len() / 4 + part.len() / 4)?;
                Ok(Value::Bool(text.contains(&**part)))
            }
            ("startsWith", [Value::String(text), Value::String(part)]) => {
                self.pay(part.len() / 16)?;
                Ok(Value::Bool(text.starts_with(&**part)))
            }
            ("endsWith", [Value::String(text), Value::String(part)]) => {
                self.pay(part.len() / 16)?;
                Ok(Value::Bool(text.ends_with(&**part)))
            }
            ("matches", [Value::String(text), Value::String(pattern)]) => self.matches(text, pattern),
            ("semver_compare", [left, right]) => self.compare_versions(left, right),
            ("dyn", [value]) => Ok(value.clone()),
            ("type", [value]) => Ok(Value::Type(value.type_name())),
            (_, [value]) => match self.convert(name, value)? {
                Some(converted) => Ok(converted),
                None => part(name, value, 0),
            },
            (_, [value, Value::String(zone)]) => {
                let offset = time::zone(zone).ok_or_else(|| failed(format!("unknown time zone {zone}")))?;
                part(name, value, offset)
            }
            _ => Err(no_overload()),
        }
    }

    /// Numbers of different kinds are equal by value; values of different types are not equal.
    fn is_equal(&mut self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        self.pay(1)?;
        match (left.read(), right.read()) {
            (Value::String(one), Value::String(two)) => {
                self.pay(one.len().min(two.len()) / 16)?;
                Ok(one == two)
            }
            (Value::Bytes(one), Value::Bytes(two)) => {
                self.pay(one.len().min(two.len()) / 16)?;
                Ok(one == two)
            }
            (Value::Null, Value::Null) => Ok(true),
            (Value::Type(one), Value::Type(two)) => Ok(one == two),
            (Value::List(one), Value::List(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (one, two) in one.iter().zip(two.iter()) {
                    if !self.is_equal(one, two)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(one), Value::Map(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (key, one) in one.iter() {
                    let is_same = match two.get(key) {
                        Some(two) => self.is_equal(one, two)?,
                        None => false,
                    };
                    if !is_same {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (one, two) => Ok(one.compare(two) == Some(Ordering::Equal)),
        }
    }

    fn order(&mut self, left: &Value, right: &Value, is_so: fn(Ordering) -> bool) -> EvalResult {
        let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
        if let (Value::String(one), Value::String(two)) = (left, right) {
            self.pay(one.len().min(two.len()) / 16)?;
        }
        match left.compare(right) {
            Some(order) => Ok(Value::Bool(is_so(order))),
            // NaN has no order.
            None if is_number(left) && is_number(right) => Ok(Value::Bool(false)),
            None => Err(no_overload()),
        }
    }

    fn add(&mut self, left: &Value, right: &Value) -> EvalResult {
        match (left, right) {
            (Value::String(one), Value::String(two)) => {
                self.pay(one.len() + two.len())?;
                Ok(Value::String(format!("{one}{two}").into()))
            }
            (Value::Bytes(one), Value::Bytes(two)) => {
                self.pay(one.len() + two.len())?;
                Ok(Value::Bytes([&**one, &**two].concat().into()))
            }
            (Value::List(one), Value::List(two)) => {
                self.pay(one.len() + two.len())?;
                Ok(Value::List(one.iter().chain(two.iter()).cloned().collect()))
            }
            (Value::Timestamp(at), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(at)) => {
                moment(at + i128::from(*span))
            }
            _ => arithmetic("_+_", left, right),
        }
    }

    fn is_in(&mut self, element: &Value, container: &Value) -> EvalResult {
        match container {
            Value::List(elements) => {
                for other in elements.iter() {
                    if self.is_equal(element, other)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Value::Map(map) => Ok(Value::Bool(
                element.key().is_some_and(|key| map.contains_key(&key)),
            )),
            _ => Err(no_overload()),
        }
    }

    fn at(&mut self, container: &Value, index: &Value) -> EvalResult {
        self.pay(1)?;
        match container {
            Value::List(elements) => {
                let Some(super::super::value::Key::Number(number)) = index.key() else {
                    return Err(no_overload());
                };
                usize::try_from(number)
                    .ok()
                    .and_then(|number| elements.get(number).cloned())
                    .ok_or_else(|| failed(format!("index out of bounds: {number}")))
            }
            Value::Map(map) => {
                let key = index.key().and_then(|key| Some(map.get(&key)?.read().clone()));
                key.ok_or_else(|| failed(format!("no such key: {}", index.plain_text().unwrap_or_default())))
            }
            _ => Err(no_overload()),
        }
    }

    fn size(&mut self, value: &Value) -> EvalResult {
        let size = match value {
            Value::String(text) => {
                self.pay(text.len() / 16)?;
                text.chars().count()
            }
            Value::Bytes(bytes) => bytes.len(),
            Value::List(elements) => elements.len(),
            Value::Map(map) => map.len(),
            _ => return Err(no_overload()),
        };
        Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    }

    fn matches(&mut self, text: &str, pattern: &Arc<str>) -> EvalResult {
        if !self.patterns.contains_key(pattern) {
            self.pay(PATTERN_STEPS + 10 * pattern.len())?;
            self.patterns
                .insert(Arc::clone(pattern), Pattern::compile(pattern));
        }
        let steps = match self.patterns.get(pattern) {
            Some(Some(compiled)) => compiled.steps,
            _ => return Err(failed("the pattern is not a regular expression, or too large")),
        };
        self.pay(text.len().saturating_mul(steps) + pattern.len())?;
        let found = self.patterns.get(pattern).and_then(Option::as_ref);
        Ok(Value::Bool(
            found.is_some_and(|compiled| compiled.expression.is_match(text)),
        ))
    }

    /// Texts of any kind are compared, including versions that lack parts or have a leading `v`.
    fn compare_versions(&mut self, left: &Value, right: &Value) -> EvalResult {
        let mut read = |value: &Value| {
            let text = value.plain_text().unwrap_or_default();
            self.pay(text.len())?;
            parse_tolerant(&text).map_err(|_| failed(format!("unable to parse '{text}' to semver format")))
        };
        let (left, right) = (read(left)?, read(right)?);
        Ok(Value::Int(match left.cmp_precedence(&right) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }))
    }

    /// A conversion to the type with this name; `None` if it is not a type.
    fn convert(&mut self, name: &str, value: &Value) -> Result<Option<Value>, EvalError> {
        if let Value::String(text) = value {
            self.pay(text.len() / 4)?;
        }
        let converted = match (name, value) {
            ("bool", Value::Bool(_))
            | ("int", Value::Int(_))
            | ("uint", Value::Uint(_))
            | ("double", Value::Double(_))
            | ("string", Value::String(_))
            | ("bytes", Value::Bytes(_))
            | ("timestamp", Value::Timestamp(_))
            | ("duration", Value::Duration(_)) => Some(value.clone()),
            ("bool", Value::String(text)) => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
                _ => None,
            },
            ("int", Value::Uint(number)) => i64::try_from(*number).ok().map(Value::Int),
            ("int", Value::Double(number)) => to_int(*number).map(Value::Int),
            ("int", Value::String(text)) => text.parse().ok().map(Value::Int),
            ("int", Value::Timestamp(at)) => i64::try_from(at.div_euclid(1_000_000_000)).ok().map(Value::Int),
            ("uint", Value::Int(number)) => u64::try_from(*number).ok().map(Value::Uint),
            ("uint", Value::Double(number)) => to_uint(*number).map(Value::Uint),
            ("uint", Value::String(text)) => text.parse().ok().map(Value::Uint),
            #[expect(clippy::cast_precision_loss, reason = "that is what the conversion is")]
            ("double", Value::Int(number)) => Some(Value::Double(*number as f64)),
            #[expect(clippy::cast_precision_loss, reason = "that is what the conversion is")]
            ("double", Value::Uint(number)) => Some(Value::Double(*number as f64)),
            ("double", Value::String(text)) => text.parse().ok().map(Value::Double),
            ("string", Value::Double(number)) => Some(Value::String(double_text(*number, 21).into())),
            ("string", Value::Bytes(bytes)) => {
                self.pay(bytes.len() / 4)?;
                std::str::from_utf8(bytes)
                    .ok()
                    .map(|text| Value::String(text.into()))
            }
            ("string", other) => other.plain_text().map(|text| Value::String(text.into())),
            ("bytes", Value::String(text)) => Some(Value::Bytes(text.as_bytes().into())),
            ("timestamp", Value::String(text)) => time::parse_timestamp(text).map(Value::Timestamp),
            ("timestamp", Value::Int(seconds)) => {
                time::timestamp(i128::from(*seconds) * 1_000_000_000).map(Value::Timestamp)
            }
            ("duration", Value::String(text)) => olm_text::duration::parse(text).ok().map(Value::Duration),
            ("duration", Value::Int(seconds)) => seconds.checked_mul(1_000_000_000).map(Value::Duration),
            ("bool" | "int" | "uint" | "double" | "bytes" | "timestamp" | "duration", _) => {
                return Err(no_overload());
            }
            _ => return Ok(None),
        };
        let what = || failed(format!("cannot convert {} to {name}", value.type_name()));
        converted.map(Some).ok_or_else(what)
    }
}

fn moment(nanoseconds: i128) -> EvalResult {
    let moment = time::timestamp(nanoseconds).map(Value::Timestamp);
    moment.ok_or_else(|| failed("timestamp overflow"))
}

#[expect(clippy::cast_possible_truncation, reason = "it is in range")]
fn to_int(number: f64) -> Option<i64> {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    (number > -BOUND && number < BOUND).then_some(number as i64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is in range"
)]
fn to_uint(number: f64) -> Option<u64> {
    const BOUND: f64 = 18_446_744_073_709_551_616.0;
    (0.0..BOUND).contains(&number).then_some(number as u64)
}

/// Whole numbers; the operations are addition, subtraction, multiplication, division and remainder.
fn whole<N: Copy + Default + PartialEq>(
    name: &str,
    one: N,
    two: N,
    [add, subtract, multiply, divide, remainder]: [fn(N, N) -> Option<N>; 5],
) -> Result<N, EvalError> {
    let zero = two == N::default();
    match name {
        "_+_" => add(one, two),
        "_-_" => subtract(one, two),
        "_*_" => multiply(one, two),
        "_/_" if zero => return Err(failed("division by zero")),
        "_/_" => divide(one, two),
        _ if zero => return Err(failed("modulus by zero")),
        _ => remainder(one, two),
    }
    .ok_or_else(|| failed(OVERFLOW))
}

fn arithmetic(name: &str, left: &Value, right: &Value) -> EvalResult {
    let overflow = || failed(OVERFLOW);
    match (left, right) {
        (Value::Int(one), Value::Int(two)) => whole(
            name,
            *one,
            *two,
            [
                i64::checked_add,
                i64::checked_sub,
                i64::checked_mul,
                i64::checked_div,
                i64::checked_rem,
            ],
        )
        .map(Value::Int),
        (Value::Uint(one), Value::Uint(two)) => whole(
            name,
            *one,
            *two,
            [
                u64::checked_add,
                u64::checked_sub,
                u64::checked_mul,
                u64::checked_div,
                u64::checked_rem,
            ],
        )
        .map(Value::Uint),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(match name {
            "_+_" => one + two,
            "_-_" => one - two,
            "_*_" => one * two,
            "_/_" => one / two,
            _ => return Err(no_overload()),
        })),
        (Value::Duration(one), Value::Duration(two)) => match name {
            "_+_" => one.checked_add(*two),
            "_-_" => one.checked_sub(*two),
            _ => return Err(no_overload()),
        }
        .map(Value::Duration)
        .ok_or_else(overflow),
        (Value::Timestamp(at), Value::Duration(span)) if name == "_-_" => moment(at - i128::from(*span)),
        (Value::Timestamp(one), Value::Timestamp(two)) if name == "_-_" => i64::try_from(one - two)
            .map(Value::Duration)
            .map_err(|_| overflow()),
        _ => Err(no_overload()),
    }
}

/// A part of a timestamp `offset` seconds east of Greenwich, or a duration in a unit.
fn part(name: &str, value: &Value, offset: i64) -> EvalResult {
    let number = match value {
        Value::Timestamp(at) => {
            let at = time::civil(*at, offset);
            match name {
                "getFullYear" => at.year,
                "getMonth" => at.month - 1,
                "getDate" => at.day,
                "getDayOfMonth" => at.day - 1,
                "getDayOfWeek" => at.day_of_week,
                "getDayOfYear" => at.day_of_year,
                "getHours" => at.hour,
                "getMinutes" => at.minute,
                "getSeconds" => at.second,
                "getMilliseconds" => at.nanosecond / 1_000_000,
                _ => return Err(no_overload()),
            }
        }
        Value::Duration(span) => match name {
            "getHours" => span / 3_600_000_000_000,
            "getMinutes" => span / 60_000_000_000,
            "getSeconds" => span / 1_000_000_000,
            "getMilliseconds" => span / 1_000_000,
            _ => return Err(no_overload()),
        },
        _ => return Err(no_overload()),
    };
    Ok(Value::Int(number))
}
