//! The range grammar of catalogs: `skipRange`, `olm.package.required`, `dependencies.yaml`.
//!
//! Blanks mean *and*, `||` between blanks means *or*, the operators are `=`, `==`, `!`, `!=`, `<`, `<=`, `>`, `>=` and
//! none. Versions are complete, except for `x` as the minor or patch number. There are no commas, carets, tildes or
//! hyphens, and pre-releases are versions like any other.

mod version;
mod wildcard;

use std::cmp::Ordering;

use semver::Version;

use crate::quote::quoted;

pub(crate) use version::check_prerelease;
pub use version::{VersionError, parse_tolerant, parse_version};

/// The longest range that is read, in bytes. The longest known one has a few hundred.
pub const MAX_LENGTH: usize = 16 << 10;

/// A set of versions.
#[derive(Clone, Debug)]
pub struct Range {
    /// A version is in the range when it passes every comparison of one of the groups.
    groups: Vec<Vec<Comparison>>,
}

#[derive(Clone, Debug)]
struct Comparison {
    operator: Operator,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// The reason why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text has more than [`MAX_LENGTH`] bytes.
    #[error("the range is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// The text begins with `||`.
    #[error("First element in range is '||'")]
    BeginsWithOr,
    /// The text ends with `||` or is empty.
    #[error("Last element in range is '||'")]
    EndsWithOr,
    /// A comparison without digits.
    #[error("Could not get version from string: {}", quoted(.0))]
    NoVersion(String),
    /// An unknown operator.
    #[error("Could not parse Range {comparison}: Could not parse comparator {operator} in {comparison}",
        comparison = quoted(.comparison), operator = quoted(.operator))]
    Operator {
        /// The comparison, without blanks.
        comparison: String,
        /// The text before its first digit.
        operator: String,
    },
    /// The text after the operator is not a version.
    #[error("Could not parse Range {comparison}: Could not parse version {version} in {comparison}: {fault}",
        comparison = quoted(.comparison), version = quoted(.version))]
    Version {
        /// The comparison, without blanks.
        comparison: String,
        /// The version.
        version: String,
        /// The fault of the version.
        fault: VersionError,
    },
}

impl Range {
    /// Reads a range.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        if text.len() > MAX_LENGTH {
            return Err(RangeError::TooLong);
        }
        let words = words(text);
        if words.first().is_some_and(|word| word == "||") {
            return Err(RangeError::BeginsWithOr);
        }
        if words.last().is_none_or(|word| word == "||") {
            return Err(RangeError::EndsWithOr);
        }
        let groups: Vec<Vec<String>> = words
            .split(|word| word == "||")
            .map(wildcard::expand)
            .collect::<Result<_, _>>()?;
        let groups = groups
            .iter()
            .map(|group| {
                group
                    .iter()
                    .map(|word| comparison(word))
                    .collect::<Result<Vec<_>, _>>()
            })
            // An empty part between two `||` has no comparison.
            .filter(|group| group.as_ref().map_or(true, |comparisons| !comparisons.is_empty()))
            .collect::<Result<_, _>>()?;
        Ok(Self { groups })
    }

    /// Whether a version is in the range. Build metadata is ignored.
    pub fn contains(&self, version: &Version) -> bool {
        self.groups
            .iter()
            .any(|group| group.iter().all(|comparison| comparison.admits(version)))
    }
}

impl Comparison {
    fn admits(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
        }
    }
}

/// The text split at its blanks, except at those after an operator, which are dropped.
///
/// Words of a single character are dropped, too: no version is that short, and the grammar has always dropped them.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut begin = 0;
    let mut before = '\0';
    let mut keep = |begin: usize, end: usize| {
        if let Some(word) = text.get(begin..end)
            && word.len() > 1
        {
            words.push(word.replace(' ', ""));
        }
    };
    for (at, character) in text.char_indices() {
        if character != ' ' {
            before = character;
        } else if !matches!(before, '<' | '>' | '=') {
            keep(begin, at);
            begin = at + 1;
        }
    }
    keep(begin, text.len());
    words
}

/// Cuts a comparison before its first digit.
fn operator_and_version(word: &str) -> Result<(&str, &str), RangeError> {
    word.find(|character: char| character.is_ascii_digit())
        .and_then(|at| word.split_at_checked(at))
        .ok_or_else(|| RangeError::NoVersion(word.to_owned()))
}

fn comparison(word: &str) -> Result<Comparison, RangeError> {
    let (operator, version) = operator_and_version(word)?;
    let operator = match operator.trim() {
        "" | "=" | "==" => Operator::Equal,
        "!" | "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        unknown => {
            return Err(RangeError::Operator {
                comparison: word.to_owned(),
                operator: unknown.to_owned(),
            });
        }
    };
    match parse_version(version) {
        Ok(version) => Ok(Comparison { operator, version }),
        Err(fault) => Err(RangeError::Version {
            comparison: word.to_owned(),
            version: version.to_owned(),
            fault,
        }),
    }
}
