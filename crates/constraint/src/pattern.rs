//! Regular expressions from untrusted sources. Their compilation and size are limited, and matching is charged to the
//! budget.

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern in bytes, and the steps for a byte of text up to that size: in the worst case every
/// byte is compared with every state of the pattern.
const SIZES: [(usize, usize); 3] = [(16 << 10, 1), (64 << 10, 64), (256 << 10, 512)];

/// The longest pattern in bytes. Parsing one takes some hundred times its length.
const MAX_LENGTH: usize = 32 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    /// The compiled expression.
    pub expression: Regex,
    /// Steps for each byte of text.
    pub steps: usize,
    /// The largest size in bytes.
    pub size: usize,
}

impl Pattern {
    /// Compiles a pattern. `None` if it is not a regular expression, or too large.
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
