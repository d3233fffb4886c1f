//! How much of hostile input is read before it is refused.

/// Bounds on one document. What exceeds one of them is an error, never cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document; also the bytes of text that aliases may copy.
    pub bytes: usize,
    /// Mappings and sequences inside one another.
    pub depth: usize,
    /// Scalars, mappings and sequences in the result, counting what aliases copy. Of a JSON value its commas and opening
    /// brackets, which are as many as its members and elements.
    pub nodes: usize,
    /// What a key that occurs twice in one mapping means.
    pub duplicate_keys: DuplicateKeys,
}

/// What a key that occurs twice in one mapping means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// The last value counts, as in the lenient readers of Kubernetes.
    #[default]
    LastWins,
    /// An error, as in the strict readers of Kubernetes.
    Refuse,
}

impl Default for Limits {
    /// 128 MiB, 120 levels (a JSON reader with the customary limit of 128 can read the result again) and ten
    /// million nodes: several times what the largest known catalogs and custom resource definitions need.
    fn default() -> Self {
        Self {
            bytes: 128 << 20,
            depth: 120,
            nodes: 10_000_000,
            duplicate_keys: DuplicateKeys::LastWins,
        }
    }
}
