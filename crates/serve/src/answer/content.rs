//! Answers out of a stored catalog: `all` and `metas`.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use olm_api::serving::JSON_LINES;

use super::body::{Body, Part};
use super::coding::{self, COMPRESS_FROM, Coding};
use super::conditional::{self, Validators, Verdict};
use super::query::Filter;
use super::range::{self, Wanted};
use super::{date, problem};
use crate::store::Snapshot;

/// The whole catalog.
pub(super) fn all(snapshot: &Snapshot, headers: &HeaderMap) -> Response<Body> {
    let length = snapshot.record().bytes;
    // An answer in parts is never compressed: its offsets are those of the plain file.
    let gzip = (!headers.contains_key(RANGE) && wants_gzip(headers, length))
        .then(|| snapshot.gzip())
        .flatten();
    let coding = if gzip.is_some() {
        Coding::Gzip
    } else {
        Coding::Identity
    };
    let validators = validators(snapshot, coding);
    if let Some(response) = precondition(headers, &validators) {
        return response;
    }
    if let Some(gzip) = gzip {
        let part = Part::File(Arc::clone(gzip.file()), 0..gzip.bytes());
        return success(&validators, coding, Body::new([part]));
    }
    let wanted = headers.get(RANGE).map(|value| value.to_str().unwrap_or_default());
    let wanted = if conditional::range_applies(headers, &validators) {
        range::parse(wanted, length)
    } else {
        Wanted::Whole
    };
    let mut response = match wanted {
        Wanted::Whole => success(&validators, coding, Body::new([snapshot.part(0..length)])),
        Wanted::Parts(parts) => partial(snapshot, &validators, &parts),
        Wanted::Malformed => return problem(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range"),
        Wanted::Unsatisfiable => {
            let mut response = problem(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "invalid range: failed to overlap",
            );
            set(
                response.headers_mut(),
                CONTENT_RANGE,
                &format!("bytes */{length}"),
            );
            return response;
        }
    };
    response
        .headers_mut()
        .insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// The blobs that a filter selects, in the catalog's order.
pub(super) async fn metas(
    snapshot: &Arc<Snapshot>,
    filter: &Filter,
    headers: &HeaderMap,
) -> io::Result<Response<Body>> {
    let selected = snapshot.select(filter);
    let length: u64 = selected.iter().map(|range| range.end - range.start).sum();
    let coding = if wants_gzip(headers, length) {
        snapshot.gzip_covers(&selected)
    } else {
        Coding::Identity
    };
    let validators = validators(snapshot, coding);
    if let Some(response) = precondition(headers, &validators) {
        return Ok(response);
    }
    let body = match coding {
        Coding::Identity => Body::new(selected.into_iter().map(|range| snapshot.part(range))),
        Coding::Gzip => {
            let snapshot = Arc::clone(snapshot);
            // Coding bytes on the way takes the processor for up to some milliseconds.
            tokio::task::spawn_blocking(move || snapshot.gzip_of(&selected))
                .await
                .map_err(io::Error::other)??
        }
    };
    Ok(success(&validators, coding, body))
}

fn wants_gzip(headers: &HeaderMap, length: u64) -> bool {
    length >= COMPRESS_FROM && coding::accepted(headers) == Coding::Gzip
}

fn validators(snapshot: &Snapshot, coding: Coding) -> Validators {
    let record = snapshot.record();
    let suffix = match coding {
        Coding::Identity => "",
        Coding::Gzip => "-gzip",
    };
    Validators {
        etag: format!("\"{}{suffix}\"", record.digest),
        modified: record.modified.as_second(),
    }
}

/// The answer that the preconditions ask for instead of the content.
fn precondition(headers: &HeaderMap, validators: &Validators) -> Option<Response<Body>> {
    let mut response = Response::new(Body::default());
    match conditional::evaluate(headers, validators) {
        Verdict::Proceed => return None,
        Verdict::NotModified => *response.status_mut() = StatusCode::NOT_MODIFIED,
        Verdict::Failed => {
            *response.status_mut() = StatusCode::PRECONDITION_FAILED;
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(JSON_LINES));
        }
    }
    identify(response.headers_mut(), validators);
    Some(response)
}

fn success(validators: &Validators, coding: Coding, body: Body) -> Response<Body> {
    let length = body.remaining();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_LINES));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if coding == Coding::Gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    identify(headers, validators);
    response
}

fn partial(snapshot: &Snapshot, validators: &Validators, ranges: &[Range<u64>]) -> Response<Body> {
    let length = snapshot.record().bytes;
    let content_range =
        |range: &Range<u64>| format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1));
    let mut response;
    if let [range] = ranges {
        response = success(
            validators,
            Coding::Identity,
            Body::new([snapshot.part(range.clone())]),
        );
        set(response.headers_mut(), CONTENT_RANGE, &content_range(range));
    } else {
        // No line of JSON looks like this, so it can separate the parts of any catalog.
        let boundary = format!("olm-{}", snapshot.record().digest);
        let mut parts = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let mut head = String::new();
            let lead = if index == 0 { "" } else { "\r\n" };
            let _ = write!(
                head,
                "{lead}--{boundary}\r\nContent-Range: {}\r\nContent-Type: {JSON_LINES}\r\n\r\n",
                content_range(range)
            );
            parts.push(Part::Bytes(Bytes::from(head)));
            parts.push(snapshot.part(range.clone()));
        }
        parts.push(Part::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
        response = success(validators, Coding::Identity, Body::new(parts));
        set(
            response.headers_mut(),
            CONTENT_TYPE,
            &format!("multipart/byteranges; boundary={boundary}"),
        );
    }
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response
}

fn identify(headers: &mut HeaderMap, validators: &Validators) {
    set(headers, ETAG, &validators.etag);
    if let Ok(time) = jiff::Timestamp::from_second(validators.modified) {
        set(headers, LAST_MODIFIED, &date::format(time));
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
