//! Blobs on their way from a registry to a reader in another thread: verified, resumed, with back-pressure.

use std::io::{self, BufRead, Read};

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue, RANGE};
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc;

use super::error::RegistryError;
use super::session::{Session, jitter};
use crate::digest::Hasher;
use crate::manifest::Blob;

/// Chunks that may wait for the reader: enough to keep both sides busy. When the registry is faster than the reader,
/// each is as large as the HTTP client's buffer becomes, 408 KiB.
const CHUNKS: usize = 2;

/// A pipe from a transfer to a blocking reader.
pub(crate) fn pipe() -> (mpsc::Sender<io::Result<Bytes>>, PipeReader) {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    (
        sender,
        PipeReader {
            receiver,
            chunk: Bytes::new(),
            ended: false,
        },
    )
}

/// Reads what a transfer sends. Only for threads that may block.
pub(crate) struct PipeReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
    ended: bool,
}

impl BufRead for PipeReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk?,
                None => return Err(io::Error::other("the transfer was cut off")),
            }
            // The sender marks the end by an empty chunk, so that a dropped sender is never taken for it.
            self.ended = self.chunk.is_empty();
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, amount: usize) {
        let _ = self.chunk.split_to(amount.min(self.chunk.len()));
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// Transfers a blob into a pipe and verifies it. A broken transfer continues where it stopped, at the next place when
/// one place fails for good. When this fails, the reader sees an error too, never an early end.
pub(crate) async fn transfer(
    sessions: &[Session<'_>],
    blob: &Blob,
    sender: mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), RegistryError> {
    let what = format!("blob {}", blob.digest);
    let mut progress = Progress {
        hasher: Hasher::like(&blob.digest),
        received: 0,
    };
    let mut result = Err(RegistryError::GivenUp);
    for session in sessions {
        result = transfer_from(session, blob, &what, &sender, &mut progress).await;
        if matches!(result, Ok(()) | Err(RegistryError::GivenUp)) {
            break;
        }
    }
    result?;
    if progress.received != blob.size {
        return Err(RegistryError::Size {
            what,
            expected: blob.size,
            actual: progress.received,
        });
    }
    let actual = progress.hasher.finish();
    if actual != blob.digest {
        return Err(RegistryError::Mismatch {
            what,
            expected: blob.digest.clone(),
            actual,
        });
    }
    sender
        .send(Ok(Bytes::new()))
        .await
        .map_err(|_| RegistryError::GivenUp)
}

/// Transfers what is still missing from one place, resuming while its faults are transient.
async fn transfer_from(
    session: &Session<'_>,
    blob: &Blob,
    what: &str,
    sender: &mpsc::Sender<io::Result<Bytes>>,
    progress: &mut Progress,
) -> Result<(), RegistryError> {
    let url = session.url(&format!("blobs/{}", blob.digest))?;
    let mut delays = session.delays();
    loop {
        let before = progress.received;
        let error = match attempt(session, &url, blob, what, sender, progress).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Every attempt that gets further earns the others back.
        if progress.received > before {
            delays = session.delays();
        }
        match delays.next() {
            Some(delay) if error.is_transient() => {
                tracing::debug!(registry = session.registry(), %error, received = progress.received, "resuming");
                tokio::time::sleep(jitter(*delay)).await;
            }
            _ => return Err(error),
        }
    }
}

struct Progress {
    hasher: Hasher,
    received: u64,
}

async fn attempt(
    session: &Session<'_>,
    url: &reqwest::Url,
    blob: &Blob,
    what: &str,
    sender: &mpsc::Sender<io::Result<Bytes>>,
    progress: &mut Progress,
) -> Result<(), RegistryError> {
    let mut headers = HeaderMap::new();
    if progress.received > 0 {
        let range = format!("bytes={}-", progress.received);
        headers.insert(
            RANGE,
            HeaderValue::from_str(&range).map_err(|error| session.protocol(&error))?,
        );
    }
    let mut response = session.send_once(Method::GET, url, &headers, what).await?;
    // A registry that ignores the range starts again from the first byte.
    let mut skip = if response.status() == StatusCode::PARTIAL_CONTENT {
        0
    } else {
        progress.received
    };
    while let Some(mut chunk) = response
        .chunk()
        .await
        .map_err(|error| session.unreachable(error))?
    {
        let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        let _ = chunk.split_to(skipped);
        skip -= skipped as u64;
        if chunk.is_empty() {
            continue;
        }
        progress.received += chunk.len() as u64;
        if progress.received > blob.size {
            return Err(RegistryError::Size {
                what: what.to_owned(),
                expected: blob.size,
                actual: progress.received,
            });
        }
        progress.hasher.update(&chunk);
        sender.send(Ok(chunk)).await.map_err(|_| RegistryError::GivenUp)?;
    }
    Ok(())
}
