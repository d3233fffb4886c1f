//! Gzip that can be cut: a catalog is coded once, in stretches that do not refer to each other, so that any choice of
//! whole stretches becomes one gzip stream by putting their stored bytes behind each other.
//!
//! ```text
//! header │ stretch │ stretch │ … │ end │ CRC-32, length
//!           ▲ each ends on a byte boundary with an empty dictionary (a full flush)
//! ```
//!
//! The check value of the whole follows from those of the stretches, without touching their bytes.

use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};
use serde::{Deserialize, Serialize};

const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// A last, empty block.
const END: [u8; 2] = [3, 0];
/// Enough room for a flush to make progress.
const ROOM: usize = 64 << 10;

/// One stretch of a catalog that is coded on its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// Where it lies in the plain file.
    pub(crate) plain: Range<u64>,
    /// Where it lies in the coded file.
    pub(crate) coded: Range<u64>,
    /// CRC-32 of the plain bytes.
    pub(crate) crc: u32,
}

/// Writes a gzip file stretch by stretch.
pub(crate) struct Coder<W> {
    out: W,
    deflate: Deflate,
    check: Check,
    plain: u64,
    coded: u64,
    stretches: Vec<Stretch>,
}

impl<W: Write> Coder<W> {
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let coded = HEADER.len() as u64;
        Ok(Self {
            out,
            deflate: Deflate::new(),
            check: Check::default(),
            plain: 0,
            coded,
            stretches: Vec::new(),
        })
    }

    /// Codes the chunks as one stretch.
    pub(crate) fn stretch(&mut self, chunks: impl Iterator<Item = io::Result<Bytes>>) -> io::Result<()> {
        let (plain, coded) = (self.plain, self.coded);
        let mut check = Hasher::new();
        for chunk in chunks {
            let chunk = chunk?;
            check.update(&chunk);
            self.plain += chunk.len() as u64;
            let written = self.deflate.push(&chunk, FlushCompress::None)?;
            self.coded += written.len() as u64;
            self.out.write_all(written)?;
        }
        let written = self.deflate.push(&[], FlushCompress::Full)?;
        self.coded += written.len() as u64;
        self.out.write_all(written)?;
        let crc = check.finalize();
        self.check.append(crc, self.plain - plain);
        self.stretches.push(Stretch {
            plain: plain..self.plain,
            coded: coded..self.coded,
            crc,
        });
        Ok(())
    }

    /// Ends the file.
    pub(crate) fn finish(mut self) -> io::Result<(W, Vec<Stretch>)> {
        self.out.write_all(&self.check.trailer())?;
        self.out.flush()?;
        Ok((self.out, self.stretches))
    }
}

/// Puts a gzip stream together out of stored stretches and bytes coded on the way.
pub(crate) struct Splice {
    check: Check,
}

impl Splice {
    /// The stream and the bytes it starts with.
    pub(crate) fn new() -> (Self, Bytes) {
        (
            Self {
                check: Check::default(),
            },
            Bytes::from_static(&HEADER),
        )
    }

    /// Takes note of a stored stretch, whose coded bytes the caller sends.
    pub(crate) fn stored(&mut self, stretch: &Stretch) {
        self.check
            .append(stretch.crc, stretch.plain.end - stretch.plain.start);
    }

    /// Codes plain bytes to be sent next.
    pub(crate) fn code(&mut self, plain: &[u8]) -> io::Result<Bytes> {
        self.check.append(crc32fast::hash(plain), plain.len() as u64);
        let mut deflate = Deflate::new();
        deflate.push(plain, FlushCompress::Full)?;
        Ok(Bytes::from(deflate.out))
    }

    /// The bytes that end the stream.
    pub(crate) fn end(self) -> Bytes {
        Bytes::copy_from_slice(&self.check.trailer())
    }
}

/// The bytes as one gzip stream.
pub(crate) fn gzip(plain: &[u8]) -> io::Result<Bytes> {
    let mut coder = Coder::new(Vec::new())?;
    coder.stretch(std::iter::once(Ok(Bytes::copy_from_slice(plain))))?;
    Ok(coder.finish()?.0.into())
}

/// The running check value and length of a gzip stream.
#[derive(Default)]
struct Check(Hasher);

impl Check {
    fn append(&mut self, crc: u32, length: u64) {
        self.0.combine(&Hasher::new_with_initial_len(crc, length));
    }

    fn trailer(&self) -> [u8; 10] {
        let [e0, e1] = END;
        let [c0, c1, c2, c3] = self.0.clone().finalize().to_le_bytes();
        // The format counts the length modulo 2^32.
        let [l0, l1, l2, l3, ..] = self.0.total_len().to_le_bytes();
        [e0, e1, c0, c1, c2, c3, l0, l1, l2, l3]
    }
}

struct Deflate {
    state: Compress,
    out: Vec<u8>,
}

impl Deflate {
    fn new() -> Self {
        Self {
            state: Compress::new(Compression::new(5), false),
            out: Vec::new(),
        }
    }

    /// Feeds plain bytes and returns what came out.
    fn push(&mut self, mut plain: &[u8], flush: FlushCompress) -> io::Result<&[u8]> {
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
            // Output that leaves room means that nothing is held back but what the flush mode allows.
            let done = plain.is_empty() && self.out.len() < self.out.capacity();
            if done || (status == Status::BufError && taken == 0 && self.out.len() == made) {
                return Ok(&self.out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn unzip(coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        // Not the decoder for several members: what is sent has to be one.
        GzDecoder::new(coded).read_to_end(&mut plain).unwrap();
        plain
    }

    fn texts() -> Vec<Vec<u8>> {
        let mut seed = 7_u32;
        let mut noise = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_le_bytes()[3]
        };
        let incompressible = (0..200_000).map(|_| noise()).collect();
        vec![
            b"{\"schema\":\"olm.package\"}\n".repeat(3),
            Vec::new(),
            b"the same text again and again ".repeat(20_000),
            incompressible,
            b"the same text again and again ".repeat(10),
        ]
    }

    fn coded() -> (Vec<u8>, Vec<Stretch>) {
        let mut coder = Coder::new(Vec::new()).unwrap();
        for text in texts() {
            coder
                .stretch(text.chunks(70_000).map(|c| Ok(Bytes::copy_from_slice(c))))
                .unwrap();
        }
        coder.finish().unwrap()
    }

    #[test]
    fn the_whole_file_is_one_gzip_member() {
        let (file, stretches) = coded();
        assert_eq!(unzip(&file), texts().concat());
        assert_eq!(stretches.len(), 5);
        assert_eq!(stretches.last().unwrap().coded.end + 10, file.len() as u64);
        assert!(file.len() < 220_000);
    }

    #[test]
    fn any_choice_of_stretches_is_one_gzip_member() {
        let (file, stretches) = coded();
        let texts = texts();
        for choice in 0_u32..32 {
            let (mut splice, header) = Splice::new();
            let (mut sent, mut expected) = (header.to_vec(), Vec::<u8>::new());
            for (index, stretch) in stretches.iter().enumerate() {
                if choice & (1 << index) != 0 {
                    let range = usize::try_from(stretch.coded.start).unwrap()
                        ..usize::try_from(stretch.coded.end).unwrap();
                    splice.stored(stretch);
                    sent.extend(&file[range]);
                    expected.extend(&texts[index]);
                } else if index % 2 == 0 {
                    sent.extend(splice.code(&texts[index][..texts[index].len() / 2]).unwrap());
                    expected.extend(&texts[index][..texts[index].len() / 2]);
                }
            }
            sent.extend(splice.end());
            assert_eq!(unzip(&sent), expected, "{choice:b}");
        }
    }
}
