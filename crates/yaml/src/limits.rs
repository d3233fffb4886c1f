//! Limits on input.

/// Limits of one document. A document that exceeds one causes an error and is never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document; also the bytes of text that aliases may copy.
    pub bytes: usize,
    /// The nesting depth of mappings and sequences.
    pub depth: usize,
    /// Scalars, mappings and sequences in the result, including copies by aliases. In a JSON value, commas and opening
    /// brackets are counted, which are as many as its members and elements.
    pub nodes: usize,
    /// The treatment of a key that occurs twice in one mapping.
    pub duplicate_keys: DuplicateKeys,
}

/// The treatment of a key that occurs twice in one mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// The last value counts, as in the lenient readers of Kubernetes.
    #[default]
    LastWins,
    /// An error, as in the strict readers of Kubernetes.
    Refuse,
}

impl Default for Limits {
    /// 128 MiB, 120 levels (so that a JSON parser with the usual limit of 128 can parse the result) and ten million
    /// nodes: several times the size of the largest known catalogs and custom resource definitions.
    fn default() -> Self {
        Self {
            bytes: 128 << 20,
            depth: 120,
            nodes: 10_000_000,
            duplicate_keys: DuplicateKeys::LastWins,
        }
    }
}
