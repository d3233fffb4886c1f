//! Bodies read from immutable files as the client takes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::JoinHandle;

/// The number of bytes for one read: large enough for TLS, small enough for many clients.
const CHUNK: usize = 64 << 10;

/// A piece of a body.
#[derive(Debug, Clone)]
pub(crate) enum Chunk {
    /// These bytes.
    Bytes(Bytes),
    /// This stretch of a file that does not change.
    File(Arc<File>, Range<u64>),
}

impl Chunk {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end.saturating_sub(range.start),
        }
    }
}

/// The body of a response: pieces in order, of known length.
///
/// Data in the page cache is read in place; only reads from the disk use a separate thread.
#[derive(Debug, Default)]
pub struct Body {
    parts: VecDeque<Chunk>,
    remaining: u64,
    reading: Option<JoinHandle<(VecDeque<Chunk>, io::Result<Bytes>)>>,
}

impl Body {
    pub(crate) fn new(parts: impl IntoIterator<Item = Chunk>) -> Self {
        let parts: VecDeque<Chunk> = parts.into_iter().filter(|part| part.len() > 0).collect();
        let remaining = parts.iter().map(Chunk::len).sum();
        Self {
            parts,
            remaining,
            reading: None,
        }
    }

    /// Bytes still to come.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::new([Chunk::Bytes(bytes)])
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.reading.is_none() {
            match next_chunk(&mut self.parts, Wait::No) {
                Ok(bytes) => return Poll::Ready(self.emit(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut parts = std::mem::take(&mut self.parts);
                    self.reading = Some(tokio::task::spawn_blocking(move || {
                        let chunk = next_chunk(&mut parts, Wait::Yes);
                        (parts, chunk)
                    }));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        let Some(reading) = self.reading.as_mut() else {
            return Poll::Ready(None);
        };
        let (parts, chunk) = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other)?;
        self.reading = None;
        self.parts = parts;
        match chunk {
            Ok(bytes) => Poll::Ready(self.emit(bytes)),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

impl Body {
    fn emit(&mut self, bytes: Bytes) -> Option<io::Result<Frame<Bytes>>> {
        self.remaining = self.remaining.saturating_sub(bytes.len() as u64);
        (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
    }
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    No,
    Yes,
}

/// Reads the next bytes of the parts, small parts together; empty at the end. The error `WouldBlock` means that nothing
/// was read, because the data is not cached.
fn next_chunk(parts: &mut VecDeque<Chunk>, wait: Wait) -> io::Result<Bytes> {
    let mut buffer = Vec::new();
    while let Some(part) = parts.front_mut() {
        match part {
            Chunk::Bytes(bytes) => {
                if buffer.is_empty() {
                    let bytes = std::mem::take(bytes);
                    parts.pop_front();
                    return Ok(bytes);
                }
                if buffer.len() + bytes.len() > CHUNK {
                    break;
                }
                buffer.extend_from_slice(bytes);
                parts.pop_front();
            }
            Chunk::File(file, range) => {
                let room = CHUNK.saturating_sub(buffer.len());
                let wanted = usize::try_from(range.end - range.start)
                    .unwrap_or(CHUNK)
                    .min(room);
                if wanted == 0 {
                    break;
                }
                let taken = match append(&mut buffer, file, range.start, wanted, wait) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && !buffer.is_empty() => break,
                    other => other?,
                };
                range.start += taken as u64;
                if range.start >= range.end {
                    parts.pop_front();
                }
            }
        }
    }
    Ok(Bytes::from(buffer))
}

/// Reads up to `wanted` bytes behind the buffer's end.
fn append(buffer: &mut Vec<u8>, file: &File, offset: u64, wanted: usize, wait: Wait) -> io::Result<usize> {
    let filled = buffer.len();
    buffer.resize(filled + wanted, 0);
    let space = buffer.get_mut(filled..).unwrap_or_default();
    let read = match wait {
        Wait::Yes => file.read_at(space, offset),
        Wait::No => read_cached(file, space, offset),
    };
    buffer.truncate(filled + read.as_ref().copied().unwrap_or_default());
    match read {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}

/// Reads bytes from the page cache. The error `WouldBlock` means that nothing was read.
#[cfg(target_os = "linux")]
fn read_cached(file: &File, space: &mut [u8], offset: u64) -> io::Result<usize> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let mut spaces = [io::IoSliceMut::new(space)];
    match preadv2(file, &mut spaces, offset, ReadWriteFlags::NOWAIT) {
        // Some file systems do not report cached data.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::AGAIN) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        other => other.map_err(io::Error::from),
    }
}

/// Other kernels do not say what is cached: a separate thread reads.
#[cfg(not(target_os = "linux"))]
fn read_cached(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_arrive_in_order_whatever_their_size() {
        let mut file = tempfile::tempfile().unwrap();
        let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&text).unwrap();
        let file = Arc::new(file);
        let ranges = [10..11, 1_000_000..1_200_000, 0..70_000, 5..5, 100..200, 200..300];
        let mut parts = vec![Chunk::Bytes(Bytes::from_static(b"head"))];
        let mut expected = b"head".to_vec();
        for range in ranges {
            parts.push(Chunk::File(
                Arc::clone(&file),
                range.start as u64..range.end as u64,
            ));
            expected.extend(&text[range]);
        }
        parts.push(Chunk::Bytes(Bytes::from_static(b"tail")));
        expected.extend(b"tail");
        let body = Body::new(parts);
        assert_eq!(body.remaining(), expected.len() as u64);
        assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
    }

    #[tokio::test]
    async fn a_file_that_is_shorter_than_promised_breaks_the_body_off() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let body = Body::new([Chunk::File(file, 0..10)]);
        assert_eq!(
            body.collect().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
