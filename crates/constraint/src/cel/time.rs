//! Timestamps and durations, without a clock or a time zone database.

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// Seconds of a day.
const DAY: i64 = 86_400;
/// The first and the last second that a timestamp can name: the years 1 to 9999.
const YEARS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A timestamp in its range.
pub(super) fn timestamp(nanoseconds: i128) -> Option<i128> {
    let seconds = i64::try_from(nanoseconds.div_euclid(SECOND)).ok()?;
    YEARS.contains(&seconds).then_some(nanoseconds)
}

/// A calendar date and time of day.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// The month, from 1.
    pub(super) month: i64,
    /// The day, from 1.
    pub(super) day: i64,
    /// The day of the year, from 0.
    pub(super) day_of_year: i64,
    /// The day of the week, from 0 for Sunday.
    pub(super) day_of_week: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) nanosecond: i64,
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date and time of a timestamp `offset` seconds east of Greenwich.
pub(super) fn civil(nanoseconds: i128, offset: i64) -> Civil {
    let seconds = i64::try_from(nanoseconds.div_euclid(SECOND)).unwrap_or(0) + offset;
    let (day_number, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let shifted = day_number + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * from_march + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil {
        year,
        month,
        day: from_march - (153 * shifted_month + 2) / 5 + 1,
        day_of_year: day_number - days(year, 1, 1),
        day_of_week: (day_number + 4).rem_euclid(7),
        hour: second / 3600,
        minute: second / 60 % 60,
        second: second % 60,
        nanosecond: i64::try_from(nanoseconds.rem_euclid(SECOND)).unwrap_or(0),
    }
}

/// The number in the first `count` digits of a text, and the rest of the text.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((number.parse().ok()?, rest)))?
}

/// Reads a time zone: `UTC`, or hours and minutes such as `-08:00` or `02:00`; seconds east of Greenwich.
pub(super) fn zone(text: &str) -> Option<i64> {
    if matches!(text, "UTC" | "Z" | "") {
        return Some(0);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, rest) = digits(rest, 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
    (rest.is_empty() && hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Reads a timestamp by RFC 3339.
pub(super) fn parse_timestamp(text: &str) -> Option<i128> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (hour, rest) = digits(rest.strip_prefix('T')?, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, rest) = rest.split_at_checked(length)?;
            let nine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
            (!fraction.is_empty()).then_some((nine.parse::<i64>().ok()?, rest))?
        }
        None => (0, rest),
    };
    let offset = match rest {
        "Z" => 0,
        other if other.starts_with(['+', '-']) => zone(other)?,
        _ => return None,
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => 31,
    };
    let is_date = (1..=12).contains(&month) && (1..=length).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    timestamp(i128::from(seconds) * SECOND + i128::from(fraction))
}

/// A timestamp by RFC 3339, in UTC.
pub(super) fn timestamp_text(nanoseconds: i128) -> String {
    let at = civil(nanoseconds, 0);
    let fraction = format!(".{:09}", at.nanosecond);
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        at.year, at.month, at.day, at.hour, at.minute, at.second
    )
}

/// A span in seconds.
pub(super) fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let fraction = format!(".{:09}", size % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{}{fraction}s", size / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written_back() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            ("2024-02-29T23:59:59.125Z", "2024-02-29T23:59:59.125Z"),
            ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(
                parse_timestamp(text).map(timestamp_text).as_deref(),
                Some(expected),
                "{text}"
            );
        }
        for text in [
            "2023-02-29T00:00:00Z",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "x",
            "9999-12-31T23:59:59-01:00",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn a_timestamp_has_the_parts_of_its_date() {
        // A Thursday.
        let at = civil(parse_timestamp("2024-02-29T12:34:56.5Z").unwrap(), 3600);
        let parts = (
            at.year,
            at.month,
            at.day,
            at.day_of_year,
            at.day_of_week,
            at.hour,
            at.minute,
            at.second,
        );
        assert_eq!(parts, (2024, 2, 29, 59, 4, 13, 34, 56));
        assert_eq!(at.nanosecond, 500_000_000);
    }

    #[test]
    fn durations_are_read_and_written_back() {
        for (text, expected) in [
            ("1h30m", "5400s"),
            ("-1.5s", "-1.5s"),
            ("100ms", "0.1s"),
            ("0", "0s"),
            ("1µs", "0.000001s"),
        ] {
            assert_eq!(
                olm_text::duration::parse(text).map(duration_text).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
    }
}
