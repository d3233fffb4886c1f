//! Readers of foreign bytes that have no other public door, for those who throw bytes at them.

/// A description as it is shown.
pub fn markdown(text: &str) -> String {
    crate::site::description(text)
}
