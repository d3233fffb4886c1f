//! Coded content that can be cut: a catalog is coded once, in stretches that do not refer to each other, so that any
//! choice of whole stretches becomes one stream by putting their stored bytes behind each other.
//!
//! ```text
//! gzip   header │ stretch │ stretch │ … │ end │ CRC-32, length
//!                  ▲ each ends on a byte boundary with an empty dictionary (a full flush)
//! zstd   stretch │ stretch │ …          each is a frame
//! ```
//!
//! The check value of a gzip stream follows from those of the stretches, without touching their bytes.

use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::FlushCompress;
use serde::{Deserialize, Serialize};
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation as _, OutBuffer};

use crate::deflate::{Check, Deflate, HEADER};

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Gzip,
    Zstd,
}

/// The level of zstd: better and faster than what gzip gets.
const LEVEL: i32 = 5;
/// How far zstd looks back, and the places it remembers, as powers of two: 2 MiB instead of the 6 of the level, for 0.1 % more
/// bytes in stretches.
const WINDOW: u32 = 20;
const HASHES: u32 = 17;
/// Room for what zstd hands out at a time.
const ROOM: usize = 128 << 10;

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

/// Writes a coded file stretch by stretch.
pub(crate) struct Coder<W> {
    out: W,
    squeeze: Squeeze,
    check: Check,
    plain: u64,
    coded: u64,
    stretches: Vec<Stretch>,
}

impl<W: Write> Coder<W> {
    pub(crate) fn new(format: Format, mut out: W) -> io::Result<Self> {
        let header = header(format);
        out.write_all(header)?;
        Ok(Self {
            out,
            squeeze: Squeeze::new(format)?,
            check: Check::default(),
            plain: 0,
            coded: header.len() as u64,
            stretches: Vec::new(),
        })
    }

    /// Codes the chunks, of so many bytes together, as one stretch.
    pub(crate) fn stretch(
        &mut self,
        length: u64,
        chunks: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let (plain, coded) = (self.plain, self.coded);
        self.squeeze.begin_stretch(length)?;
        let mut check = Hasher::new();
        let (out, written) = (&mut self.out, &mut self.coded);
        let mut emit = |bytes: &[u8]| {
            *written += bytes.len() as u64;
            out.write_all(bytes)
        };
        for chunk in chunks {
            let chunk = chunk?;
            check.update(&chunk);
            self.plain += chunk.len() as u64;
            self.squeeze.push(&chunk, &mut emit)?;
        }
        self.squeeze.end_stretch(&mut emit)?;
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
        if let Squeeze::Deflate(_) = self.squeeze {
            self.out.write_all(&self.check.trailer())?;
        }
        self.out.flush()?;
        Ok((self.out, self.stretches))
    }
}

/// Puts a stream together out of stored stretches and bytes coded on the way.
pub(crate) struct Splice {
    format: Format,
    check: Check,
}

impl Splice {
    /// The stream and the bytes it starts with.
    pub(crate) fn new(format: Format) -> (Self, Bytes) {
        let check = Check::default();
        (Self { format, check }, Bytes::from_static(header(format)))
    }

    /// Takes note of a stored stretch, whose coded bytes the caller sends.
    pub(crate) fn stored(&mut self, stretch: &Stretch) {
        self.check
            .append(stretch.crc, stretch.plain.end - stretch.plain.start);
    }

    /// Codes plain bytes to be sent next.
    pub(crate) fn code(&mut self, plain: &[u8]) -> io::Result<Bytes> {
        self.check.append(crc32fast::hash(plain), plain.len() as u64);
        let mut squeeze = Squeeze::new(self.format)?;
        let mut coded = Vec::new();
        let mut emit = |bytes: &[u8]| {
            coded.extend_from_slice(bytes);
            Ok(())
        };
        squeeze.begin_stretch(plain.len() as u64)?;
        squeeze.push(plain, &mut emit)?;
        squeeze.end_stretch(&mut emit)?;
        Ok(coded.into())
    }

    /// The bytes that end the stream.
    pub(crate) fn end(self) -> Bytes {
        match self.format {
            Format::Gzip => Bytes::copy_from_slice(&self.check.trailer()),
            Format::Zstd => Bytes::new(),
        }
    }
}

/// The bytes as one stream.
pub(crate) fn code(format: Format, plain: &[u8]) -> io::Result<Bytes> {
    let (mut splice, header) = Splice::new(format);
    let coded = splice.code(plain)?;
    Ok([header, coded, splice.end()].concat().into())
}

fn header(format: Format) -> &'static [u8] {
    match format {
        Format::Gzip => &HEADER,
        Format::Zstd => &[],
    }
}

enum Squeeze {
    Deflate(Deflate),
    Zstd(Encoder<'static>, Vec<u8>),
}

impl Squeeze {
    fn new(format: Format) -> io::Result<Self> {
        Ok(match format {
            Format::Gzip => Self::Deflate(Deflate::new()),
            Format::Zstd => {
                let mut encoder = Encoder::new(LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW))?;
                encoder.set_parameter(CParameter::HashLog(HASHES))?;
                // Four bytes a stretch, so that clients find damage as those of gzip do.
                encoder.set_parameter(CParameter::ChecksumFlag(true))?;
                Self::Zstd(encoder, Vec::with_capacity(ROOM))
            }
        })
    }

    /// What is known of the length makes zstd's tables no larger than they need to be.
    fn begin_stretch(&mut self, length: u64) -> io::Result<()> {
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

    fn end_stretch(&mut self, emit: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
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

    fn decode(format: Format, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match format {
            // Not the decoder for several members: what is sent has to be one.
            Format::Gzip => GzDecoder::new(coded).read_to_end(&mut plain).unwrap(),
            Format::Zstd => zstd::Decoder::new(coded)
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

    const FORMATS: [Format; 2] = [Format::Gzip, Format::Zstd];

    fn coded(format: Format) -> (Vec<u8>, Vec<Stretch>) {
        let mut coder = Coder::new(format, Vec::new()).unwrap();
        for text in texts() {
            coder
                .stretch(
                    text.len() as u64,
                    text.chunks(70_000).map(|c| Ok(Bytes::copy_from_slice(c))),
                )
                .unwrap();
        }
        coder.finish().unwrap()
    }

    #[test]
    fn the_whole_file_is_one_stream() {
        for format in FORMATS {
            let (file, stretches) = coded(format);
            assert_eq!(decode(format, &file), texts().concat());
            assert_eq!(stretches.len(), 5);
            let trailer = if format == Format::Gzip { 10 } else { 0 };
            assert_eq!(stretches.last().unwrap().coded.end + trailer, file.len() as u64);
            assert!(file.len() < 220_000);
        }
    }

    #[test]
    fn small_bodies_are_one_stream_too() {
        for format in FORMATS {
            for text in texts() {
                assert_eq!(decode(format, &code(format, &text).unwrap()), text);
            }
        }
    }

    #[test]
    fn any_choice_of_stretches_is_one_stream() {
        let texts = texts();
        for (format, choice) in FORMATS
            .into_iter()
            .flat_map(|format| (0_u32..32).map(move |choice| (format, choice)))
        {
            let (file, stretches) = coded(format);
            let (mut splice, header) = Splice::new(format);
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
            assert_eq!(decode(format, &sent), expected, "{format:?} {choice:b}");
        }
    }
}
