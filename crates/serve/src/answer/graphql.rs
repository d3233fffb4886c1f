//! `graphql` over HTTP.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::Body;
use super::coding::{self, COMPRESS_FROM, Coding};
use super::problem;
use crate::deflate::gzip;
use crate::graphql::{BadQuestion, LONGEST_BODY, Question, TIME};
use crate::store::Snapshot;

/// How long a client may take to send its question.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions that are answered at once; each takes a thread and some memory.
const AT_ONCE: usize = 4;

/// Reads the question out of a request, or says how to refuse it.
pub(super) async fn read<B>(body: B) -> Result<Question, Response<Body>>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let body = std::pin::pin!(Limited::new(body, LONGEST_BODY));
    let refuse = |question: BadQuestion| problem(StatusCode::BAD_REQUEST, &question.to_string());
    match timeout(PATIENCE, body.collect()).await {
        Ok(Ok(body)) => Question::read(&body.to_bytes()).map_err(refuse),
        Ok(Err(error)) => {
            if !error.is::<LengthLimitError>() {
                tracing::debug!(%error, "a request broke off");
            }
            Err(refuse(BadQuestion::Body))
        }
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "408 Request Timeout")),
    }
}

/// Lets a few questions be answered at a time.
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Turns {
    /// Answers a question, on a thread of its own.
    pub(super) async fn answer(
        &self,
        question: Question,
        snapshot: Arc<Snapshot>,
        headers: &HeaderMap,
    ) -> io::Result<Response<Body>> {
        let Ok(turn) = timeout(TIME, Arc::clone(&self.0).acquire_owned()).await else {
            return Ok(super::not_here_yet());
        };
        let turn = turn.map_err(io::Error::other)?;
        let accepted = coding::accepted(headers);
        let (text, coding) = tokio::task::spawn_blocking(move || {
            // The turn ends with the work, even when the client is gone before.
            let _turn = turn;
            let text = question.answer(snapshot.graph()?, &snapshot);
            match accepted {
                Coding::Gzip if text.len() as u64 >= COMPRESS_FROM => Ok((gzip(&text)?, Coding::Gzip)),
                _ => Ok((Bytes::from(text), Coding::Identity)),
            }
        })
        .await
        .map_err(io::Error::other)?
        .map_err(|error: Box<dyn Error + Send + Sync>| io::Error::other(error))?;
        let mut response = Response::new(Body::from(text));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if coding == Coding::Gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(response)
    }
}
