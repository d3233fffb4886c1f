//! The range grammar of `spec.source.catalog.version`.
//!
//! Comparisons are separated by blanks or commas, which mean *and*, and groups of them by `||`, which means *or*.
//! Numbers may be missing or wild (`x`, `X`, `*`) everywhere, `~` and `^` widen, `1.2 - 1.4` is a range, too, and a
//! pre-release passes only a group that contains one.

mod check;
mod parse;
mod version;

use std::fmt;

use semver::Version;

use crate::quote::quoted;

pub use version::{Spelling, VersionError, increment, parse_version};

/// The longest constraint, in bytes.
pub const MAX_LENGTH: usize = 512;
/// The most groups joined by `||`.
pub const MAX_GROUPS: usize = 32;

/// A set of versions that a user requests.
#[derive(Clone, Debug)]
pub struct Constraint {
    groups: Vec<Group>,
}

/// Comparisons that a version must pass together.
#[derive(Clone, Debug)]
struct Group {
    terms: Vec<Term>,
    /// Whether one of the comparisons contains a pre-release.
    names_prerelease: bool,
}

#[derive(Clone, Debug)]
struct Term {
    operator: Operator,
    /// The operator as written: several spellings mean the same.
    sign: String,
    /// The version as written.
    written: String,
    /// The version, missing and wild numbers read as 0.
    version: Version,
    wild: Wild,
}

/// The operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=` or no operator; with a missing or wild number the same as [`Operator::Tilde`].
    Equal,
    /// `!=`.
    NotEqual,
    /// `>`.
    Greater,
    /// `>=` or `=>`.
    GreaterOrEqual,
    /// `<`.
    Less,
    /// `<=` or `=<`.
    LessOrEqual,
    /// `~` or `~>`.
    Tilde,
    /// `^`.
    Caret,
}

/// The first number of a version that is missing or wild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wild {
    None,
    Major,
    Minor,
    Patch,
}

/// Whether versions with a pre-release are candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prereleases {
    /// Only if the group of comparisons contains a pre-release itself.
    #[default]
    WhereNamed,
    /// Everywhere.
    Everywhere,
}

/// The reason why a text is not a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The text has more than [`MAX_LENGTH`] bytes.
    #[error("constraint string is too long (max {MAX_LENGTH} bytes)")]
    TooLong,
    /// There are more than [`MAX_GROUPS`] groups.
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    /// A group does not follow the grammar.
    #[error("improper constraint: {}", quoted(.0))]
    Improper(String),
    /// A version follows the grammar of constraints but not that of versions: `1.2.3-01`, `1x.0`, or a number
    /// beyond 64 bits.
    #[error("constraint parser error")]
    Version,
}

impl Constraint {
    /// Reads a constraint.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        parse::constraint(text)
    }

    /// Whether a version satisfies the constraint. Build metadata is ignored.
    pub fn check(&self, version: &Version) -> bool {
        self.check_with(version, Prereleases::WhereNamed)
    }

    /// Like [`Constraint::check`], with a rule for pre-releases.
    pub fn check_with(&self, version: &Version, prereleases: Prereleases) -> bool {
        self.groups.iter().any(|group| {
            let admitted =
                version.pre.is_empty() || group.names_prerelease || prereleases == Prereleases::Everywhere;
            admitted && group.terms.iter().all(|term| check::satisfies(version, term))
        })
    }

    /// The version, if the constraint matches only one: `1.2.3` or `=1.2.3`, but not `1.2`.
    pub fn exact(&self) -> Option<&Version> {
        match self.groups.as_slice() {
            [Group { terms, .. }] => match terms.as_slice() {
                [term] if term.operator == Operator::Equal && term.wild == Wild::None => Some(&term.version),
                _ => None,
            },
            _ => None,
        }
    }

    /// The comparisons of each group joined by `||`; missing and wild numbers of their versions are 0.
    pub fn groups(&self) -> impl Iterator<Item = impl Iterator<Item = (Operator, &Version)>> {
        self.groups
            .iter()
            .map(|group| group.terms.iter().map(|term| (term.operator, &term.version)))
    }
}

impl fmt::Display for Constraint {
    /// The comparisons as written, one blank between them, ` || ` between groups.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            if index > 0 {
                formatter.write_str(" || ")?;
            }
            for (index, term) in group.terms.iter().enumerate() {
                let blank = if index > 0 { " " } else { "" };
                write!(formatter, "{blank}{}{}", term.sign, term.written)?;
            }
        }
        Ok(())
    }
}
