//! The hashes in names, labels and annotations. Clients predict some of them.

use sha2::{Digest as _, Sha224};

const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The SHA-224 digest of a text in base 62, without padding.
pub fn text(text: &str) -> String {
    base62(&Sha224::digest(text.as_bytes()))
}

/// A big-endian integer in base 62: digits, then small letters, then capitals.
pub fn base62(bytes: &[u8]) -> String {
    let mut number = bytes.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut remainder: u16 = 0;
        for byte in &mut number {
            let value = remainder * 256 + u16::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or_default();
            remainder = value % 62;
        }
        digits.extend(
            ALPHABET
                .get(usize::from(remainder))
                .map(|digit| char::from(*digit)),
        );
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.iter().rev().collect()
}

/// The FNV-1a hash of 64 bits of a text in hexadecimal, without padding.
pub fn fnv(text: &str) -> String {
    let hash = text.bytes().fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    });
    format!("{hash:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_clients_predict() {
        assert_eq!(
            text("operators/global-operators/admin"),
            "5UD4U2IfBGbw51Qy2Jaefk1uawvkj2OJILlc3w"
        );
        assert_eq!(
            text("operators/global-operators/edit"),
            "9ZbzBIwu1SlHO7KbWinNtOfyGaVjTWIYhNkNP"
        );
        assert_eq!(
            fnv("EtcdCluster.v1beta2.etcd.database.coreos.com"),
            "c571d720f17289d3"
        );
        assert_eq!(fnv("ns1/csv.v1"), "14d127f7b01f0089");
    }

    #[test]
    fn base62_has_no_leading_zeros() {
        assert_eq!(base62(&[0, 0]), "0");
        assert_eq!(base62(&[0, 61]), "Z");
        assert_eq!(base62(&[0, 62]), "10");
        assert_eq!(base62(&[1, 0]), "48");
    }
}
