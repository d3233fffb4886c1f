//! Values as the decoders of Kubernetes read them: null stands for nothing given, wherever it is, a whole number may be
//! written with a fraction of zero, and quantities have a grammar.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// Reads a value into a type.
///
/// # Errors
/// When it does not fit: the field, and what is wrong.
pub(crate) fn read<'de, T: serde::Deserialize<'de>>(
    value: &'de Value,
) -> Result<T, serde_path_to_error::Error<Error>> {
    serde_path_to_error::deserialize(Given(value))
}

/// A value to be read so.
#[derive(Clone, Copy)]
pub(crate) struct Given<'de>(pub(crate) &'de Value);

/// The whole number that is written as one with a fraction, of those that double precision holds to the unit.
#[expect(clippy::cast_possible_truncation, reason = "bounded, and without a fraction")]
fn whole(number: &serde_json::Number) -> Option<i64> {
    let number = number.as_f64()?;
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

impl<'de> Given<'de> {
    fn wrong<T>(self, visitor: &impl Visitor<'de>) -> Result<T, Error> {
        let unexpected = match self.0 {
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
        match self.0 {
            Value::Null => visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Self>())),
            Value::Array(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter().map(Given))),
            _ => self.wrong(&visitor),
        }
    }

    fn mapping<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_map(MapDeserializer::new(std::iter::empty::<(&str, Self)>())),
            Value::Object(members) => {
                let members = members.iter().map(|(key, value)| (key.as_str(), Given(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
            _ => self.wrong(&visitor),
        }
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => self.wrong(&visitor),
        }
    }

    fn whole_number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
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

impl<'de> IntoDeserializer<'de, Error> for Given<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! whole_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.whole_number(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Given<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            // A fraction of zero is none, for what may be a number or a text, too.
            Value::Number(number) if number.is_f64() && whole(number).is_some() => self.whole_number(visitor),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) => self.sequence(visitor),
            Value::Object(_) => self.mapping(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
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
        match self.0 {
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
        let text = match self.0 {
            Value::Null => "0".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return self.wrong(&visitor),
        };
        if !is_quantity(&text) {
            let shown: String = text.chars().take(64).collect();
            return Err(Error::custom(format!(
                "{} is no quantity, such as 500m, 2 or 128Mi",
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

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

/// Whether a text is a quantity of Kubernetes, blanks around it aside.
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
    fn quantities_are_told_from_other_texts() {
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
