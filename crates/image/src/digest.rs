//! Content digests: `algorithm:hex`, parsed strictly, and computed while bytes stream by.

use std::fmt;

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The name of an image, a layer or any other blob by its content.
///
/// Only algorithms that can be verified here are accepted: `sha256`, `sha384`, `sha512`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// Error of a text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Not of the form `algorithm:hex` in lower case.
    #[error("invalid checksum digest format")]
    Format,
    /// The number of hex digits does not belong to the algorithm.
    #[error("invalid checksum digest length")]
    Length,
    /// An algorithm that cannot be verified here.
    #[error("unsupported digest algorithm")]
    Algorithm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    const fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

impl Digest {
    /// Parses `algorithm:hex`.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::Format)?;
        let algorithm = match algorithm {
            "sha256" => Algorithm::Sha256,
            "sha384" => Algorithm::Sha384,
            "sha512" => Algorithm::Sha512,
            "" => return Err(DigestError::Format),
            _ => return Err(DigestError::Algorithm),
        };
        if hex.len() != algorithm.hex_length() {
            return Err(DigestError::Length);
        }
        if !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(DigestError::Format);
        }
        Ok(Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// The sha256 digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The algorithm, for example `sha256`.
    pub const fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// The lower-case hex digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl std::str::FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A running digest in a digest's own algorithm.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Box<Sha256>),
    Sha384(Box<Sha384>),
    Sha512(Box<Sha512>),
}

impl Hasher {
    pub(crate) fn sha256() -> Self {
        Self::Sha256(Box::default())
    }

    /// A hasher whose result can be compared with `expected`.
    pub(crate) fn like(expected: &Digest) -> Self {
        match expected.algorithm {
            Algorithm::Sha256 => Self::sha256(),
            Algorithm::Sha384 => Self::Sha384(Box::default()),
            Algorithm::Sha512 => Self::Sha512(Box::default()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha384(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest {
                algorithm: Algorithm::Sha256,
                hex: to_hex(&hasher.finalize()),
            },
            Self::Sha384(hasher) => Digest {
                algorithm: Algorithm::Sha384,
                hex: to_hex(&hasher.finalize()),
            },
            Self::Sha512(hasher) => Digest {
                algorithm: Algorithm::Sha512,
                hex: to_hex(&hasher.finalize()),
            },
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_parsed_strictly() {
        let check = |text: &str, expected: Result<(), DigestError>| {
            assert_eq!(
                Digest::parse(text).map(|digest| assert_eq!(digest.to_string(), text)),
                expected,
                "{text}"
            );
        };
        check(&format!("sha256:{}", "0a".repeat(32)), Ok(()));
        check(&format!("sha384:{}", "0a".repeat(48)), Ok(()));
        check(&format!("sha512:{}", "0a".repeat(64)), Ok(()));
        check(&format!("sha256:{}", "0a".repeat(31)), Err(DigestError::Length));
        check(&format!("sha256:{}", "0A".repeat(32)), Err(DigestError::Format));
        check(&format!("md5:{}", "0a".repeat(16)), Err(DigestError::Algorithm));
        check("sha256", Err(DigestError::Format));
        check("", Err(DigestError::Format));
        check(&format!(":{}", "0a".repeat(32)), Err(DigestError::Format));
    }

    #[test]
    fn a_digest_names_its_content() {
        assert_eq!(
            Digest::of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let expected = Digest::parse(&format!("sha512:{}", "0".repeat(128))).unwrap();
        let mut hasher = Hasher::like(&expected);
        hasher.update(b"abc");
        assert_eq!(
            hasher.finish().hex(),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        );
    }
}
