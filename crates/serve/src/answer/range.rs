//! Byte ranges of a request (`Range`), limited in number. The crate `headers` is not used: it skips malformed ranges,
//! which must result in 416, and has neither `Accept` nor `Accept-Encoding`. It would replace some 20 lines about
//! entity tags.

use std::ops::Range;

/// More parts than this are not worth an answer in parts.
const MAX_PARTS: usize = 16;

/// The content of a `Range` header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// The whole body: there is no header, or one that a server may ignore.
    Whole,
    /// These ranges in the order of the request, none empty.
    Parts(Vec<Range<u64>>),
    /// No range overlaps the body.
    Unsatisfiable,
    /// The header is not a list of ranges.
    Malformed,
}

/// Reads a `Range` header for a body of `length` bytes.
pub(crate) fn parse(header: Option<&str>, length: u64) -> Requested {
    let Some(header) = header else {
        return Requested::Whole;
    };
    let Some(list) = header.strip_prefix("bytes=") else {
        return Requested::Malformed;
    };
    let mut parts = Vec::new();
    let mut asked = 0_usize;
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        asked += 1;
        let Some(range) = one(item, length) else {
            return Requested::Malformed;
        };
        if !range.is_empty() {
            parts.push(range);
        }
    }
    if parts.is_empty() {
        // An empty list requests nothing in particular, and an empty body has no ranges.
        return if asked == 0 || length == 0 {
            Requested::Whole
        } else {
            Requested::Unsatisfiable
        };
    }
    let total: u64 = parts.iter().map(|r| r.end - r.start).sum();
    if parts.len() > MAX_PARTS || total > length {
        Requested::Whole
    } else {
        Requested::Parts(parts)
    }
}

/// One range; `None` if it is malformed, an empty range if it lies beyond the end.
fn one(item: &str, length: u64) -> Option<Range<u64>> {
    let digits = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse::<u64>().ok())
            .flatten()
    };
    let (first, last) = item.split_once('-').map(|(a, b)| (a.trim(), b.trim()))?;
    if first.is_empty() {
        return Some(length.saturating_sub(digits(last)?)..length);
    }
    let start = digits(first)?;
    if last.is_empty() {
        return Some(start.min(length)..length);
    }
    let last = digits(last)?;
    if last < start {
        return None;
    }
    Some(start.min(length)..last.saturating_add(1).min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(edges: &[(u64, u64)]) -> Requested {
        Requested::Parts(edges.iter().map(|&(start, end)| start..end).collect())
    }

    #[test]
    fn ranges_are_cut_to_the_body() {
        let check =
            |header: &str, expected: Requested| assert_eq!(parse(Some(header), 100), expected, "{header}");
        assert_eq!(parse(None, 100), Requested::Whole);
        check("bytes=0-9", parts(&[(0, 10)]));
        check("bytes=90-", parts(&[(90, 100)]));
        check("bytes=-5", parts(&[(95, 100)]));
        check("bytes=-500", parts(&[(0, 100)]));
        check("bytes=10-18446744073709551615", parts(&[(10, 100)]));
        check("bytes=0-0, 50-59 ,200-300", parts(&[(0, 1), (50, 60)]));
        check("bytes=100-", Requested::Unsatisfiable);
        check("bytes=9-3", Requested::Malformed);
        check("bytes=a-b", Requested::Malformed);
        check("bytes=+1-3", Requested::Malformed);
        check("lines=1-3", Requested::Malformed);
        check("bytes=-0", Requested::Unsatisfiable);
        check("bytes=", Requested::Whole);
        check("bytes=0-99,0-99", Requested::Whole);
        check(&format!("bytes={}", vec!["1-1"; 17].join(",")), Requested::Whole);
        assert_eq!(parse(Some("bytes=0-9"), 0), Requested::Whole);
    }
}
