//! The functions and operators, with their types.

use super::types::Type;

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallStyle {
    /// `f(a)` and operators.
    Global,
    /// `a.f()`.
    Member,
}
use CallStyle::{Global, Member};

type Overload = (&'static str, CallStyle, &'static [Type], Type);

/// Functions over simple types; those over any type, list or map are resolved in [`generic`].
const OVERLOADS: &[Overload] = &[
    ("!_", Global, &[Type::Bool], Type::Bool),
    ("-_", Global, &[Type::Int], Type::Int),
    ("-_", Global, &[Type::Double], Type::Double),
    ("_+_", Global, &[Type::Int, Type::Int], Type::Int),
    ("_+_", Global, &[Type::Uint, Type::Uint], Type::Uint),
    ("_+_", Global, &[Type::Double, Type::Double], Type::Double),
    ("_+_", Global, &[Type::String, Type::String], Type::String),
    ("_+_", Global, &[Type::Bytes, Type::Bytes], Type::Bytes),
    ("_+_", Global, &[Type::Timestamp, Type::Duration], Type::Timestamp),
    ("_+_", Global, &[Type::Duration, Type::Timestamp], Type::Timestamp),
    ("_+_", Global, &[Type::Duration, Type::Duration], Type::Duration),
    ("_-_", Global, &[Type::Int, Type::Int], Type::Int),
    ("_-_", Global, &[Type::Uint, Type::Uint], Type::Uint),
    ("_-_", Global, &[Type::Double, Type::Double], Type::Double),
    ("_-_", Global, &[Type::Timestamp, Type::Timestamp], Type::Duration),
    ("_-_", Global, &[Type::Timestamp, Type::Duration], Type::Timestamp),
    ("_-_", Global, &[Type::Duration, Type::Duration], Type::Duration),
    ("_*_", Global, &[Type::Int, Type::Int], Type::Int),
    ("_*_", Global, &[Type::Uint, Type::Uint], Type::Uint),
    ("_*_", Global, &[Type::Double, Type::Double], Type::Double),
    ("_/_", Global, &[Type::Int, Type::Int], Type::Int),
    ("_/_", Global, &[Type::Uint, Type::Uint], Type::Uint),
    ("_/_", Global, &[Type::Double, Type::Double], Type::Double),
    ("_%_", Global, &[Type::Int, Type::Int], Type::Int),
    ("_%_", Global, &[Type::Uint, Type::Uint], Type::Uint),
    ("size", Global, &[Type::String], Type::Int),
    ("size", Global, &[Type::Bytes], Type::Int),
    ("size", Member, &[Type::String], Type::Int),
    ("size", Member, &[Type::Bytes], Type::Int),
    ("contains", Member, &[Type::String, Type::String], Type::Bool),
    ("startsWith", Member, &[Type::String, Type::String], Type::Bool),
    ("endsWith", Member, &[Type::String, Type::String], Type::Bool),
    ("matches", Member, &[Type::String, Type::String], Type::Bool),
    ("matches", Global, &[Type::String, Type::String], Type::Bool),
    ("bool", Global, &[Type::Bool], Type::Bool),
    ("bool", Global, &[Type::String], Type::Bool),
    ("int", Global, &[Type::Int], Type::Int),
    ("int", Global, &[Type::Uint], Type::Int),
    ("int", Global, &[Type::Double], Type::Int),
    ("int", Global, &[Type::String], Type::Int),
    ("int", Global, &[Type::Timestamp], Type::Int),
    ("uint", Global, &[Type::Uint], Type::Uint),
    ("uint", Global, &[Type::Int], Type::Uint),
    ("uint", Global, &[Type::Double], Type::Uint),
    ("uint", Global, &[Type::String], Type::Uint),
    ("double", Global, &[Type::Double], Type::Double),
    ("double", Global, &[Type::Int], Type::Double),
    ("double", Global, &[Type::Uint], Type::Double),
    ("double", Global, &[Type::String], Type::Double),
    ("string", Global, &[Type::String], Type::String),
    ("string", Global, &[Type::Bool], Type::String),
    ("string", Global, &[Type::Int], Type::String),
    ("string", Global, &[Type::Uint], Type::String),
    ("string", Global, &[Type::Double], Type::String),
    ("string", Global, &[Type::Bytes], Type::String),
    ("string", Global, &[Type::Timestamp], Type::String),
    ("string", Global, &[Type::Duration], Type::String),
    ("bytes", Global, &[Type::Bytes], Type::Bytes),
    ("bytes", Global, &[Type::String], Type::Bytes),
    ("timestamp", Global, &[Type::Timestamp], Type::Timestamp),
    ("timestamp", Global, &[Type::String], Type::Timestamp),
    ("timestamp", Global, &[Type::Int], Type::Timestamp),
    ("duration", Global, &[Type::Duration], Type::Duration),
    ("duration", Global, &[Type::String], Type::Duration),
    ("duration", Global, &[Type::Int], Type::Duration),
];

/// Ordered types; both sides have the same one.
const ORDERED: &[Type] = &[
    Type::Bool,
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::String,
    Type::Bytes,
    Type::Timestamp,
    Type::Duration,
];

/// Parts of a timestamp; an argument names the time zone.
const PARTS: [&str; 10] = [
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];
/// The getters that durations also have.
const SPAN_PARTS: [&str; 4] = ["getHours", "getMinutes", "getSeconds", "getMilliseconds"];

/// The type of a call, or its fault.
pub(super) fn result(name: &str, is_member: bool, arguments: &[Type]) -> Result<Type, String> {
    let form = if is_member { Member } else { Global };
    match generic(name, form, arguments) {
        Generic::Fits(result) => return Ok(result),
        Generic::Misfits => return Err(mismatch(name, is_member, arguments)),
        Generic::Unknown => {}
    }
    let is_known = |overload: &&Overload| overload.0 == name;
    if !OVERLOADS.iter().any(|overload| is_known(&overload)) {
        return Err(format!("undeclared reference to '{name}' (in container '')"));
    }
    let fits = |overload: &&Overload| {
        overload.1 == form
            && overload.2.len() == arguments.len()
            && overload
                .2
                .iter()
                .zip(arguments)
                .all(|(wanted, given)| accepts(wanted, given))
    };
    OVERLOADS
        .iter()
        .filter(is_known)
        .filter(fits)
        .map(|overload| overload.3.clone())
        .reduce(|one, two| if one == two { one } else { Type::Dyn })
        .ok_or_else(|| mismatch(name, is_member, arguments))
}

fn accepts(wanted: &Type, given: &Type) -> bool {
    wanted.join(given).is_some()
}

fn mismatch(name: &str, is_member: bool, arguments: &[Type]) -> String {
    let mut names: Vec<String> = arguments.iter().map(Type::name).collect();
    let receiver = if is_member && !names.is_empty() {
        format!("{}.", names.remove(0))
    } else {
        String::new()
    };
    format!(
        "found no matching overload for '{name}' applied to '{receiver}({})'",
        names.join(", ")
    )
}

/// The result for a function that accepts any type.
enum Generic {
    /// The call is valid and returns this type.
    Fits(Type),
    /// The function does not accept these arguments.
    Misfits,
    /// The function is not generic.
    Unknown,
}

fn generic(name: &str, form: CallStyle, arguments: &[Type]) -> Generic {
    let found = match (name, form, arguments) {
        ("_==_" | "_!=_", Global, [left, right]) => left.join(right).map(|_| Type::Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", Global, [left, right]) => {
            let is_ordered = |wanted: &Type| accepts(wanted, left) && accepts(wanted, right);
            ORDERED.iter().any(is_ordered).then_some(Type::Bool)
        }
        ("@in", Global, [element, container]) => {
            let holds = match container {
                Type::Dyn => true,
                Type::List(inner) | Type::Map(inner, _) => inner.join(element).is_some(),
                _ => false,
            };
            holds.then_some(Type::Bool)
        }
        ("_[_]", Global, [Type::Dyn, _]) | ("dyn", Global, [_]) => Some(Type::Dyn),
        ("_[_]", Global, [Type::List(element), index]) => {
            accepts(&Type::Int, index).then(|| (**element).clone())
        }
        ("_[_]", Global, [Type::Map(key, value), index]) => key.join(index).map(|_| (**value).clone()),
        ("_+_", Global, [left @ Type::List(_), right] | [left, right @ Type::List(_)]) => left.join(right),
        ("size", _, [Type::List(_) | Type::Map(..) | Type::Dyn]) | ("semver_compare", Global, [_, _]) => {
            Some(Type::Int)
        }
        ("type", Global, [_]) => Some(Type::Kind),
        (part, Member, [receiver, zone @ ..]) if PARTS.contains(&part) => {
            let is_zone = match zone {
                [] => true,
                [zone] => accepts(&Type::String, zone),
                _ => false,
            };
            let is_span = zone.is_empty() && SPAN_PARTS.contains(&part) && *receiver == Type::Duration;
            (is_span || is_zone && accepts(&Type::Timestamp, receiver)).then_some(Type::Int)
        }
        ("_[_]" | "semver_compare" | "type" | "dyn", ..) => None,
        (part, ..) if PARTS.contains(&part) => None,
        _ => return Generic::Unknown,
    };
    found.map_or(Generic::Misfits, Generic::Fits)
}
