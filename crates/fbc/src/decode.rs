//! Decodes JSON text into typed values, by the rules on which existing catalogs rely.
//!
//! Keys match without regard to letter case. The last of equal keys counts, `null` leaves a field empty, unknown keys
//! are skipped. A value of the wrong type is a [`ShapeError`] that names the field.

pub(crate) mod fold;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use fold::fold;

/// A value that does not have the type its field needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if .path.is_empty() { String::new() } else { format!("`{}` ", .path) })]
pub struct ShapeError {
    /// The field, from the root of the decoded text: `entries[2].skips`. Empty for the root itself.
    pub path: String,
    /// The fault, as text after the name of the field: "must be a list, not a string".
    pub problem: String,
}

impl ShapeError {
    fn mismatch(expected: &str, raw: &str) -> Self {
        let kind = kind(raw);
        // In YAML, an unquoted word such as `no` becomes a boolean.
        let advice = if expected == "a string" && kind == "a boolean" {
            Advice::Quote
        } else {
            Advice::None
        };
        Self {
            path: String::new(),
            problem: format!("must be {expected}, not {kind}{advice}"),
        }
    }

    /// An error about the root of the decoded text.
    pub fn new(problem: impl Into<String>) -> Self {
        Self {
            path: String::new(),
            problem: problem.into(),
        }
    }

    /// The same error with a path relative to the object with the field `name`.
    #[must_use]
    pub fn within(mut self, name: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{name}{separator}{}", self.path);
        self
    }

    fn at(mut self, index: usize) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("[{index}]{separator}{}", self.path);
        self
    }
}

/// Advice for a value that should have been a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// No advice.
    None,
    /// The value is an unquoted word or number of YAML, such as `no` or `1.0`.
    Quote,
}

impl fmt::Display for Advice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Quote => formatter
                .write_str(" (YAML reads words like yes, no, on, off, y and n as booleans: quote them)"),
        }
    }
}

/// The kind of JSON value that `raw` is, with its article.
pub(crate) fn kind(raw: &str) -> &'static str {
    match raw.trim_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
        None => "nothing",
    }
}

/// A list that is absent or present: when rendered, an absent list is `null` and an empty one `[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(Option<Vec<T>>);

impl<T> List<T> {
    /// Whether the list is present, even if empty.
    pub fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Gives back the room that was kept for further elements.
    pub(crate) fn shrink_to_fit(&mut self) {
        if let Some(elements) = &mut self.0 {
            elements.shrink_to_fit();
        }
    }

    /// The elements.
    pub fn into_vec(self) -> Vec<T> {
        self.0.unwrap_or_default()
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(elements: Vec<T>) -> Self {
        Self(Some(elements))
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(Some(elements.into_iter().collect()))
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A type that can be read from JSON text.
pub trait Decode: Sized + Default {
    /// Reads `raw`, the text of one JSON value.
    ///
    /// # Errors
    /// When it does not have the type's shape.
    fn decode(raw: &str) -> Result<Self, ShapeError>;
}

/// Reads one value; `null` is the default.
///
/// # Errors
/// When the text is not JSON of the type's shape.
pub fn decode<T: Decode>(raw: &str) -> Result<T, ShapeError> {
    let raw = raw.trim();
    if raw == "null" {
        Ok(T::default())
    } else {
        T::decode(raw)
    }
}

impl Decode for String {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        if !raw.starts_with('"') {
            return Err(ShapeError::mismatch("a string", raw));
        }
        serde_json::from_str(raw).map_err(|error| ShapeError::new(format!("is not a valid string: {error}")))
    }
}

impl Decode for bool {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        match raw {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(ShapeError::mismatch("a boolean", raw)),
        }
    }
}

/// JSON text as written.
#[derive(Debug, Clone, Default)]
pub struct RawText(pub Box<str>);

impl Decode for RawText {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        Ok(Self(raw.into()))
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        T::decode(raw).map(Some)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        elements(raw)?
            .into_iter()
            .enumerate()
            .map(|(index, element)| decode(element).map_err(|error| error.at(index)))
            .collect()
    }
}

impl<T: Decode> Decode for List<T> {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        Vec::decode(raw).map(Self::from)
    }
}

impl<T: Decode, S: std::hash::BuildHasher + Default> Decode for HashMap<String, T, S> {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let entry = |(key, value): (Cow<'_, str>, &RawValue)| match decode(value.get()) {
            Ok(value) => Ok((key.into_owned(), value)),
            Err(error) => Err(error.within(&key)),
        };
        read_members(raw)?.0.into_iter().map(entry).collect()
    }
}

fn read_members(raw: &str) -> Result<Members<'_>, ShapeError> {
    if !raw.starts_with('{') {
        return Err(ShapeError::mismatch("an object", raw));
    }
    serde_json::from_str(raw).map_err(|error| ShapeError::new(error.to_string()))
}

/// The members of the object `raw` with their keys as written.
///
/// # Errors
/// When `raw` is not an object.
pub fn spelled(raw: &str) -> Result<Vec<(Cow<'_, str>, &str)>, ShapeError> {
    let members = read_members(raw)?.0.into_iter();
    Ok(members.map(|(key, value)| (key, value.get())).collect())
}

/// The elements of the list `raw`.
///
/// # Errors
/// When `raw` is not a list.
pub fn elements(raw: &str) -> Result<Vec<&str>, ShapeError> {
    if !raw.starts_with('[') {
        return Err(ShapeError::mismatch("a list", raw));
    }
    let elements: Elements<'_> =
        serde_json::from_str(raw).map_err(|error| ShapeError::new(error.to_string()))?;
    Ok(elements.0.into_iter().map(RawValue::get).collect())
}

/// Calls `field` for every member of the object `raw`, in order, with its folded key.
///
/// # Errors
/// When `raw` is not an object, and the errors of `field` with the name of the member.
pub fn members(
    raw: &str,
    mut field: impl FnMut(&str, &str) -> Result<(), ShapeError>,
) -> Result<(), ShapeError> {
    let members = read_members(raw)?;
    members
        .0
        .into_iter()
        .try_for_each(|(key, value)| field(&fold(&key), value.get()).map_err(|error| error.within(&key)))
}

/// Implements `Decode` for a structure: each field with its key in lower case.
#[macro_export]
macro_rules! decode_object {
    ($type:ty { $($key:literal => $field:ident),+ $(,)? }) => {
        impl $crate::decode::Decode for $type {
            fn decode(raw: &str) -> Result<Self, $crate::decode::ShapeError> {
                let mut object = Self::default();
                $crate::decode::members(raw, |key, value| {
                    match key {
                        $($key => object.$field = $crate::decode::decode(value)?,)+
                        _ => {}
                    }
                    Ok(())
                })?;
                Ok(object)
            }
        }
    };
}
pub(crate) use decode_object;

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A key, borrowed if it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}

struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;

        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Elements<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = sequence.next_element()? {
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }

        deserializer.deserialize_seq(ElementsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::{List, decode};
    use crate::{Channel, ChannelEntry, ShapeError};

    fn check(text: &str, expected: Result<Channel, (&str, &str)>) {
        let expected = expected.map_err(|(path, problem)| ShapeError {
            path: path.to_owned(),
            problem: problem.to_owned(),
        });
        assert_eq!(decode::<Channel>(text), expected, "{text}");
    }

    #[test]
    fn keys_match_in_any_case_and_the_last_one_counts() {
        let channel = Channel {
            name: "b".to_owned(),
            package: "p".to_owned(),
            ..Channel::default()
        };
        check(
            r#"{"Name":"a","NAME":"b","package":"p","other":{"x":[1]}}"#,
            Ok(channel),
        );
    }

    #[test]
    fn null_leaves_a_field_empty() {
        check(r#"{"name":null,"entries":null}"#, Ok(Channel::default()));
        check(
            r#"{"entries":[]}"#,
            Ok(Channel {
                entries: Vec::new().into(),
                ..Channel::default()
            }),
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_names_its_field() {
        check(
            r#"{"entries":{}}"#,
            Err(("entries", "must be a list, not an object")),
        );
        check(
            r#"{"entries":[{"name":"a"},{"name":"b","skips":"a"}]}"#,
            Err(("entries[1].skips", "must be a list, not a string")),
        );
        check("[]", Err(("", "must be an object, not a list")));
        check(
            r#"{"entries":[{"name":1}]}"#,
            Err(("entries[0].name", "must be a string, not a number")),
        );
    }

    #[test]
    fn where_a_word_of_yaml_stands_for_a_text_that_is_said() {
        let hint = "must be a string, not a boolean (YAML reads words like yes, no, on, off, y and n as booleans: quote them)";
        check(r#"{"name":true}"#, Err(("name", hint)));
        check(
            r#"{"entries":[{"name":"a","skips":[false]}]}"#,
            Err(("entries[0].skips[0]", hint)),
        );
    }

    #[test]
    fn a_list_remembers_whether_it_was_given() {
        assert!(!List::<ChannelEntry>::default().is_given());
        assert!(List::<ChannelEntry>::from(Vec::new()).is_given());
    }
}
