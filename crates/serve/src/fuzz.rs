//! Parsers of untrusted bytes that are not public otherwise, for fuzzing.

/// A description as HTML.
pub fn markdown(text: &str) -> String {
    crate::site::description(text)
}
