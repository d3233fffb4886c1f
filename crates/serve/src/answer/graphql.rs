//! `graphql` over HTTP.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::Body;
use super::problem::{self, Refusal, refusal};
use super::{coding, document};
use crate::graphql::{BadQuestion, LONGEST_BODY, Question, TIME};
use crate::store::Snapshot;

/// Why work failed.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Questions that are answered at once; each takes a thread and some memory.
const AT_ONCE: usize = 4;

/// Reads the question out of a request, or says how to refuse it.
pub(super) async fn read<B>(body: B, patience: Duration) -> Result<Question, Refusal>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let body = std::pin::pin!(Limited::new(body, LONGEST_BODY));
    let refuse = |question: BadQuestion| refusal(StatusCode::BAD_REQUEST, question.to_string());
    match timeout(patience, body.collect()).await {
        Ok(Ok(body)) => Question::read(&body.to_bytes()).map_err(refuse),
        Ok(Err(error)) => {
            let too_long = error.is::<LengthLimitError>();
            tracing::debug!(%error, "a request cannot be read");
            let refusal = refuse(BadQuestion::Body);
            Err(if too_long {
                refusal.because(format!("the body has more than {LONGEST_BODY} bytes"))
            } else {
                refusal
            })
        }
        Err(_) => Err(problem::refuse(StatusCode::REQUEST_TIMEOUT)
            .because("the body of the request did not arrive in time")),
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
    /// Does this on a thread of its own when it is its turn, which ends with the work even if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<Result<T, io::Error>, Refusal> {
        let Ok(Ok(turn)) = timeout(TIME, Arc::clone(&self.0).acquire_owned()).await else {
            let refusal = problem::refuse(StatusCode::SERVICE_UNAVAILABLE);
            return Err(refusal
                .because("too many questions at once; ask again")
                .with(RETRY_AFTER, "1"));
        };
        let work = move || {
            let _turn = turn;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        Ok(done
            .map_err(io::Error::other)
            .and_then(|done| done.map_err(io::Error::other)))
    }

    /// Answers a question.
    pub(super) async fn answer(
        &self,
        question: Question,
        snapshot: Arc<Snapshot>,
        headers: &HeaderMap,
    ) -> Result<Result<Response<Body>, io::Error>, Refusal> {
        let format = coding::accepted(headers).next();
        let answered = self.run(move || {
            let text = question.answer(snapshot.graph()?, &snapshot);
            Ok(document::coded(text, format)?)
        });
        Ok(answered.await?.map(|(text, format)| {
            let mut response = Response::new(Body::from(text));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Some(format) = format {
                headers.insert(CONTENT_ENCODING, format.header());
            }
            response
        }))
    }
}
