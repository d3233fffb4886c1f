//! A connection that must make progress.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that count as progress. A client that reads single bytes now and then makes none.
pub(crate) const STEP: u64 = 16 << 10;

/// Closes a connection if a write waits and the client reads fewer than [`STEP`] bytes within the limit.
///
/// Reads have no limit here, because requests have their own timeouts.
pub(crate) struct StallGuard<S> {
    inner: S,
    limit: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timer was started.
    moved: u64,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(inner: S, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            timer: None,
            moved: 0,
        }
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(Ok(value)) => {
                self.moved += bytes(&value) as u64;
                if self.moved >= STEP {
                    self.timer = None;
                    self.moved = 0;
                }
                Poll::Ready(Ok(value))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let limit = self.limit;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
                match timer.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(cx, outcome, |n| *n)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.watch(cx, outcome, |n| *n)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        if matches!(outcome, Poll::Ready(Ok(()))) {
            // Nothing waits any more: the next answer gets the whole limit.
            self.timer = None;
            self.moved = 0;
        }
        self.watch(cx, outcome, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, outcome, |()| 0)
    }
}

/// A connection whose client must begin: until it has sent a number of bytes, reads have a timeout.
///
/// HTTP/1 has a limit for the head of a request; an HTTP/2 client could be silent before its first frame.
pub(crate) struct Opening<S> {
    inner: S,
    left: usize,
    timer: Pin<Box<Sleep>>,
}

impl<S> Opening<S> {
    pub(crate) fn new(inner: S, bytes: usize, limit: Duration) -> Self {
        Self {
            inner,
            left: bytes,
            timer: Box::pin(sleep(limit)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.left = self.left.saturating_sub(buffer.filled().len() - before);
        if outcome.is_pending() && self.left > 0 && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_begin_is_cut_off() {
        let (near, mut far) = duplex(1024);
        far.write_all(b"PRI").await.unwrap();
        let mut opening = Opening::new(near, 24, LIMIT);
        let error = opening.read_exact(&mut [0; 24]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_begun_may_pause() {
        let (near, mut far) = duplex(1024);
        far.write_all(&[0; 24]).await.unwrap();
        let mut opening = Opening::new(near, 24, LIMIT);
        opening.read_exact(&mut [0; 24]).await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(LIMIT * 2).await;
            far.write_all(&[0; 1]).await.unwrap();
        });
        opening.read_exact(&mut [0; 1]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_cut_off() {
        let (near, _far) = duplex(1024);
        let mut guarded = StallGuard::new(near, LIMIT);
        let error = guarded.write_all(&[0; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_trickles_is_cut_off() {
        let (near, mut far) = duplex(1024);
        let mut guarded = StallGuard::new(near, LIMIT);
        tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let error = guarded.write_all(&vec![0; 1 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_reader_gets_everything() {
        let (near, mut far) = duplex(1024);
        let mut guarded = StallGuard::new(near, LIMIT);
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            let mut total = 0;
            while let Ok(n) = far.read(&mut buffer).await {
                if n == 0 {
                    break;
                }
                total += n;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            total
        });
        guarded.write_all(&vec![0; 200 << 10]).await.unwrap();
        drop(guarded);
        assert_eq!(reader.await.unwrap(), 200 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_between_two_answers_does_not_count() {
        let (near, mut far) = duplex(1024);
        let mut guarded = StallGuard::new(near, LIMIT);
        let reader = tokio::spawn(async move {
            let mut all = vec![0; 8192];
            tokio::time::sleep(Duration::from_millis(50)).await;
            far.read_exact(&mut all[..4096]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(850)).await;
            far.read_exact(&mut all[4096..]).await.unwrap();
        });
        guarded.write_all(&[0; 4096]).await.unwrap();
        guarded.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        guarded.write_all(&[0; 4096]).await.unwrap();
        reader.await.unwrap();
    }
}
