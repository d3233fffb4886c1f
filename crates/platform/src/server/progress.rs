//! The required progress of answers on one HTTP/2 connection.
//!
//! [`StallGuard`] does not notice an HTTP/2 client that stops reading an answer: the client opens no window, but still
//! answers pings.
//!
//! [`StallGuard`]: super::stall::StallGuard

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use hyper::body::Buf;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use super::stall::STEP;

/// The answers in progress on a connection.
#[derive(Debug, Clone)]
pub(crate) struct OpenResponses(Arc<Mutex<ProgressState>>);

#[derive(Debug)]
struct ProgressState {
    next: u64,
    under_way: BTreeMap<u64, Transfer>,
    /// The time at which the last answer ended.
    quiet_since: Instant,
}

#[derive(Debug)]
struct Transfer {
    turn: Turn,
    since: Instant,
    /// Bytes since then.
    bytes: u64,
}

/// The side that must act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Server,
    Client,
}

/// The reason why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloseReason {
    /// The client took too little of an answer.
    #[error("the client takes too little of an answer")]
    Stalled,
    /// There was no request.
    #[error("the client asks nothing")]
    Idle,
}

impl OpenResponses {
    /// The answers of a new connection.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(ProgressState {
            next: 0,
            under_way: BTreeMap::new(),
            quiet_since: Instant::now(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock()
    }

    /// A question has come in.
    pub(crate) fn begin(&self) -> ResponseGuard {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let moved = Transfer {
            turn: Turn::Server,
            since: Instant::now(),
            bytes: 0,
        };
        state.under_way.insert(number, moved);
        ResponseGuard {
            answers: self.clone(),
            number,
        }
    }

    /// Waits until an answer has moved by less than [`STEP`] bytes within `stall`, or no request came within `idle`.
    pub(crate) async fn still(&self, stall: Duration, idle: Duration) -> CloseReason {
        loop {
            let (end, what) = self.lock().end(stall, idle);
            if end <= Instant::now() {
                return what;
            }
            sleep_until(end).await;
        }
    }
}

impl ProgressState {
    /// The time at which the connection ends if nothing happens, but not before the next check.
    fn end(&self, stall: Duration, idle: Duration) -> (Instant, CloseReason) {
        if self.under_way.is_empty() {
            return (self.quiet_since + idle, CloseReason::Idle);
        }
        let waiting = self.under_way.values().filter(|moved| moved.turn == Turn::Client);
        let first = waiting.map(|moved| moved.since).min();
        // An answer that begins to wait for its client after this check is seen at the next.
        let look = Instant::now() + stall.min(idle);
        (first.map_or(look, |first| first + stall), CloseReason::Stalled)
    }
}

/// One answer in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct ResponseGuard {
    answers: OpenResponses,
    number: u64,
}

impl ResponseGuard {
    fn waits_for(&self, turn: Turn, bytes: usize) {
        if let Some(moved) = self.answers.lock().under_way.get_mut(&self.number) {
            moved.bytes += bytes as u64;
            if moved.turn != turn || moved.bytes >= STEP {
                *moved = Transfer {
                    turn,
                    since: Instant::now(),
                    bytes: 0,
                };
            }
        }
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        let mut state = self.answers.lock();
        state.under_way.remove(&self.number);
        if state.under_way.is_empty() {
            state.quiet_since = Instant::now();
        }
    }
}

/// A body that counts the bytes that the client read.
#[derive(Debug)]
pub(crate) struct Tracked<B, G = ()> {
    body: B,
    ticket: ResponseGuard,
    /// Kept until the body is dropped.
    _guard: G,
}

impl<B> Tracked<B> {
    /// A body that the client must read from now on.
    pub(crate) fn new(body: B, ticket: ResponseGuard) -> Self {
        ticket.waits_for(Turn::Client, 0);
        Self {
            body,
            ticket,
            _guard: (),
        }
    }

    /// The same body, which keeps `guard` until it is dropped.
    pub(crate) fn holding<G>(self, guard: G) -> Tracked<B, G> {
        Tracked {
            body: self.body,
            ticket: self.ticket,
            _guard: guard,
        }
    }
}

impl<B: Body + Unpin, G: Unpin> Body for Tracked<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let outcome = Pin::new(&mut self.body).poll_frame(cx);
        match &outcome {
            Poll::Pending => self.ticket.waits_for(Turn::Server, 0),
            Poll::Ready(frame) => {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                self.ticket
                    .waits_for(Turn::Client, data.map_or(0, Buf::remaining));
            }
        }
        outcome
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const STALL: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(20);

    /// A body with pieces of this size.
    struct Pieces(usize);

    impl Body for Pieces {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<&'static [u8]>, Infallible>>> {
            static PIECE: [u8; 32 << 10] = [0; 32 << 10];
            Poll::Ready(Some(Ok(Frame::data(&PIECE[..self.0]))))
        }
    }

    /// Reads a piece each second until the connection is closed or the time is over.
    async fn taking(bytes: usize, seconds: u64) -> Option<(CloseReason, u64)> {
        let answers = OpenResponses::new();
        let mut body = Tracked::new(Pieces(bytes), answers.begin());
        let began = Instant::now();
        let take = async {
            for _ in 0..seconds {
                tokio::time::sleep(Duration::from_secs(1)).await;
                std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            }
        };
        tokio::select! {
            still = answers.still(STALL, IDLE) => Some((still, began.elapsed().as_secs())),
            () = take => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_to_move() {
        assert_eq!(taking(100, 200).await, Some((CloseReason::Stalled, 30)));
        assert_eq!(taking(1 << 10, 200).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_the_client_does_not_read_ends_although_others_move() {
        let answers = OpenResponses::new();
        let began = Instant::now();
        let _stalled = Tracked::new(Pieces(1), answers.begin());
        let mut other = Tracked::new(Pieces(32 << 10), answers.begin());
        let take = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                std::future::poll_fn(|cx| Pin::new(&mut other).poll_frame(cx)).await;
            }
        };
        tokio::select! {
            still = answers.still(STALL, IDLE) => assert_eq!(still, CloseReason::Stalled),
            () = take => {}
        }
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_of_the_server_does_not_count_as_a_slow_client() {
        let answers = OpenResponses::new();
        let began = Instant::now();
        let ticket = answers.begin();
        let end = tokio::time::timeout(STALL * 5, answers.still(STALL, IDLE)).await;
        assert!(end.is_err());
        drop(ticket);
        assert_eq!(answers.still(STALL, IDLE).await, CloseReason::Idle);
        assert_eq!(began.elapsed().as_secs(), 170);
    }
}
