//! Values. Long ones are shared, so that copies are cheap.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::time;

/// A value of an expression.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// A number of double precision; all numbers out of JSON are of this kind.
    Double(f64),
    /// A text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<[Self]>),
    /// A map.
    Map(Arc<BTreeMap<Key, Self>>),
    /// A point in time: nanoseconds since 1970.
    Timestamp(i128),
    /// A span of time: nanoseconds.
    Duration(i64),
    /// A type.
    Type(&'static str),
    /// A value that has not been read yet. Only maps hold such values.
    Lazy(Arc<LazyValue>),
}

/// The JSON text of a value, read on first use.
#[derive(Debug)]
pub struct LazyValue {
    text: Box<str>,
    value: OnceLock<Value>,
}

/// The key of an entry of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// A number, signed or not.
    Number(i128),
    /// A text.
    String(Arc<str>),
}

impl Value {
    /// The value of the variable `properties`: a list of maps with the keys `type` and `value`, of
    /// types and the JSON texts of values. A value that is not JSON is `null`.
    pub fn properties<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (kind_key, value_key) = (Key::String("type".into()), Key::String("value".into()));
        let properties = properties.into_iter().map(|(kind, value)| {
            let value = Self::Lazy(Arc::new(LazyValue {
                text: value.into(),
                value: OnceLock::new(),
            }));
            let kind = Self::String(kind.into());
            Self::Map(Arc::new(BTreeMap::from([
                (kind_key.clone(), kind),
                (value_key.clone(), value),
            ])))
        });
        Self::List(properties.collect())
    }

    /// The value of a JSON text. Its numbers are doubles, as those of properties.
    ///
    /// # Errors
    /// It is not JSON, or nested too deep.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The value itself, parsed if it was not yet.
    pub(super) fn read(&self) -> &Self {
        match self {
            Self::Lazy(lazy) => lazy
                .value
                .get_or_init(|| serde_json::from_str(&lazy.text).unwrap_or(Self::Null)),
            read => read,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Lazy(_) => self.read().type_name(),
        }
    }

    /// The value as a map key. A double is one if it is a whole number.
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Int(number) => Some(Key::Number((*number).into())),
            Self::Uint(number) => Some(Key::Number((*number).into())),
            Self::Double(number) => whole(*number).map(Key::Number),
            Self::String(text) => Some(Key::String(Arc::clone(text))),
            _ => None,
        }
    }

    /// The order of numbers of any kind, and of two values of the same ordered kind.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Some(one.cmp(two)),
            (Self::String(one), Self::String(two)) => Some(one.cmp(two)),
            (Self::Bytes(one), Self::Bytes(two)) => Some(one.cmp(two)),
            (Self::Timestamp(one), Self::Timestamp(two)) => Some(one.cmp(two)),
            (Self::Duration(one), Self::Duration(two)) => Some(one.cmp(two)),
            (Self::Double(one), Self::Double(two)) => one.partial_cmp(two),
            (Self::Double(one), two) => compare_to_whole(*one, two.number()?),
            (one, Self::Double(two)) => compare_to_whole(*two, one.number()?).map(Ordering::reverse),
            (one, two) => Some(one.number()?.cmp(&two.number()?)),
        }
    }

    fn number(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some((*number).into()),
            Self::Uint(number) => Some((*number).into()),
            _ => None,
        }
    }

    /// The value as the text that Go prints for it; texts and numbers only.
    pub(super) fn plain_text(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Uint(number) => Some(number.to_string()),
            Self::Double(number) => Some(double_text(*number, 21)),
            Self::String(text) => Some(text.to_string()),
            Self::Timestamp(at) => Some(time::timestamp_text(*at)),
            Self::Duration(span) => Some(time::duration_text(*span)),
            _ => None,
        }
    }
}

impl Key {
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => match i64::try_from(*number) {
                Ok(number) => Value::Int(number),
                Err(_) => Value::Uint(u64::try_from(*number).unwrap_or(u64::MAX)),
            },
            Self::String(text) => Value::String(Arc::clone(text)),
        }
    }
}

/// The number from which doubles cannot represent all whole numbers.
const EXACT: f64 = 18_446_744_073_709_551_616.0;

/// A double that is a whole number within the range of the integer types.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
fn whole(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i128)
}

/// The order of a double against a whole number, without rounding the latter.
fn compare_to_whole(double: f64, whole_number: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() > EXACT {
        return Some(if double > 0.0 {
            Ordering::Greater
        } else {
            Ordering::Less
        });
    }
    let floor = whole(double.floor())?;
    Some(floor.cmp(&whole_number).then(if double.fract() == 0.0 {
        Ordering::Equal
    } else {
        Ordering::Greater
    }))
}

/// A double as Go prints it: shortest, with an exponent below -4 and from `least` on.
pub(super) fn double_text(number: f64, least: i32) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && (exponent < -4 || exponent >= least) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    } else {
        format!("{number}")
    }
}

/// Reads JSON. The depth is bounded by the reader of the text.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }

            #[expect(clippy::cast_precision_loss, reason = "numbers of properties are doubles")]
            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Double(number as f64))
            }

            #[expect(clippy::cast_precision_loss, reason = "numbers of properties are doubles")]
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Double(number as f64))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Value::Double(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::String(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = sequence.next_element()? {
                    elements.push(element);
                }
                Ok(Value::List(elements.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<std::borrow::Cow<'de, str>, Value>()? {
                    entries.insert(Key::String(key.into()), value);
                }
                Ok(Value::Map(Arc::new(entries)))
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}
