//! Base64 as the values of catalogs, and of Secrets, carry it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

// Line breaks inside the text and stray bits after the last byte are accepted, missing padding is not.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The bytes behind `text`.
pub fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    if text.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let text: String = text
            .chars()
            .filter(|letter| !matches!(letter, '\n' | '\r'))
            .collect();
        return ENGINE.decode(text);
    }
    ENGINE.decode(text)
}

/// `bytes` as text.
pub fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}
