//! Answers, read whole within a limit.

use bytes::{Bytes, BytesMut};
use reqwest::Response;

/// Error of reading a whole answer.
pub(crate) enum ReadError {
    TooLarge,
    Broken(reqwest::Error),
}

pub(crate) async fn read_bounded(mut response: Response, limit: u64) -> Result<Bytes, ReadError> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(ReadError::TooLarge);
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Broken)? {
        if bytes.len() as u64 + chunk.len() as u64 > limit {
            return Err(ReadError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
