//! Preconditions of a request, evaluated against the validators of the representation in the order of RFC 9110.

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use super::date;

/// The validators of a representation.
#[derive(Debug, Clone)]
pub(crate) struct Validators {
    /// A strong entity tag with its quotes.
    pub(crate) etag: String,
    /// The second of the last change.
    pub(crate) modified: i64,
}

/// The result of the preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    Proceed,
    NotModified,
    Failed,
}

/// Weighs the preconditions of a `GET` or `HEAD`. Dates that cannot be read count as absent.
pub(crate) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Precondition {
    let date = |name| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .and_then(date::parse)
    };
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, IF_MATCH, |tag| tag == validators.etag) {
            return Precondition::Failed;
        }
    } else if date(IF_UNMODIFIED_SINCE).is_some_and(|limit| validators.modified > limit) {
        return Precondition::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if any_tag(headers, IF_NONE_MATCH, |tag| {
            tag.strip_prefix("W/").unwrap_or(tag) == validators.etag
        }) {
            return Precondition::NotModified;
        }
    } else if date(IF_MODIFIED_SINCE).is_some_and(|limit| validators.modified <= limit) {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Evaluates the preconditions of a request for a representation without a date.
pub(crate) fn evaluate_tag(headers: &HeaderMap, etag: &str) -> Precondition {
    if headers.contains_key(IF_MATCH) && !any_tag(headers, IF_MATCH, |tag| tag == etag) {
        return Precondition::Failed;
    }
    if any_tag(headers, IF_NONE_MATCH, |tag| {
        tag.strip_prefix("W/").unwrap_or(tag) == etag
    }) {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Whether a range may be answered in part: `If-Range` is absent or names exactly this representation.
pub(crate) fn range_applies(headers: &HeaderMap, validators: &Validators) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    let value = value.to_str().unwrap_or_default().trim();
    value == validators.etag || date::parse(value) == Some(validators.modified)
}

fn any_tag(headers: &HeaderMap, name: http::HeaderName, matches: impl Fn(&str) -> bool) -> bool {
    // Our tags contain no comma, so a quoted tag that is split there can never match wrongly.
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || matches(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_before_dates() {
        let validators = Validators {
            etag: "\"abc\"".to_owned(),
            modified: 784_111_777,
        };
        let (same, before) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:36 GMT");
        let check = |given: &[(http::HeaderName, &str)], expected| {
            let headers = given
                .iter()
                .map(|(k, v)| (k.clone(), v.parse().unwrap()))
                .collect();
            assert_eq!(evaluate(&headers, &validators), expected, "{given:?}");
        };
        check(&[], Precondition::Proceed);
        check(&[(IF_MATCH, "\"abc\"")], Precondition::Proceed);
        check(&[(IF_MATCH, "*")], Precondition::Proceed);
        check(&[(IF_MATCH, "W/\"abc\"")], Precondition::Failed);
        check(&[(IF_MATCH, "\"x\", \"y\"")], Precondition::Failed);
        check(
            &[(IF_MATCH, "\"abc\""), (IF_UNMODIFIED_SINCE, before)],
            Precondition::Proceed,
        );
        check(&[(IF_UNMODIFIED_SINCE, same)], Precondition::Proceed);
        check(&[(IF_UNMODIFIED_SINCE, before)], Precondition::Failed);
        check(&[(IF_UNMODIFIED_SINCE, "garbage")], Precondition::Proceed);
        check(&[(IF_NONE_MATCH, "*")], Precondition::NotModified);
        check(&[(IF_NONE_MATCH, "\"x\", W/\"abc\"")], Precondition::NotModified);
        check(
            &[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, same)],
            Precondition::Proceed,
        );
        check(&[(IF_MODIFIED_SINCE, same)], Precondition::NotModified);
        check(&[(IF_MODIFIED_SINCE, before)], Precondition::Proceed);
        check(&[(IF_MODIFIED_SINCE, "garbage")], Precondition::Proceed);
    }
}
