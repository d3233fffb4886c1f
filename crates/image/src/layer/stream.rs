//! The bytes of a layer: how they are compressed, and how many they become.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Limit at which the meter stopped the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Ratio,
    Size,
}

/// Counts decompressed bytes and stops when there are too many.
pub(super) struct Meter<R> {
    pub(super) inner: R,
    pub(super) read: u64,
    pub(super) by_ratio: u64,
    pub(super) by_size: u64,
    pub(super) tripped: Rc<Cell<Option<ExceededLimit>>>,
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        let trip = if self.read > self.by_size {
            ExceededLimit::Size
        } else if self.read > self.by_ratio {
            ExceededLimit::Ratio
        } else {
            return Ok(read);
        };
        self.tripped.set(Some(trip));
        Err(io::Error::other("limit"))
    }
}

/// The compression of a layer, by its first bytes: media types are wrong too often.
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    Unsupported(&'static str),
}

impl Compression {
    pub(super) const fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'B', b'Z', b'h', ..] => Self::Unsupported("bzip2"),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Unsupported("xz"),
            _ => Self::None,
        }
    }
}
