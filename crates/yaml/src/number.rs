//! Floating point numbers in the two spellings of Kubernetes tooling.

use serde_json::{Number, Value};

/// The decimal digits of a finite number: the shortest that read back as the same number.
struct Digits {
    negative: bool,
    shown: String,
    /// The position of the decimal point, counted from the first digit: 1 means `d.ddd`.
    point: i32,
}

fn split(scientific: &str) -> Digits {
    let (negative, unsigned) = match scientific.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, scientific),
    };
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    Digits {
        negative,
        shown: digits,
        point: exponent + 1,
    }
}

impl Digits {
    fn exponent_form(&self) -> String {
        let mut text = String::new();
        if self.negative {
            text.push('-');
        }
        let mut digits = self.shown.chars();
        text.extend(digits.next());
        let rest = digits.as_str();
        if !rest.is_empty() {
            text.push('.');
            text.push_str(rest);
        }
        let exponent = self.point - 1;
        text.push('e');
        text.push(if exponent < 0 { '-' } else { '+' });
        let magnitude = exponent.unsigned_abs();
        if magnitude < 10 {
            text.push('0');
        }
        text.push_str(&magnitude.to_string());
        text
    }

    fn decimal_form(&self) -> String {
        let mut text = String::new();
        if self.negative {
            text.push('-');
        }
        if self.point <= 0 {
            text.push_str("0.");
            text.extend((self.point..0).map(|_| '0'));
            text.push_str(&self.shown);
            return text;
        }
        let whole = usize::try_from(self.point).unwrap_or(0);
        let mut written = 0;
        for digit in self.shown.chars() {
            if written == whole {
                text.push('.');
            }
            text.push(digit);
            written += 1;
        }
        while written < whole {
            text.push('0');
            written += 1;
        }
        text
    }
}

/// A number as JSON text in the spelling of Kubernetes tooling: `1e+21`, `1e-7`, `1000`, `0.1`.
///
/// Infinities and not-a-number have no JSON text; they come back as `null`.
pub fn json_float(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    let magnitude = value.abs();
    let digits = split(&format!("{value:e}"));
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = digits.exponent_form();
        // JSON writes e-7, other tools e-07.
        match text
            .strip_suffix(|last: char| last.is_ascii_digit())
            .and_then(|head| head.strip_suffix("e-0"))
        {
            Some(head) => format!("{head}e-{}", text.chars().next_back().unwrap_or('0')),
            None => text,
        }
    } else {
        digits.decimal_form()
    }
}

fn general_form(digits: &Digits) -> String {
    let exponent = digits.point - 1;
    if (-4..6).contains(&exponent) {
        digits.decimal_form()
    } else {
        digits.exponent_form()
    }
}

/// A number as YAML text: the shortest digits, in exponent form from 1e+06 on and below 0.0001.
pub fn yaml_float(value: f64) -> String {
    general_form(&split(&format!("{value:e}")))
}

/// A number as the key of a mapping: single precision, as the reference does it.
pub(crate) fn key_float(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "keys are written in single precision"
    )]
    let single = value as f32;
    if single.is_infinite() {
        return if single > 0.0 {
            ".inf".to_owned()
        } else {
            "-.inf".to_owned()
        };
    }
    general_form(&split(&format!("{single:e}")))
}

/// A floating point number as a JSON value: an integer if its text is an integer of 64 bits.
pub(crate) fn float_value(value: f64) -> Option<Value> {
    if value.fract() == 0.0 && !(value == 0.0 && value.is_sign_negative()) {
        let text = json_float(value);
        if let Ok(integer) = text.parse::<u64>() {
            return Some(Value::from(integer));
        }
        if let Ok(integer) = text.parse::<i64>() {
            return Some(Value::from(integer));
        }
    }
    Number::from_f64(value).map(Value::Number)
}
