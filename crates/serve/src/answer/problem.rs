//! Answers that say why there is nothing else: a line of text as clients of the reference implementation know it, or a
//! problem in detail (RFC 9457) where that is asked for and where no such client can be.

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::body::Body;
use crate::site;

const PROBLEM: &str = "application/problem+json";

/// An answer in the making that says why there is nothing else.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    text: String,
    detail: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Refuses with this line of text.
pub(super) fn refusal(status: StatusCode, text: impl Into<String>) -> Refusal {
    Refusal {
        status,
        text: text.into(),
        detail: None,
        headers: Vec::new(),
    }
}

/// Refuses with the status and its name as the line of text.
pub(super) fn refuse(status: StatusCode) -> Refusal {
    refusal(status, status.to_string())
}

impl Refusal {
    /// What the line of text does not say.
    pub(super) fn because(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }
}

/// The catalog exists and is on its way to this replica; another one may have it.
pub(super) fn not_here_yet() -> Refusal {
    refuse(StatusCode::SERVICE_UNAVAILABLE)
        .because("the content of this catalog is on its way to this server; ask again")
        .with(RETRY_AFTER, "1")
}

impl From<Refusal> for Response<Body> {
    fn from(refusal: Refusal) -> Self {
        let mut response = Self::new(Body::from(format!("{}\n", refusal.text)));
        *response.status_mut() = refusal.status;
        let headers = response.headers_mut();
        headers.extend(refusal.headers.iter().cloned());
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response.extensions_mut().insert(refusal);
        response
    }
}

/// Turns a refusal into a page for people, if that is what the client asks for.
pub(super) fn page(response: &mut Response<Body>, request: &HeaderMap, package: Option<&str>) {
    if !accepts(request, "text/html") || accepts(request, PROBLEM) {
        return;
    }
    let Some(refusal) = response.extensions_mut().remove::<Refusal>() else {
        return;
    };
    let why = match (&refusal.detail, refusal.status) {
        (Some(detail), _) => detail.as_str(),
        (None, StatusCode::NOT_FOUND) => "There is no such page.",
        (None, _) => &refusal.text,
    };
    let page = site::refusal(refusal.status, why, package);
    *response.body_mut() = Body::from(page.into_string());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(site::HTML));
    // Only here: what others get has the headers that clients of the reference implementation know.
    headers.append(VARY, HeaderValue::from_static("Accept"));
    headers.remove(CONTENT_LENGTH);
    site::protect(headers);
}

/// Whether every refusal is a problem in detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Always,
    WhenAskedFor,
}

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// Turns a refusal into a problem in detail, if that is what the client gets.
pub(super) fn detail(response: &mut Response<Body>, request: &HeaderMap, when: Detail) {
    if when == Detail::WhenAskedFor && !accepts(request, PROBLEM) {
        return;
    }
    let Some(refusal) = response.extensions_mut().remove::<Refusal>() else {
        return;
    };
    let problem = Problem {
        r#type: "about:blank",
        title: refusal.status.canonical_reason().unwrap_or_default(),
        status: refusal.status.as_u16(),
        detail: refusal.detail.as_deref().unwrap_or(&refusal.text),
    };
    *response.body_mut() = Body::from(serde_json::to_string(&problem).unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    if when == Detail::WhenAskedFor {
        // As with pages: what others get has the headers that they know.
        headers.append(VARY, HeaderValue::from_static("Accept"));
    }
    headers.remove(CONTENT_LENGTH);
}

/// Whether the client names this media type among what it accepts.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut items = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    items.any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let weight = |part: &str| part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
        parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(media_type))
            && parts.find_map(weight).is_none_or(|weight| weight > 0.0)
    })
}

/// Sets a header, unless the value cannot be one.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_for_those_who_ask() {
        let check = |accept: &'static str, expected: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(accepts(&headers, PROBLEM), expected, "{accept}");
        };
        check("application/problem+json", true);
        check("application/jsonl, Application/Problem+JSON;q=0.5", true);
        check("application/problem+json;q=0", false);
        check("*/*", false);
        check("application/json", false);
        assert!(!accepts(&HeaderMap::new(), PROBLEM));
    }
}
