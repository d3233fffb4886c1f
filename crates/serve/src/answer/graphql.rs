//! `graphql` over HTTP.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::ErrorResponse;
use super::{coding, document};
use crate::body::Body;
use crate::graphql::{BadRequest, GraphqlRequest, MAX_BODY_BYTES, QueryPermit, TIMEOUT};
use crate::store::Snapshot;

/// The failure of such work.
pub(super) type WorkError = Box<dyn Error + Send + Sync>;

/// Requests in work at the same time.
const MAX_CONCURRENT: usize = 4;
/// The unit for answers that clients have not read yet, in bytes; shorter answers do not count.
const UNIT: usize = 64 << 10;
/// Units of all such answers together.
const MAX_UNTAKEN: usize = 256;

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
pub(super) struct Workers {
    places: Arc<Semaphore>,
    /// Taken by the one query at a time that reads or answers much.
    heavy: Arc<Semaphore>,
    /// The memory for answers that clients have not read yet.
    untaken: Arc<Semaphore>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            heavy: Arc::new(Semaphore::new(1)),
            untaken: Arc::new(Semaphore::new(MAX_UNTAKEN)),
        }
    }
}

/// An answer that keeps its room until the client has taken it.
struct UnsentResponse {
    text: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for UnsentResponse {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Waits for space for an answer. `None` on a timeout.
fn with_room(runtime: &Handle, untaken: &Arc<Semaphore>, text: Bytes) -> Option<Bytes> {
    let units = (text.len() / UNIT).min(MAX_UNTAKEN);
    if units == 0 {
        return Some(text);
    }
    let units = u32::try_from(units).ok()?;
    let room = timeout(TIMEOUT, Arc::clone(untaken).acquire_many_owned(units));
    let room = runtime.block_on(room).ok()?.ok()?;
    Some(Bytes::from_owner(UnsentResponse { text, _room: room }))
}

/// The answer if there is no space.
fn crowded() -> ErrorResponse {
    ErrorResponse::of(StatusCode::SERVICE_UNAVAILABLE)
        .because("too many requests at once; try again")
        .with(RETRY_AFTER, "1")
}

impl Workers {
    /// Runs the work on a separate thread after waiting for a free worker. The worker stays occupied until the work
    /// ends, even if the client is gone.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, WorkError> + Send + 'static,
    ) -> Result<Result<T, io::Error>, ErrorResponse> {
        let Ok(Ok(turn)) = timeout(TIMEOUT, Arc::clone(&self.places).acquire_owned()).await else {
            return Err(crowded());
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
        let (heavy, untaken) = (Arc::clone(&self.heavy), Arc::clone(&self.untaken));
        let runtime = Handle::current();
        let answered = self.run(move || {
            let turn = QueryPermit::of(heavy, runtime.clone());
            let text = request.answer(snapshot.graph()?, &snapshot, &turn);
            let (text, encoding) = document::compressed(text, encoding)?;
            Ok(with_room(&runtime, &untaken, text).map(|text| (text, encoding)))
        });
        let answered = match answered.await? {
            Ok(Some(answered)) => Ok(answered),
            Ok(None) => return Err(crowded()),
            Err(error) => Err(error),
        };
        Ok(answered.map(|(text, encoding)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_keeps_its_room_until_it_is_taken() {
        let (untaken, runtime) = (Arc::new(Semaphore::new(MAX_UNTAKEN)), Handle::current());
        let work = move || {
            let answer = |bytes: usize| with_room(&runtime, &untaken, vec![b'x'; bytes].into());
            let text = answer(UNIT * 2 + 1).unwrap();
            assert_eq!(untaken.available_permits(), MAX_UNTAKEN - 2);
            assert_eq!(text.len(), UNIT * 2 + 1);
            let part = text.slice(..1);
            drop(text);
            assert_eq!(untaken.available_permits(), MAX_UNTAKEN - 2);
            drop(part);
            assert_eq!(untaken.available_permits(), MAX_UNTAKEN);
            // An answer that exceeds the whole limit is sent alone, and a short answer takes no permit.
            let all = answer(UNIT * (MAX_UNTAKEN + 1)).unwrap();
            assert_eq!(untaken.available_permits(), 0);
            assert!(answer(UNIT - 1).is_some());
            drop(all);
        };
        tokio::task::spawn_blocking(work).await.unwrap();
    }
}
