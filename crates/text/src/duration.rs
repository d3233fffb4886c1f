//! Durations in the grammar of Go (`1h30m`, `1.5s`), with the errors of its parser.

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds that a text stands for.
///
/// # Errors
/// The message of Go's parser where the text is no duration, or one of more than 292 years.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |one| one.is_ascii_digit() || one == '.');
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let (name, after) = split(after, |one| one != '.' && !one.is_ascii_digit());
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, unit)) = UNITS.iter().find(|(known, _)| *known == name) else {
            return Err(format!("time: unknown unit {name:?} in duration {text:?}"));
        };
        let part = amount(whole, fraction, *unit).ok_or_else(invalid)?;
        nanos = nanos.saturating_add(part);
        rest = after;
    }
    i64::try_from(if is_negative { -nanos } else { nanos }).map_err(|_| invalid())
}

fn split(text: &str, is_in: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|one| !is_in(one)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The nanoseconds in `whole.fraction` units; what is less than one is left out.
fn amount(whole: &str, fraction: &str, unit: i128) -> Option<i128> {
    let digits = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<i128>().ok()
        }
    };
    // 18 digits after the point are more than a nanosecond of an hour needs.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        for (text, seconds) in [
            ("0", 0),
            ("10m", 600),
            ("1h30m", 5_400),
            ("1.5h", 5_400),
            (".5m", 30),
            ("1.m", 60),
            ("-2s", -2),
            ("+2s", 2),
            ("1000ms", 1),
        ] {
            assert_eq!(parse(text), Ok(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(parse("1µs"), Ok(1_000));
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, error) in [
            ("", "time: invalid duration \"\""),
            ("soon", "time: invalid duration \"soon\""),
            (".", "time: invalid duration \".\""),
            ("-", "time: invalid duration \"-\""),
            ("10", "time: missing unit in duration \"10\""),
            ("1h5", "time: missing unit in duration \"1h5\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 h", "time: unknown unit \" h\" in duration \"1 h\""),
            (".s", "time: invalid duration \".s\""),
            ("1.2.3s", "time: invalid duration \"1.2.3s\""),
            ("9999999h", "time: invalid duration \"9999999h\""),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
