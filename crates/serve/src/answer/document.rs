//! Small answers from memory.

use std::io;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, Response};
use sha2::{Digest as _, Sha256};

use super::coding::{self, COMPRESS_FROM};
use super::conditional::{self, Precondition};
use super::problem::{ErrorResponse, set};
use crate::body::Body;
use crate::compression::{Encoding, compress};

/// A document that never changes while the process runs.
pub(super) struct Fixed {
    media: &'static str,
    text: &'static str,
}

/// The description of the API.
pub(super) static OPENAPI: Fixed = Fixed {
    media: "application/json",
    text: include_str!("../../assets/openapi.json"),
};

/// The JSON schema of a catalog's blobs.
pub(super) static FBC_SCHEMA: Fixed = Fixed {
    media: "application/schema+json",
    text: include_str!("../../assets/fbc.schema.json"),
};

/// The style of the pages for people.
pub(super) static STYLE: Fixed = Fixed {
    media: "text/css; charset=utf-8",
    text: crate::site::STYLE,
};

/// The icon of the site.
pub(super) static FAVICON: Fixed = Fixed {
    media: "image/svg+xml",
    text: crate::site::FAVICON,
};

/// Answers with a document that never changes.
pub(super) fn fixed(document: &Fixed, headers: &HeaderMap) -> Response<Body> {
    of(document.media, document.text.to_owned().into_bytes(), headers)
}

/// Answers with this text; the client must revalidate it.
pub(super) fn of(media: &'static str, text: Vec<u8>, headers: &HeaderMap) -> Response<Body> {
    let encoding = coding::accepted(headers).next();
    let digest = hex::encode(Sha256::digest(&text));
    let (text, encoding) = match compressed(text, encoding) {
        Ok(compressed) => compressed,
        Err(error) => return super::failed("a document", &error).into(),
    };
    let etag = match encoding {
        None => format!("\"{digest}\""),
        Some(encoding) => format!("\"{digest}-{}\"", encoding.token()),
    };
    let mut response = match conditional::evaluate_tag(headers, &etag) {
        Precondition::Proceed => {
            let mut response = Response::new(Body::from(text));
            let length = HeaderValue::from(response.body().remaining());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            headers.insert(CONTENT_LENGTH, length);
            if let Some(encoding) = encoding {
                headers.insert(CONTENT_ENCODING, encoding.header());
            }
            response
        }
        Precondition::NotModified => {
            let mut response = Response::new(Body::default());
            *response.status_mut() = http::StatusCode::NOT_MODIFIED;
            response
        }
        Precondition::Failed => ErrorResponse::of(http::StatusCode::PRECONDITION_FAILED).into(),
    };
    set(response.headers_mut(), ETAG, &etag);
    set(response.headers_mut(), CACHE_CONTROL, "no-cache");
    response
}

/// The text in the requested coding, unless it is too short.
pub(super) fn compressed(text: Vec<u8>, encoding: Option<Encoding>) -> io::Result<(Bytes, Option<Encoding>)> {
    match encoding.filter(|_| text.len() as u64 >= COMPRESS_FROM) {
        Some(encoding) => Ok((compress(encoding, &text)?, Some(encoding))),
        None => Ok((text.into(), None)),
    }
}
