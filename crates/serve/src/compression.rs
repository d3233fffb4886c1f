//! Compressed content that can be cut: a catalog is compressed once, in segments that do not refer to each other, so
//! that the stored bytes of any choice of whole segments form one stream.
//!
//! ```text
//! gzip   header │ segment │ segment │ … │ end │ CRC-32, length
//!                  ▲ each ends on a byte boundary with an empty dictionary (a full flush)
//! zstd   segment │ segment │ …          each is a frame
//! ```
//!
//! The checksum of a gzip stream follows from those of its segments, without touching their bytes.

mod deflate;

use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::FlushCompress;
use serde::{Deserialize, Serialize};
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation as _, OutBuffer};

use deflate::{Deflate, GzipChecksum, HEADER};

/// A content encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Zstd,
}

/// The level of zstd: smaller and faster than gzip.
const LEVEL: i32 = 5;
/// Binary logarithms of the window and the hash table of zstd: 2 MiB of memory instead of the 6 of the level, for 0.1 %
/// more bytes in segments.
const WINDOW: u32 = 20;
const HASHES: u32 = 17;
/// The output buffer of zstd.
const ROOM: usize = 128 << 10;

/// A part of a catalog that is compressed on its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// The range in the plain file.
    pub(crate) plain: Range<u64>,
    /// The range in the compressed file.
    pub(crate) compressed: Range<u64>,
    /// CRC-32 of the plain bytes.
    pub(crate) crc: u32,
}

/// Writes a compressed file segment by segment.
pub(crate) struct SegmentWriter<W> {
    out: W,
    compressor: Compressor,
    check: GzipChecksum,
    plain: u64,
    compressed: u64,
    segments: Vec<Segment>,
}

impl<W: Write> SegmentWriter<W> {
    pub(crate) fn new(encoding: Encoding, mut out: W) -> io::Result<Self> {
        let header = header(encoding);
        out.write_all(header)?;
        Ok(Self {
            out,
            compressor: Compressor::new(encoding)?,
            check: GzipChecksum::default(),
            plain: 0,
            compressed: header.len() as u64,
            segments: Vec::new(),
        })
    }

    /// Compresses the chunks, `length` bytes in all, as one segment.
    pub(crate) fn segment(
        &mut self,
        length: u64,
        chunks: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let (plain, compressed) = (self.plain, self.compressed);
        self.compressor.begin_segment(length)?;
        let mut check = Hasher::new();
        let (out, written) = (&mut self.out, &mut self.compressed);
        let mut emit = |bytes: &[u8]| {
            *written += bytes.len() as u64;
            out.write_all(bytes)
        };
        for chunk in chunks {
            let chunk = chunk?;
            check.update(&chunk);
            self.plain += chunk.len() as u64;
            self.compressor.push(&chunk, &mut emit)?;
        }
        self.compressor.end_segment(&mut emit)?;
        let crc = check.finalize();
        self.check.append(crc, self.plain - plain);
        self.segments.push(Segment {
            plain: plain..self.plain,
            compressed: compressed..self.compressed,
            crc,
        });
        Ok(())
    }

    /// Ends the file.
    pub(crate) fn finish(mut self) -> io::Result<(W, Vec<Segment>)> {
        if let Compressor::Deflate(_) = self.compressor {
            self.out.write_all(&self.check.trailer())?;
        }
        self.out.flush()?;
        Ok((self.out, self.segments))
    }
}

/// Joins stored segments and freshly compressed bytes into one stream.
pub(crate) struct Splice {
    encoding: Encoding,
    check: GzipChecksum,
}

impl Splice {
    /// The stream and its first bytes.
    pub(crate) fn new(encoding: Encoding) -> (Self, Bytes) {
        let check = GzipChecksum::default();
        (Self { encoding, check }, Bytes::from_static(header(encoding)))
    }

    /// Adds a stored segment, whose compressed bytes the caller sends.
    pub(crate) fn stored(&mut self, segment: &Segment) {
        self.check
            .append(segment.crc, segment.plain.end - segment.plain.start);
    }

    /// Compresses the plain bytes that the caller sends next.
    pub(crate) fn compress(&mut self, plain: &[u8]) -> io::Result<Bytes> {
        self.check.append(crc32fast::hash(plain), plain.len() as u64);
        let mut compressor = Compressor::new(self.encoding)?;
        let mut coded = Vec::new();
        let mut emit = |bytes: &[u8]| {
            coded.extend_from_slice(bytes);
            Ok(())
        };
        compressor.begin_segment(plain.len() as u64)?;
        compressor.push(plain, &mut emit)?;
        compressor.end_segment(&mut emit)?;
        Ok(coded.into())
    }

    /// The bytes that end the stream.
    pub(crate) fn end(self) -> Bytes {
        match self.encoding {
            Encoding::Gzip => Bytes::copy_from_slice(&self.check.trailer()),
            Encoding::Zstd => Bytes::new(),
        }
    }
}

/// The bytes as one compressed stream.
pub(crate) fn compress(encoding: Encoding, plain: &[u8]) -> io::Result<Bytes> {
    let (mut splice, header) = Splice::new(encoding);
    let coded = splice.compress(plain)?;
    Ok([header, coded, splice.end()].concat().into())
}

fn header(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Gzip => &HEADER,
        Encoding::Zstd => &[],
    }
}

enum Compressor {
    Deflate(Deflate),
    Zstd(Encoder<'static>, Vec<u8>),
}

impl Compressor {
    fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(match encoding {
            Encoding::Gzip => Self::Deflate(Deflate::new()),
            Encoding::Zstd => {
                let mut encoder = Encoder::new(LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW))?;
                encoder.set_parameter(CParameter::HashLog(HASHES))?;
                // Four bytes a segment, so that clients find damage as those of gzip do.
                encoder.set_parameter(CParameter::ChecksumFlag(true))?;
                Self::Zstd(encoder, Vec::with_capacity(ROOM))
            }
        })
    }

    /// The length keeps the tables of zstd as small as possible.
    fn begin_segment(&mut self, length: u64) -> io::Result<()> {
        match self {
            Self::Deflate(_) => Ok(()),
            Self::Zstd(encoder, _) => encoder.set_pledged_src_size(Some(length)),
        }
    }

    fn push(&mut self, plain: &[u8], emit: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Deflate(deflate) => emit(deflate.push(plain, FlushCompress::None)?),
            Self::Zstd(encoder, room) => {
                let mut input = InBuffer::around(plain);
                while input.pos() < plain.len() {
                    room.clear();
                    encoder.run(&mut input, &mut OutBuffer::around(room))?;
                    emit(room)?;
                }
                Ok(())
            }
        }
    }

    fn end_segment(&mut self, emit: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Deflate(deflate) => emit(deflate.push(&[], FlushCompress::Full)?),
            Self::Zstd(encoder, room) => {
                loop {
                    room.clear();
                    let left = encoder.finish(&mut OutBuffer::around(room), true)?;
                    emit(room)?;
                    if left == 0 {
                        break;
                    }
                }
                encoder.reinit()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn decode(encoding: Encoding, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match encoding {
            // This decoder accepts only one member: the answer must consist of one.
            Encoding::Gzip => GzDecoder::new(coded).read_to_end(&mut plain).unwrap(),
            Encoding::Zstd => zstd::Decoder::new(coded)
                .unwrap()
                .read_to_end(&mut plain)
                .unwrap(),
        };
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

    const FORMATS: [Encoding; 2] = [Encoding::Gzip, Encoding::Zstd];

    fn coded(encoding: Encoding) -> (Vec<u8>, Vec<Segment>) {
        let mut writer = SegmentWriter::new(encoding, Vec::new()).unwrap();
        for text in texts() {
            writer
                .segment(
                    text.len() as u64,
                    text.chunks(70_000).map(|c| Ok(Bytes::copy_from_slice(c))),
                )
                .unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn the_whole_file_is_one_stream() {
        for encoding in FORMATS {
            let (file, segments) = coded(encoding);
            assert_eq!(decode(encoding, &file), texts().concat());
            assert_eq!(segments.len(), 5);
            let trailer = if encoding == Encoding::Gzip { 10 } else { 0 };
            assert_eq!(
                segments.last().unwrap().compressed.end + trailer,
                file.len() as u64
            );
            assert!(file.len() < 220_000);
        }
    }

    #[test]
    fn small_bodies_are_one_stream_too() {
        for encoding in FORMATS {
            for text in texts() {
                assert_eq!(decode(encoding, &compress(encoding, &text).unwrap()), text);
            }
        }
    }

    #[test]
    fn any_choice_of_segments_is_one_stream() {
        let texts = texts();
        for (encoding, choice) in FORMATS
            .into_iter()
            .flat_map(|encoding| (0_u32..32).map(move |choice| (encoding, choice)))
        {
            let (file, segments) = coded(encoding);
            let (mut splice, header) = Splice::new(encoding);
            let (mut sent, mut expected) = (header.to_vec(), Vec::<u8>::new());
            for (index, segment) in segments.iter().enumerate() {
                if choice & (1 << index) != 0 {
                    let range = usize::try_from(segment.compressed.start).unwrap()
                        ..usize::try_from(segment.compressed.end).unwrap();
                    splice.stored(segment);
                    sent.extend(&file[range]);
                    expected.extend(&texts[index]);
                } else if index % 2 == 0 {
                    sent.extend(splice.compress(&texts[index][..texts[index].len() / 2]).unwrap());
                    expected.extend(&texts[index][..texts[index].len() / 2]);
                }
            }
            sent.extend(splice.end());
            assert_eq!(decode(encoding, &sent), expected, "{encoding:?} {choice:b}");
        }
    }
}
