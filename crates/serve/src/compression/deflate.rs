//! Deflate in pieces, and the gzip checksum.

use std::io;

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};

/// The header of a gzip stream.
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// A last, empty block.
const END: [u8; 2] = [3, 0];
/// Enough room for a flush to make progress.
const ROOM: usize = 64 << 10;

/// The running checksum and length of a gzip stream.
#[derive(Default)]
pub(super) struct GzipChecksum(Hasher);

impl GzipChecksum {
    pub(super) fn append(&mut self, crc: u32, length: u64) {
        self.0.combine(&Hasher::new_with_initial_len(crc, length));
    }

    pub(super) fn trailer(&self) -> [u8; 10] {
        let [e0, e1] = END;
        let [c0, c1, c2, c3] = self.0.clone().finalize().to_le_bytes();
        // The format counts the length modulo 2^32.
        let [l0, l1, l2, l3, ..] = self.0.total_len().to_le_bytes();
        [e0, e1, c0, c1, c2, c3, l0, l1, l2, l3]
    }
}

/// A deflate stream.
pub(super) struct Deflate {
    state: Compress,
    out: Vec<u8>,
}

impl Deflate {
    pub(super) fn new() -> Self {
        Self {
            state: Compress::new(Compression::new(5), false),
            out: Vec::new(),
        }
    }

    /// Compresses plain bytes and returns the output.
    pub(super) fn push(&mut self, mut plain: &[u8], flush: FlushCompress) -> io::Result<&[u8]> {
        self.out.clear();
        loop {
            self.out.reserve(ROOM);
            let (taken, made) = (self.state.total_in(), self.out.len());
            let status = self
                .state
                .compress_vec(plain, &mut self.out, flush)
                .map_err(io::Error::other)?;
            let taken = usize::try_from(self.state.total_in() - taken).unwrap_or(usize::MAX);
            plain = plain.get(taken..).unwrap_or_default();
            // If the output buffer is not full, the compressor holds back only the data that the flush mode allows.
            let done = plain.is_empty() && self.out.len() < self.out.capacity();
            if done || (status == Status::BufError && taken == 0 && self.out.len() == made) {
                return Ok(&self.out);
            }
        }
    }
}
