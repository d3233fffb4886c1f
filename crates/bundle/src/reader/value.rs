//! Values read as the decoders of Kubernetes read them: null is absent everywhere, an integer may have a fraction of
//! zero, and quantities have a grammar.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A key of a mapping.
    Key(String),
    /// An index of a list.
    Index(usize),
}

/// The path to a field, `spec.list[0].name`; empty for the value itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

impl Path {
    /// The steps, the outermost first.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The path of a member.
    pub(crate) fn member(&self, name: &str) -> Self {
        self.then(Step::Key(name.to_owned()))
    }

    /// The path of an element.
    pub(crate) fn element(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    fn then(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// This path inside the value at `place`.
    pub(crate) fn within(&self, place: &Self) -> Self {
        Self(place.0.iter().chain(&self.0).cloned().collect())
    }

    /// The path without its first `count` steps.
    pub(crate) fn after(&self, count: usize) -> Self {
        Self(self.0.iter().skip(count).cloned().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if at == 0 => formatter.write_str(key)?,
                Step::Key(key) => write!(formatter, ".{key}")?,
                Step::Index(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The reason why a value does not match a type.
#[derive(Debug)]
pub(crate) struct ValueError {
    /// The path.
    pub(crate) path: Path,
    /// The error.
    pub(crate) error: Error,
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.0.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        self.error.fmt(formatter)
    }
}

/// Reads a value into a type.
///
/// # Errors
/// The value does not match: the field and the fault.
pub(crate) fn read<'de, T: serde::Deserialize<'de>>(value: &'de Value) -> Result<T, ValueError> {
    read_noting(value, None)
}

/// Reads a value into a type, and adds fields that the type does not have to `unknown`.
///
/// # Errors
/// The value does not match: the field and the fault.
pub(crate) fn read_noting<'de, T: serde::Deserialize<'de>>(
    value: &'de Value,
    unknown: Option<&mut Vec<Path>>,
) -> Result<T, ValueError> {
    let notes = Notes {
        fault: RefCell::default(),
        unknown: unknown.is_some().then(RefCell::default),
    };
    let given = Given {
        value,
        place: &Location::Root,
        notes: &notes,
    };
    let read = T::deserialize(given);
    if let (Some(unknown), Some(found)) = (unknown, notes.unknown) {
        unknown.append(&mut found.into_inner());
    }
    read.map_err(|error| ValueError {
        path: notes.fault.into_inner().unwrap_or_default(),
        error,
    })
}

/// The faults and unknown fields found so far.
struct Notes {
    fault: RefCell<Option<Path>>,
    /// The unknown fields, if requested: there can be as many as the value has members.
    unknown: Option<RefCell<Vec<Path>>>,
}

impl Notes {
    /// The enclosing values report the same fault later.
    fn fault(&self, place: &Location<'_>) {
        self.fault.borrow_mut().get_or_insert_with(|| place.path());
    }
}

/// The location of a value.
enum Location<'p> {
    Root,
    Member(&'p Self, &'p str),
    Element(&'p Self, usize),
}

impl Location<'_> {
    fn path(&self) -> Path {
        let (mut steps, mut at) = (Vec::new(), self);
        loop {
            at = match at {
                Location::Root => break,
                Location::Member(around, key) => {
                    steps.push(Step::Key((*key).to_owned()));
                    around
                }
                Location::Element(around, index) => {
                    steps.push(Step::Index(*index));
                    around
                }
            };
        }
        steps.reverse();
        Path(steps)
    }
}

/// The deserializer of a value. It tracks locations itself, because a generic wrapper would be compiled again for every
/// type.
#[derive(Clone, Copy)]
struct Given<'de, 'p> {
    value: &'de Value,
    place: &'p Location<'p>,
    notes: &'p Notes,
}

/// The integer that is written with a fraction, if double precision represents it exactly.
#[expect(clippy::cast_possible_truncation, reason = "bounded, and without a fraction")]
fn whole(number: &serde_json::Number) -> Option<i64> {
    let number = number.as_f64()?;
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

impl<'de> Given<'de, '_> {
    fn wrong<T>(self, visitor: &impl Visitor<'de>) -> Result<T, Error> {
        let unexpected = match self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(_) => Unexpected::Other("a number"),
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Err(Error::invalid_type(unexpected, visitor))
    }

    fn sequence<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_seq(self.elements(&[])),
            Value::Array(elements) => visitor.visit_seq(self.elements(elements)),
            _ => self.wrong(&visitor),
        }
    }

    fn mapping<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_map(self.members(None)),
            Value::Object(members) => visitor.visit_map(self.members(Some(members.iter()))),
            _ => self.wrong(&visitor),
        }
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => self.wrong(&visitor),
        }
    }

    fn whole_number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_i64(0),
            Value::Number(number) => {
                if let Some(number) = number.as_i64() {
                    return visitor.visit_i64(number);
                }
                match whole(number) {
                    Some(number) => visitor.visit_i64(number),
                    None => self.wrong(&visitor),
                }
            }
            _ => self.wrong(&visitor),
        }
    }
}

impl<'de, 'p> Given<'de, 'p> {
    fn elements(self, elements: &'de [Value]) -> Elements<'de, 'p> {
        Elements {
            list: self,
            rest: elements.iter().enumerate(),
        }
    }

    fn members(self, rest: Option<serde_json::map::Iter<'de>>) -> Members<'de, 'p> {
        Members {
            mapping: self,
            rest,
            value: None,
        }
    }
}

struct Elements<'de, 'p> {
    list: Given<'de, 'p>,
    rest: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Elements<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.rest.next() else {
            return Ok(None);
        };
        let place = Location::Element(self.list.place, index);
        let notes = self.list.notes;
        let given = Given {
            value,
            place: &place,
            notes,
        };
        seed.deserialize(given)
            .map(Some)
            .inspect_err(|_| notes.fault(&place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Members<'de, 'p> {
    mapping: Given<'de, 'p>,
    rest: Option<serde_json::map::Iter<'de>>,
    /// The value of the last key.
    value: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        self.value = Some((key, value));
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (key, value) = self.value.take().unwrap_or(("", &Value::Null));
        let place = Location::Member(self.mapping.place, key);
        let notes = self.mapping.notes;
        let given = Given {
            value,
            place: &place,
            notes,
        };
        seed.deserialize(given).inspect_err(|_| notes.fault(&place))
    }
}

macro_rules! whole_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.whole_number(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Given<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            // A number with a fraction of zero is an integer, also for fields of type number or string.
            Value::Number(number) if number.is_f64() && whole(number).is_some() => self.whole_number(visitor),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) => self.sequence(visitor),
            Value::Object(_) => self.mapping(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => self.wrong(&visitor),
        }
    }

    whole_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name != "Quantity" {
            return visitor.visit_newtype_struct(self);
        }
        let text = match self.value {
            Value::Null => "0".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return self.wrong(&visitor),
        };
        if !is_quantity(&text) {
            let shown: String = text.chars().take(64).collect();
            return Err(Error::custom(format!(
                "{} is not a quantity, such as 500m, 2 or 128Mi",
                olm_version::quoted(&shown)
            )));
        }
        visitor.visit_newtype_struct(text.into_deserializer())
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.sequence(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.mapping(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.mapping(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(unknown) = &self.notes.unknown {
            unknown.borrow_mut().push(self.place.path());
        }
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

/// Whether a text is a quantity of Kubernetes, with optional blanks around it.
pub(crate) fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let is_digit = |one: char| one.is_ascii_digit();
    let text = text.trim();
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = rest.trim_start_matches(is_digit);
    let (mut has_digit, mut rest) = (whole.len() < rest.len(), whole);
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(is_digit);
        has_digit |= rest.len() < fraction.len();
    }
    let exponent = || {
        let exponent = rest.strip_prefix(['e', 'E'])?;
        exponent.parse::<i32>().ok()
    };
    has_digit && (SUFFIXES.contains(&rest) || exponent().is_some())
}

#[cfg(test)]
mod tests {
    use super::is_quantity;

    #[test]
    fn quantities_are_distinguished_from_other_text() {
        for good in [
            "1",
            "1.5",
            "1e3",
            "1E-3",
            "1e+3",
            "1Ki",
            "-1",
            "+1",
            ".5",
            "5.",
            " 1Gi ",
            "1m",
            "1n",
            "1u",
            "1k",
            "1E",
            "00",
            "1e1000",
            "100000000000000000000",
        ] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in [
            "",
            "lots",
            "Mi",
            ".",
            "-",
            "E",
            ".m",
            "1ki",
            "1kB",
            "1 Gi",
            "0x1",
            "1e",
            "1_000",
            "1,5",
            "1µ",
            "NaN",
            "1mm",
            "1.2.3",
            "++1",
            "1Zi",
            "1K",
            "1i",
            "1e99999999999",
        ] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
