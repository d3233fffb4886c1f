//! Repeatable numbers.

/// Repeatable numbers (xorshift).
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers that follow from a seed.
    pub fn from_seed(seed: u64) -> Self {
        // Neighbouring seeds begin alike without this.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1))
    }

    /// The next number, less than `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or_default()
    }

    /// A random element; `None` if there are none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let index = self.below(u64::try_from(all.len()).unwrap_or(u64::MAX));
        all.get(usize::try_from(index).unwrap_or(usize::MAX))
    }
}
