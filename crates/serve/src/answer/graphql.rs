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

use super::problem::ErrorResponse;
use super::{coding, document};
use crate::body::Body;
use crate::graphql::{BadRequest, GraphqlRequest, MAX_BODY_BYTES, TIMEOUT};
use crate::store::Snapshot;

/// The failure of such work.
pub(super) type WorkError = Box<dyn Error + Send + Sync>;

/// Requests in work at the same time.
const MAX_CONCURRENT: usize = 4;

/// Reads the query from the body of a request.
pub(super) async fn read<B>(body: B, body_timeout: Duration) -> Result<GraphqlRequest, ErrorResponse>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let body = std::pin::pin!(Limited::new(body, MAX_BODY_BYTES));
    let refuse = |bad: BadRequest| ErrorResponse::new(StatusCode::BAD_REQUEST, bad.to_string());
    match timeout(body_timeout, body.collect()).await {
        Ok(Ok(body)) => GraphqlRequest::read(&body.to_bytes()).map_err(refuse),
        Ok(Err(error)) => {
            let too_long = error.is::<LengthLimitError>();
            tracing::debug!(%error, "cannot read the body of a request");
            let refusal = refuse(BadRequest::Body);
            Err(if too_long {
                refusal.because(format!("the body has more than {MAX_BODY_BYTES} bytes"))
            } else {
                refusal
            })
        }
        Err(_) => Err(ErrorResponse::of(StatusCode::REQUEST_TIMEOUT)
            .because("the body of the request did not arrive in time")),
    }
}

/// A bounded number of threads for work that takes processor time and memory.
pub(super) struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONCURRENT)))
    }
}

impl Workers {
    /// Runs the work on a thread of its own, after waiting for a free place. The place stays taken until the work ends, even
    /// when the client has gone.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, WorkError> + Send + 'static,
    ) -> Result<Result<T, io::Error>, ErrorResponse> {
        let Ok(Ok(turn)) = timeout(TIMEOUT, Arc::clone(&self.0).acquire_owned()).await else {
            let error = ErrorResponse::of(StatusCode::SERVICE_UNAVAILABLE);
            return Err(error
                .because("too many requests at once; try again")
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

    /// Answers a GraphQL request.
    pub(super) async fn answer(
        &self,
        request: GraphqlRequest,
        snapshot: Arc<Snapshot>,
        headers: &HeaderMap,
    ) -> Result<Result<Response<Body>, io::Error>, ErrorResponse> {
        let encoding = coding::accepted(headers).next();
        let answered = self.run(move || {
            let text = request.answer(snapshot.graph()?, &snapshot);
            Ok(document::compressed(text, encoding)?)
        });
        Ok(answered.await?.map(|(text, encoding)| {
            let mut response = Response::new(Body::from(text));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Some(encoding) = encoding {
                headers.insert(CONTENT_ENCODING, encoding.header());
            }
            response
        }))
    }
}
