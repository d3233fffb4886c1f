//! Regular expressions of others: bounded in what they take to compile and hold, and paid for by what matching takes.

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern in bytes, and the steps that a byte of text costs up to there: in the worst case every
/// state of the pattern is looked at for every byte.
const SIZES: [(usize, usize); 3] = [(16 << 10, 1), (64 << 10, 64), (256 << 10, 512)];

/// The longest pattern in bytes. Reading one takes some hundred times its length.
const MAX_LENGTH: usize = 32 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    /// What is matched.
    pub expression: Regex,
    /// Steps for each byte of text.
    pub steps: usize,
    /// The bytes that it holds at most.
    pub size: usize,
}

impl Pattern {
    /// `None` when it is not a regular expression, or too large.
    #[must_use]
    pub fn compile(pattern: &str) -> Option<Self> {
        if pattern.len() > MAX_LENGTH {
            return None;
        }
        SIZES.into_iter().find_map(|(size, steps)| {
            let expression = RegexBuilder::new(pattern)
                .size_limit(size)
                .dfa_size_limit(size.max(64 << 10))
                .nest_limit(50)
                .build()
                .ok()?;
            Some(Self {
                expression,
                steps,
                size,
            })
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
        assert_eq!(steps(&"a".repeat(MAX_LENGTH + 1)), None);
    }
}
