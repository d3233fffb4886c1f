//! Regular expressions whose matching is paid for.

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern in bytes, and the steps that a byte of text costs up to there: in the worst case every
/// state of the pattern is looked at for every byte.
const SIZES: [(usize, usize); 3] = [(16 << 10, 1), (64 << 10, 64), (256 << 10, 512)];

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// What is matched.
    pub(super) expression: Regex,
    /// Steps for each byte of text.
    pub(super) steps: usize,
}

impl Pattern {
    /// `None` when it is not a regular expression, or too large.
    pub(super) fn compile(pattern: &str) -> Option<Self> {
        SIZES.into_iter().find_map(|(size, steps)| {
            let expression = RegexBuilder::new(pattern)
                .size_limit(size)
                .dfa_size_limit(size.max(64 << 10))
                .nest_limit(50)
                .build()
                .ok()?;
            Some(Self { expression, steps })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_patterns_cost_more_and_the_largest_are_refused() {
        let steps = |pattern: &str| Pattern::compile(pattern).map(|pattern| pattern.steps);
        assert_eq!(steps("^v[0-9]+"), Some(1));
        assert_eq!(steps("[a-c]{400}"), Some(64));
        assert_eq!(steps("(a{100}){1000}"), None);
        assert_eq!(steps("("), None);
    }
}
