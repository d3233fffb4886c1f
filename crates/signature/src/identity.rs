//! Identities that certificates must have.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::error::SignatureError;

/// The most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// Anchors that make a pattern match the whole of a text.
const BEGIN: &str = "^(?:";
const END: &str = ")$";

/// A text that must be equal, or a pattern that must match the whole of a text.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Equal to this.
    Exact(String),
    /// As a whole of this form.
    Matching(Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) => left == right,
            (Self::Matching(left), Self::Matching(right)) => left.as_str() == right.as_str(),
            _ => false,
        }
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// A pattern that must match the whole of a text, as if between `^` and `$`.
    ///
    /// # Errors
    /// When it is no regular expression, or too large a one.
    pub fn matching(text: &str) -> Result<Self, String> {
        let compile = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES).build();
        // Alone first: a pattern that closes a group that it did not open would end the whole.
        compile(text)
            .and_then(|_| compile(&format!("{BEGIN}{text}{END}")))
            .map(Self::Matching)
            .map_err(|error| format!("{text:?} is not a usable regular expression: {error}"))
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Exact(wanted) => wanted == text,
            Self::Matching(pattern) => pattern.is_match(text),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => write!(formatter, "{text:?}"),
            Self::Matching(pattern) => {
                let whole = pattern.as_str();
                let given = whole.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
                write!(formatter, "/{}/", given.unwrap_or(whole))
            }
        }
    }
}

/// Required subject of a certificate, and required issuer of its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject: an email address or the URI of a workload.
    pub subject: Pattern,
    /// The issuer of the token with which the certificate was asked for.
    pub issuer: Pattern,
    /// Whether the subject must be an email address.
    pub email: bool,
}

/// One of these must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities(pub Vec<Identity>);

impl Identities {
    pub(crate) fn check(&self, subject: &str, email: bool, issuer: &str) -> Result<(), SignatureError> {
        let fits = |identity: &Identity| {
            identity.subject.fits(subject) && identity.issuer.fits(issuer) && (email || !identity.email)
        };
        if self.0.iter().any(fits) {
            return Ok(());
        }
        let wanted = self.0.iter().take(5).map(|identity| {
            let Identity { subject, issuer, .. } = identity;
            format!("{subject} of issuer {issuer}")
        });
        Err(SignatureError::Identity {
            found: format!("{subject:?} of issuer {issuer:?}"),
            wanted: wanted.collect::<Vec<_>>().join(" or "),
        })
    }
}
