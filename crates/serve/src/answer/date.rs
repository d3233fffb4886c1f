//! Dates of HTTP headers, in whole seconds.

use std::time::{Duration, UNIX_EPOCH};

/// The last second that an HTTP date can name.
const LAST_SECOND: u64 = 253_402_300_799;

/// The HTTP date of a second since 1970, moved into the years 1970 to 9999 that HTTP dates have.
pub(crate) fn format(second: i64) -> String {
    let second = u64::try_from(second).unwrap_or(0).min(LAST_SECOND);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// The seconds of a header; `None` if the text is not a date.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_the_years_of_http_dates_are_moved_to_the_nearest() {
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(i64::MIN), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse("Sun, 31 Feb 1994 08:49:37 GMT"), None);
    }
}
