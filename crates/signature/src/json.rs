//! The form of JSON documents that say whom to trust. Readers that are derived for structs accept a list for an object,
//! and pass over names that they do not know; either could make a document ask for less than it says.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Any value.
    Any,
    /// A list of values of this form.
    List(&'static Self),
    /// An object with values of this form, under any names.
    Map(&'static Self),
    /// An object with no other fields than these; each may be missing or null.
    Object(&'static [(&'static str, Self)]),
}

/// The place of a fault of the whole document.
pub const WHOLE_DOCUMENT: &str = "it";

/// The fault of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    Syntax(String),
    /// An object has a name twice: of two lists, the one that counts may be the lax one.
    #[error("{0}")]
    Twice(String),
    /// A value is of another kind.
    #[error("{place} is {found}, not {wanted}")]
    Kind {
        /// The value: its path in backquotes, or [`WHOLE_DOCUMENT`].
        place: String,
        /// What it is.
        found: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// An object has a field that is not known.
    #[error("unknown field `{name}`{place}")]
    Unknown {
        /// The name.
        name: String,
        /// ` in ` and the path of the object; empty for the whole document.
        place: String,
    },
}

/// Reads a document of this form, in which no object has a name twice. An unknown field comes before all faults that
/// it may cause, such as a missing one.
///
/// # Errors
/// The fault of the text.
pub fn read_json(text: &str, shape: &Shape) -> Result<Value, JsonError> {
    let UniqueNames = serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            JsonError::Twice(error.to_string())
        } else {
            JsonError::Syntax(error.to_string())
        }
    })?;
    let value = serde_json::from_str(text).map_err(|error| JsonError::Syntax(error.to_string()))?;
    shape.check(&value, "")?;
    Ok(value)
}

/// Checks that an object has no other fields than these.
///
/// # Errors
/// The first field that is another one.
pub fn check_names(object: &Map<String, Value>, known: &[&str]) -> Result<(), JsonError> {
    match unknown(object, |name| known.contains(&name)) {
        None => Ok(()),
        Some(name) => Err(JsonError::Unknown {
            name: name.to_owned(),
            place: String::new(),
        }),
    }
}

fn unknown(object: &Map<String, Value>, is_known: impl Fn(&str) -> bool) -> Option<&str> {
    object.keys().map(String::as_str).find(|name| !is_known(name))
}

impl Shape {
    /// `path` is that of the value; empty for the document.
    fn check(&self, value: &Value, path: &str) -> Result<(), JsonError> {
        match (self, value) {
            (Self::Any, _) => Ok(()),
            (Self::List(item), Value::Array(list)) => list
                .iter()
                .enumerate()
                .try_for_each(|(index, value)| item.check(value, &format!("{path}[{index}]"))),
            (Self::Map(item), Value::Object(object)) => object
                .iter()
                .try_for_each(|(name, value)| item.check(value, &below(path, name))),
            (Self::Object(fields), Value::Object(object)) => {
                if let Some(name) = unknown(object, |name| fields.iter().any(|(known, _)| *known == name)) {
                    let place = Some(path).filter(|path| !path.is_empty());
                    return Err(JsonError::Unknown {
                        name: name.to_owned(),
                        place: place.map_or_else(String::new, |path| format!(" in `{path}`")),
                    });
                }
                fields.iter().try_for_each(|(name, shape)| {
                    match object.get(*name).filter(|value| !value.is_null()) {
                        Some(value) => shape.check(value, &below(path, name)),
                        None => Ok(()),
                    }
                })
            }
            (Self::List(_), other) => Err(kind(path, other, "a list")),
            (Self::Map(_) | Self::Object(_), other) => Err(kind(path, other, "an object")),
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn kind(path: &str, value: &Value, wanted: &'static str) -> JsonError {
    JsonError::Kind {
        place: if path.is_empty() {
            WHOLE_DOCUMENT.to_owned()
        } else {
            format!("`{path}`")
        },
        found: match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        },
        wanted,
    }
}

/// Any JSON in which no object has a name twice.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, Self)) = map.next_entry::<String, Self>()? {
            if let Some(name) = names.replace(name) {
                return Err(A::Error::custom(format!("`{name}` occurs twice in one object")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Shape = Shape::Object(&[
        ("rows", Shape::List(&Shape::Object(&[("a", Shape::Any)]))),
        ("named", Shape::Map(&Shape::List(&Shape::Any))),
    ]);

    #[test]
    fn objects_and_lists_are_not_mistaken_for_each_other_and_unknown_fields_are_named() {
        let check = |text: &str, expected: Result<(), &str>| {
            let found = read_json(text, &FORM)
                .map(drop)
                .map_err(|fault| fault.to_string());
            match expected {
                Ok(()) => assert_eq!(found, Ok(()), "{text}"),
                Err(said) => {
                    let error = found.unwrap_err();
                    assert!(error.starts_with(said), "{text}: {error}");
                }
            }
        };
        check(
            r#"{"rows": [{"a": [1]}, {}], "named": {"x": [2.5, null, -1]}}"#,
            Ok(()),
        );
        check(r#"{"rows": null}"#, Ok(()));
        check("[]", Err("it is a list, not an object"));
        check(r#"{"rows": [[1]]}"#, Err("`rows[0]` is a list, not an object"));
        check(r#"{"rows": [null]}"#, Err("`rows[0]` is null, not an object"));
        check(
            r#"{"named": {"x": {}}}"#,
            Err("`named.x` is an object, not a list"),
        );
        check(r#"{"row": []}"#, Err("unknown field `row`"));
        check(r#"{"rows": [{"b": 1}]}"#, Err("unknown field `b` in `rows[0]`"));
        check("{", Err("it is not JSON: EOF"));
        check(r#"{"a": 1, "a": 1}"#, Err("`a` occurs twice in one object"));
    }
}
