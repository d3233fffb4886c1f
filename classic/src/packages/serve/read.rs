//! Lists, single packages and their pictures.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use olm_classic::package_manifest::{DEFAULT_ICON, IconAnswer, SVG, icon};
use serde_json::Value;

use super::super::index::Packages;
use super::super::item::Item;
use super::super::scope::Scope;
use super::accept::Representation;
use super::answer::{JSON, answer, json, no_package};
use super::request::Options;
use super::table::{self, Include};

/// Bytes of a list that are sent at a time.
const CHUNK: usize = 64 << 10;

/// A package.
pub(super) fn get(
    packages: &Packages,
    scope: &Scope,
    name: &str,
    representation: Representation,
    include: Include,
    now: Timestamp,
) -> Response {
    let Some(item) = packages.named(scope, name) else {
        return no_package(name);
    };
    let namespace = scope.shown_in(item);
    match representation {
        Representation::Table => {
            let mut body = table::begin(packages.version).into_bytes();
            body.extend_from_slice(&table::row(item, namespace, include, now));
            body.extend_from_slice(table::END.as_bytes());
            json(body)
        }
        Representation::Partial => json(item.partial(namespace)),
        Representation::Object | Representation::Discovery => json(item.object(namespace, false)),
    }
}

/// The packages that a request sees. One is unpacked when its turn comes to be sent.
pub(super) fn list(
    packages: &Packages,
    scope: Scope,
    representation: Representation,
    include: Include,
    now: Timestamp,
) -> Response {
    let mut items = packages.seen(&scope).into_iter();
    let version = packages.version;
    let is_table = representation == Representation::Table;
    let begin = if is_table {
        table::begin(version)
    } else {
        let (api_version, kind) = table::list_of(representation == Representation::Partial);
        format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}"}},"items":["#
        )
    };
    let mut begin = Some(begin.into_bytes());
    let mut is_first = true;
    let chunks = std::iter::from_fn(move || {
        let is_begin = begin.is_some();
        let mut chunk = begin.take().unwrap_or_default();
        if is_begin || !items.as_slice().is_empty() {
            while chunk.len() < CHUNK
                && let Some(item) = items.next()
            {
                if !std::mem::take(&mut is_first) {
                    chunk.push(b',');
                }
                chunk.extend_from_slice(&shown(&item, scope.shown_in(&item), representation, include, now));
            }
            if items.as_slice().is_empty() {
                chunk.extend_from_slice(table::END.as_bytes());
            }
        }
        (!chunk.is_empty()).then(|| Ok::<_, Infallible>(Bytes::from(chunk)))
    });
    json(Body::from_stream(stream::iter(chunks)))
}

fn shown(
    item: &Arc<Item>,
    namespace: &str,
    representation: Representation,
    include: Include,
    now: Timestamp,
) -> Vec<u8> {
    match representation {
        Representation::Table => table::row(item, namespace, include, now),
        Representation::Partial => item.partial(namespace),
        Representation::Object | Representation::Discovery => item.object(namespace, true),
    }
}

/// The picture of a package.
pub(super) fn picture(
    packages: &Packages,
    scope: &Scope,
    name: &str,
    headers: &HeaderMap,
    options: &Options,
) -> Response {
    let found = packages.named(scope, name).map(|item| item.picture.as_deref());
    let has_tag = headers.contains_key(IF_NONE_MATCH);
    match icon(found, has_tag, !options.resource_version.is_empty()) {
        IconAnswer::NotFound => bare(StatusCode::NOT_FOUND),
        IconAnswer::NotModified => bare(StatusCode::NOT_MODIFIED),
        IconAnswer::Default => with_length(answer(StatusCode::OK, SVG, DEFAULT_ICON), DEFAULT_ICON.len()),
        IconAnswer::Icon(picture) => {
            let body = picture.body();
            let size = body.len();
            let mut response = with_length(answer(StatusCode::OK, &picture.media_type, body), size);
            if let Ok(tag) = HeaderValue::from_str(&picture.tag) {
                response.headers_mut().insert(ETAG, tag);
            }
            response
        }
    }
}

fn bare(status: StatusCode) -> Response {
    let mut response = answer(status, JSON, Body::empty());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

fn with_length(mut response: Response, size: usize) -> Response {
    response.headers_mut().insert(CONTENT_LENGTH, size.into());
    response
}

/// The event of a watch (JSON, one line).
pub(super) fn event(
    change_type: &str,
    item: &Arc<Item>,
    namespace: &str,
    representation: Representation,
    include: Include,
    now: Timestamp,
) -> Bytes {
    let object = match representation {
        Representation::Table => {
            let mut table = table::begin(item.version).into_bytes();
            table.extend_from_slice(&table::row(item, namespace, include, now));
            table.extend_from_slice(table::END.as_bytes());
            table
        }
        Representation::Partial => item.partial(namespace),
        Representation::Object | Representation::Discovery => item.object(namespace, false),
    };
    wrapped(change_type, &object)
}

/// An event without a package: a bookmark or a failure.
pub(super) fn bare_event(change_type: &str, object: &Value) -> Bytes {
    wrapped(change_type, object.to_string().as_bytes())
}

fn wrapped(change_type: &str, object: &[u8]) -> Bytes {
    let mut line = format!(r#"{{"type":"{change_type}","object":"#).into_bytes();
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
