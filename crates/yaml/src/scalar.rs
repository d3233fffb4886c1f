//! The meaning of scalars: the YAML 1.1 rules of Kubernetes tooling.

use std::borrow::Cow;

use crate::error::ErrorKind;
use crate::timestamp::is_timestamp;

/// The meaning of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Only for numbers above the range of [`Scalar::Int`].
    Uint(u64),
    Float(f64),
    Text,
    /// Text that looks like a point in time; read as text, quoted when written.
    Timestamp,
}

impl Scalar {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Uint(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text => "!!str",
            Self::Timestamp => "!!timestamp",
        }
    }
}

/// A tag that changes the meaning of a scalar. With any other tag it is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
}

impl Tag {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "!!bool",
            Self::Int => "!!int",
            Self::Float => "!!float",
            Self::Null => "!!null",
            Self::Timestamp => "!!timestamp",
        }
    }
}

fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// Splits `0x`, `0o`, `0b` or a bare leading `0` off: the base and the digits.
fn base(unsigned: &str) -> (u32, &str) {
    let bytes = unsigned.as_bytes();
    if unsigned.len() < 2 || bytes.first() != Some(&b'0') {
        return (10, unsigned);
    }
    let after = |length: usize| unsigned.get(length..).unwrap_or_default();
    match bytes.get(1) {
        Some(b'x' | b'X') => (16, after(2)),
        Some(b'o' | b'O') => (8, after(2)),
        Some(b'b' | b'B') => (2, after(2)),
        _ => (8, after(1)),
    }
}

fn digits(text: &str, base: u32) -> Option<u64> {
    // The library would accept one more sign here.
    if text.starts_with(['+', '-']) {
        None
    } else {
        u64::from_str_radix(text, base).ok()
    }
}

fn signed(negative: bool, magnitude: u64) -> Option<Scalar> {
    if negative {
        0_i64.checked_sub_unsigned(magnitude).map(Scalar::Int)
    } else {
        i64::try_from(magnitude).ok().map(Scalar::Int)
    }
}

fn integer(plain: &str) -> Option<Scalar> {
    let (sign, unsigned) = match plain.strip_prefix('-') {
        Some(rest) => (Some(true), rest),
        None => match plain.strip_prefix('+') {
            Some(rest) => (Some(false), rest),
            None => (None, plain),
        },
    };
    let (radix, text) = base(unsigned);
    if let Some(magnitude) = digits(text, radix) {
        let value = signed(sign == Some(true), magnitude);
        if value.is_some() || sign.is_some() {
            return value;
        }
        return Some(Scalar::Uint(magnitude));
    }
    None
}

/// Binary digits with a sign after the prefix: `0b-1`.
fn odd_binary(plain: &str) -> Option<Scalar> {
    let rest = plain.strip_prefix("0b")?;
    let (negative, text) = match rest.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, rest.strip_prefix('+')?),
    };
    signed(negative, digits(text, 2)?)
}

/// Whether a number consists of digits, a point and an exponent only, so that `inf` is excluded.
fn looks_like_float(plain: &str) -> bool {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let skip = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let after_whole = skip(unsigned);
    let has_whole = after_whole < unsigned.len();
    let mut rest = unsigned.get(unsigned.len() - after_whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.') {
        let after = skip(fraction);
        if !has_whole && after == fraction.len() {
            return false;
        }
        rest = fraction.get(fraction.len() - after..).unwrap_or_default();
    } else if !has_whole {
        return false;
    }
    match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && skip(exponent) == 0
        }
        None => rest.is_empty(),
    }
}

fn float(text: &str) -> Option<Scalar> {
    let value: f64 = looks_like_float(text).then(|| text.parse().ok()).flatten()?;
    value.is_finite().then_some(Scalar::Float(value))
}

/// A number that begins with its point, without the underscores between its digits; elsewhere they are wrong.
fn without_separators(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let between_digits = bytes.windows(3).filter(|window| match window {
        [before, b'_', after] => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => false,
    });
    let all = bytes.split(|byte| *byte == b'_').count().saturating_sub(1);
    (between_digits.count() == all).then(|| Cow::Owned(text.replace('_', "")))
}

/// The meaning of an unquoted scalar. Any tag except that of timestamps excludes timestamps.
fn meaning(text: &str, timestamps: bool) -> Scalar {
    let Some(first) = text.bytes().next() else {
        return Scalar::Null;
    };
    let found = match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text),
        b'.' => word(text).or_else(|| float(&without_separators(text)?)),
        b'0'..=b'9' | b'+' | b'-' => word(text).or_else(|| {
            if timestamps && is_timestamp(text) {
                return Some(Scalar::Timestamp);
            }
            let without_underscores;
            let plain = if text.contains('_') {
                without_underscores = text.replace('_', "");
                without_underscores.as_str()
            } else {
                text
            };
            integer(plain)
                .or_else(|| float(plain))
                .or_else(|| odd_binary(plain))
        }),
        _ => None,
    };
    found.unwrap_or(Scalar::Text)
}

/// The meaning of a scalar without tag and quotes.
pub(crate) fn resolve(text: &str) -> Scalar {
    meaning(text, true)
}

/// The meaning of a scalar that must have the type of a tag.
pub(crate) fn resolve_tagged(text: &str, tag: Tag) -> Result<Scalar, ErrorKind> {
    let found = meaning(text, tag == Tag::Timestamp);
    #[expect(clippy::cast_precision_loss, reason = "the tag asks for it")]
    let accepted = match (tag, &found) {
        (Tag::Bool, Scalar::Bool(_))
        | (Tag::Int, Scalar::Int(_) | Scalar::Uint(_))
        | (Tag::Float, Scalar::Float(_))
        | (Tag::Null, Scalar::Null)
        | (Tag::Timestamp, Scalar::Timestamp) => found,
        (Tag::Float, Scalar::Int(value)) => Scalar::Float(*value as f64),
        _ => {
            return Err(ErrorKind::Tag {
                found: found.name(),
                text: text.chars().take(40).collect(),
                wanted: tag.name(),
            });
        }
    };
    Ok(accepted)
}
