//! Quantities of Kubernetes (`10m`, `1.5Gi`) in the form in which the API server writes them.

/// The suffixes of powers of 1,000 above one, in their order.
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
/// The suffixes of powers of 1,000 below one, in their order.
const FRACTION: [&str; 4] = ["n", "u", "m", ""];
/// The suffixes of powers of 1,024, in their order.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Number of smallest quantities in one.
const NANO: i128 = 1_000_000_000;

/// The quantity in its canonical form: no fraction, the largest suffix that fits, and the kind of suffix (powers of
/// 1,000 or of 1,024) that the text has. `None` where the text is no quantity, or one with more digits than can be
/// counted.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|one: char| !one.is_ascii_digit() && one != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at_checked(end)?;
    let power = |list: &[&str]| {
        list.iter()
            .position(|one| *one == suffix)
            .and_then(|at| u32::try_from(at).ok())
    };
    if let Some(power) = power(&BINARY).filter(|power| *power > 0) {
        return binary(sign, nanos(number, 1024_i128.checked_pow(power)?, 1)?);
    }
    if let Some(power) = power(&DECIMAL) {
        return Some(decimal(sign, nanos(number, 1000_i128.checked_pow(power)?, 1)?));
    }
    if let Some(power) = power(&FRACTION) {
        return Some(decimal(
            sign,
            nanos(number, 1, 1000_i128.checked_pow(3 - power)?)?,
        ));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let (times, over) = if exponent < 0 { (1, scale) } else { (scale, 1) };
    Some(exponential(sign, nanos(number, times, over)?))
}

/// The number of nanos in `number * times / over`, rounded up.
fn nanos(number: &str, times: i128, over: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || fraction.contains('.') {
        return None;
    }
    let value: i128 = digits.parse().ok()?;
    let scale = 10_i128
        .checked_pow(u32::try_from(fraction.len()).ok()?)?
        .checked_mul(over)?;
    let value = value.checked_mul(times)?.checked_mul(NANO)?;
    Some(value / scale + i128::from(value % scale > 0))
}

/// A number without the factors `base`, and how many those were.
fn reduced(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut power = 0;
    while number != 0 && number % base == 0 && power < most {
        number /= base;
        power += 1;
    }
    (number, power)
}

fn binary(sign: &str, nanos: i128) -> Option<String> {
    if nanos < 1024 * NANO {
        return Some(decimal(sign, nanos));
    }
    let whole = nanos / NANO + i128::from(nanos % NANO > 0);
    let (number, power) = reduced(whole, 1024, BINARY.len() - 1);
    Some(format!("{sign}{number}{}", BINARY.get(power)?))
}

fn decimal(sign: &str, nanos: i128) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let (number, power) = reduced(nanos, 1000, FRACTION.len() + DECIMAL.len() - 2);
    let mut suffixes = FRACTION.iter().chain(DECIMAL.iter().skip(1));
    format!("{sign}{number}{}", suffixes.nth(power).unwrap_or(&""))
}

fn exponential(sign: &str, nanos: i128) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let (number, power) = reduced(nanos, 1000, usize::MAX);
    let exponent = power.saturating_mul(3);
    match exponent {
        9 => format!("{sign}{number}"),
        _ if exponent < 9 => format!("{sign}{number}e-{}", 9 - exponent),
        _ => format!("{sign}{number}e{}", exponent - 9),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_have_one_form() {
        for (text, expected) in [
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("2048Ki", "2Mi"),
            ("1025Mi", "1025Mi"),
            ("0.5Ki", "512"),
            ("1000M", "1G"),
            ("100M", "100M"),
            ("2000", "2k"),
            ("12345", "12345"),
            ("0.1", "100m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("1e3", "1e3"),
            ("1E-3", "1e-3"),
            ("10e2", "1e3"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-2000", "-2k"),
            ("8Ei", "8Ei"),
            (" 5 ", "5"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in ["", "Mi", "1.2.3", "1KiB", "one", "1e", "-", "."] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
