//! The endpoints `all` and `metas`.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK,
    RANGE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use olm_api::serving::JSON_LINES;

use super::coding::{self, COMPRESS_FROM};
use super::conditional::{self, Precondition, Validators};
use super::date;
use super::problem::{ErrorResponse, set};
use super::query::MetasRequest;
use super::range::{self, Requested};
use crate::body::{Body, Chunk};
use crate::compression::Encoding;
use crate::store::{Covering, Snapshot, Variant};

/// The whole catalog.
pub(super) fn all(snapshot: &Snapshot, headers: &HeaderMap) -> Response<Body> {
    let length = snapshot.record().bytes;
    // Ranges are never compressed: their offsets are those of the plain file.
    let variant = (!headers.contains_key(RANGE) && length >= COMPRESS_FROM)
        .then(|| coding::accepted(headers).find_map(|encoding| snapshot.variant(encoding)))
        .flatten();
    let validators = validators(snapshot, variant.as_deref());
    if let Some(response) = precondition(headers, &validators) {
        return response;
    }
    if let Some(variant) = variant {
        let part = Chunk::File(Arc::clone(variant.file()), 0..variant.bytes());
        return success(&validators, Some(variant.encoding()), Body::new([part]));
    }
    let wanted = headers.get(RANGE).map(|value| value.to_str().unwrap_or_default());
    let wanted = if conditional::range_applies(headers, &validators) {
        range::parse(wanted, length)
    } else {
        Requested::Whole
    };
    let mut response = match wanted {
        Requested::Whole => success(&validators, None, Body::new([snapshot.part(0..length)])),
        Requested::Parts(parts) => partial(snapshot, &validators, &parts),
        Requested::Malformed => {
            return ErrorResponse::new(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range").into();
        }
        Requested::Unsatisfiable => {
            let error = ErrorResponse::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "invalid range: failed to overlap",
            );
            return error.with(CONTENT_RANGE, &format!("bytes */{length}")).into();
        }
    };
    response
        .headers_mut()
        .insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// The blobs that a request selects, in the catalog's order.
pub(super) async fn metas(
    snapshot: &Arc<Snapshot>,
    request: &MetasRequest,
    headers: &HeaderMap,
) -> io::Result<Response<Body>> {
    let (selected, next) = match &request.page {
        None => (snapshot.select(&request.filter), None),
        Some(page) => match page.start(snapshot.record()) {
            Some(start) => snapshot.page(&request.filter, start, page.limit()),
            None => {
                return Ok(ErrorResponse::new(StatusCode::GONE, "410 Gone")
                    .because("the catalog has changed since the first page; begin again without `cursor`")
                    .into());
            }
        },
    };
    let length: u64 = selected.iter().map(|range| range.end - range.start).sum();
    let covering = (length >= COMPRESS_FROM)
        .then(|| {
            coding::accepted(headers).find_map(|encoding| snapshot.variant_covering(encoding, &selected))
        })
        .flatten();
    let variant = covering.as_ref().map(|covering| &*covering.variant);
    let encoding = variant.map(Variant::encoding);
    let validators = validators(snapshot, variant);
    let link = next.map(|next| request.link(snapshot.record(), next));
    if let Some(mut response) = precondition(headers, &validators) {
        if let Some(link) = &link {
            set(response.headers_mut(), LINK, link);
        }
        return Ok(response);
    }
    let body = match covering {
        None => Body::new(selected.into_iter().map(|range| snapshot.part(range))),
        // Joining stored segments compresses nothing, so another thread would only add cost.
        Some(Covering { variant, left: 0 }) => snapshot.compressed(&variant, &selected)?,
        Some(Covering { variant, .. }) => {
            let snapshot = Arc::clone(snapshot);
            // Compression takes the processor for up to some milliseconds.
            tokio::task::spawn_blocking(move || snapshot.compressed(&variant, &selected))
                .await
                .map_err(io::Error::other)??
        }
    };
    let mut response = success(&validators, encoding, body);
    if let Some(link) = &link {
        set(response.headers_mut(), LINK, link);
    }
    Ok(response)
}

/// The validators of a representation: each coding has a tag of its own.
fn validators(snapshot: &Snapshot, variant: Option<&Variant>) -> Validators {
    let record = snapshot.record();
    let etag = match variant {
        None => format!("\"{}\"", record.digest),
        Some(variant) => format!("\"{}-{}\"", record.digest, variant.encoding().token()),
    };
    Validators {
        etag,
        modified: record.modified.as_second(),
    }
}

/// The response that a precondition demands instead of the content.
fn precondition(headers: &HeaderMap, validators: &Validators) -> Option<Response<Body>> {
    let mut response = Response::new(Body::default());
    match conditional::evaluate(headers, validators) {
        Precondition::Proceed => return None,
        Precondition::NotModified => *response.status_mut() = StatusCode::NOT_MODIFIED,
        Precondition::Failed => {
            *response.status_mut() = StatusCode::PRECONDITION_FAILED;
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(JSON_LINES));
            // An empty answer as in the reference implementation, unless the client requests a problem.
            let error = ErrorResponse::of(StatusCode::PRECONDITION_FAILED)
                .because("the content is not the one that the precondition names");
            response.extensions_mut().insert(error);
        }
    }
    identify(response.headers_mut(), validators);
    Some(response)
}

fn success(validators: &Validators, encoding: Option<Encoding>, body: Body) -> Response<Body> {
    let length = body.remaining();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_LINES));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(encoding) = encoding {
        headers.insert(CONTENT_ENCODING, encoding.header());
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
        response = success(validators, None, Body::new([snapshot.part(range.clone())]));
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
            parts.push(Chunk::Bytes(Bytes::from(head)));
            parts.push(snapshot.part(range.clone()));
        }
        parts.push(Chunk::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
        response = success(validators, None, Body::new(parts));
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
    set(headers, LAST_MODIFIED, &date::format(validators.modified));
}
