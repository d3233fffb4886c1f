//! Error responses: a line of text as in the reference implementation, or problem details (RFC 9457) if the client
//! requests them and on endpoints that the reference implementation does not have.

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use olm_api::text::escape_lines;
use serde::Serialize;

use crate::body::Body;
use crate::site;

const PROBLEM: &str = "application/problem+json";

#[derive(Debug, Clone)]
pub(super) struct ErrorResponse {
    status: StatusCode,
    text: String,
    detail: Option<String>,
    /// The packages that the client may have meant, after their catalogs.
    near: Vec<(String, String)>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ErrorResponse {
    /// A response with this status and line of text.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            detail: None,
            near: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// A response with this status, and its name as the line of text.
    pub(super) fn of(status: StatusCode) -> Self {
        Self::new(status, status.to_string())
    }

    /// Sets the detail, which only problem details and pages show.
    pub(super) fn because(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the packages that the client may have meant, which only pages show.
    pub(super) fn near(mut self, near: Vec<(String, String)>) -> Self {
        self.near = near;
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

/// This replica still fetches the catalog; another one may serve it.
pub(super) fn not_here_yet() -> ErrorResponse {
    ErrorResponse::of(StatusCode::SERVICE_UNAVAILABLE)
        .because("this server is still fetching the catalog; try again")
        .with(RETRY_AFTER, "1")
}

impl From<ErrorResponse> for Response<Body> {
    fn from(error: ErrorResponse) -> Self {
        let mut response = Self::new(Body::from(format!("{}\n", error.text)));
        *response.status_mut() = error.status;
        let headers = response.headers_mut();
        headers.extend(error.headers.iter().cloned());
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response.extensions_mut().insert(error);
        response
    }
}

/// Converts an error into an HTML page, if the client requests HTML.
pub(super) fn page(response: &mut Response<Body>, request: &HeaderMap, package: Option<&str>) {
    if !accepts(request, "text/html") || accepts(request, PROBLEM) {
        return;
    }
    let Some(error) = response.extensions_mut().remove::<ErrorResponse>() else {
        return;
    };
    let why = match (&error.detail, error.status) {
        (Some(detail), _) => detail.as_str(),
        (None, StatusCode::NOT_FOUND) => "This page does not exist.",
        (None, _) => &error.text,
    };
    let page = site::error(error.status, why, package, &error.near);
    *response.body_mut() = Body::from(escape_lines(&page.into_string()).into_owned());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(site::HTML));
    // Set only here: other clients get exactly the headers of the reference implementation.
    headers.append(VARY, HeaderValue::from_static("Accept"));
    headers.remove(CONTENT_LENGTH);
    site::protect(headers);
}

/// The endpoints that answer errors with problem details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Always,
    OnRequest,
}

/// Problem details, as HTTP APIs have them.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// Converts an error into problem details, if the client requests them or the endpoint always returns them.
pub(super) fn detail(response: &mut Response<Body>, request: &HeaderMap, when: Detail) {
    if when == Detail::OnRequest && !accepts(request, PROBLEM) {
        return;
    }
    let Some(error) = response.extensions_mut().remove::<ErrorResponse>() else {
        return;
    };
    let problem = Problem {
        r#type: "about:blank",
        title: error.status.canonical_reason().unwrap_or_default(),
        status: error.status.as_u16(),
        detail: error.detail.as_deref().unwrap_or(&error.text),
    };
    *response.body_mut() = Body::from(serde_json::to_string(&problem).unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    if when == Detail::OnRequest {
        headers.append(VARY, HeaderValue::from_static("Accept"));
    }
    headers.remove(CONTENT_LENGTH);
}

/// Whether the `Accept` header names this media type.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
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

/// Sets a header, unless the value is invalid.
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
