//! Answers: JSON, and failures as `Status`.

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use olm_classic::names;
use olm_platform::delegated::{AccessRequest, AccessTarget, Denied};
use serde_json::{Value, json};

use super::accept::TYPES;

/// The media type of JSON.
pub(super) const JSON: &str = "application/json";

/// An answer with this body.
pub(super) fn answer(status: StatusCode, media_type: &str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Ok(media_type) = HeaderValue::from_str(media_type) {
        headers.insert(CONTENT_TYPE, media_type);
    }
    // As the API server says of all that depends on who asks.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An answer with this JSON.
pub(super) fn json(body: impl Into<Body>) -> Response {
    answer(StatusCode::OK, JSON, body)
}

/// A failure as clients of Kubernetes read it.
pub(super) fn status(code: StatusCode, reason: &str, message: &str, details: Option<Value>) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    if let (Some(details), Some(status)) = (details, status.as_object_mut()) {
        status.insert("details".to_owned(), details);
    }
    status
}

fn failure(code: StatusCode, reason: &str, message: &str, details: Option<Value>) -> Response {
    answer(code, JSON, status(code, reason, message, details).to_string())
}

/// There is no such path.
pub(super) fn no_path() -> Response {
    let message = "the server could not find the requested resource";
    failure(StatusCode::NOT_FOUND, "NotFound", message, Some(json!({})))
}

/// There is no such package.
pub(super) fn no_package(name: &str) -> Response {
    let message = format!(
        "{}.{} {name:?} not found",
        names::PACKAGE_MANIFESTS,
        names::PACKAGE_GROUP
    );
    let details = json!({"name": name, "group": names::PACKAGE_GROUP, "kind": names::PACKAGE_MANIFESTS});
    failure(StatusCode::NOT_FOUND, "NotFound", &message, Some(details))
}

/// A query that cannot be read.
pub(super) fn bad_request(message: &str) -> Response {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message, None)
}

/// A resourceVersion that changes cannot be told from.
pub(super) fn expired(message: &str) -> Response {
    failure(StatusCode::GONE, "Expired", message, None)
}

/// Packages are only read.
pub(super) fn only_read() -> Response {
    let message = "the server does not allow this method on the requested resource";
    let mut response = failure(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        message,
        Some(json!({})),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// No form that the client accepts.
pub(super) fn not_acceptable() -> Response {
    let message = format!("only the following media types are accepted: {TYPES}");
    failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", &message, None)
}

/// A client that is refused.
pub(super) fn denied(denied: &Denied, ask: &AccessRequest) -> Response {
    match denied {
        Denied::Unauthenticated => {
            let mut response = failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None);
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            response
        }
        Denied::Forbidden { user } => forbidden(user, ask),
        Denied::Unknown => {
            let (code, reason) = (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
            let mut response = failure(
                code,
                reason,
                &denied.to_string(),
                Some(json!({"retryAfterSeconds": 1})),
            );
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

fn forbidden(user: &str, ask: &AccessRequest) -> Response {
    let (message, details) = match &ask.target {
        AccessTarget::Path(path) => (
            format!("forbidden: User {user:?} cannot {} path {path:?}", ask.verb),
            json!({}),
        ),
        AccessTarget::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
            ..
        } => {
            let named = if name.is_empty() {
                String::new()
            } else {
                format!(" {name:?}")
            };
            let part = if subresource.is_empty() {
                String::new()
            } else {
                format!("/{subresource}")
            };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let message = format!(
                "{resource}.{group}{named} is forbidden: User {user:?} cannot {} resource \"{resource}{part}\" in API \
                 group {group:?} {place}",
                ask.verb
            );
            (message, json!({"name": name, "group": group, "kind": resource}))
        }
    };
    failure(StatusCode::FORBIDDEN, "Forbidden", &message, Some(details))
}
