//! Dates of HTTP headers, in whole seconds.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const PREFERRED: &str = "%a, %d %b %Y %H:%M:%S GMT";
/// The preferred form and the two obsolete ones that a server still has to read.
const ACCEPTED: [&str; 3] = [PREFERRED, "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// The date as a header carries it.
pub(crate) fn format(time: Timestamp) -> String {
    time.strftime(PREFERRED).to_string()
}

/// The second that a header names; nothing when it is no date.
pub(crate) fn parse(text: &str) -> Option<i64> {
    ACCEPTED.iter().find_map(|form| {
        let civil = DateTime::strptime(form, text).ok()?;
        Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_a_date_name_the_same_second() {
        let time: Timestamp = "1994-11-06T08:49:37.9Z".parse().unwrap();
        assert_eq!(format(time), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text), Some(784_111_777), "{text}");
        }
        for text in [
            "",
            "garbage",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
