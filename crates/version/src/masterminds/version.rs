//! Versions in three degrees of strictness.

use semver::{BuildMetadata, Prerelease, Version};

use crate::component::Component;

/// The longest version that is read, in bytes.
const MAX_LENGTH: usize = 256;

/// The strictness of the spelling of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `v1`, `1.2` and `01.2.3` are versions.
    Coerced,
    /// `v1` and `1.2` are versions, numbers with leading zeros are not.
    Partial,
    /// Only complete semantic versions.
    Strict,
}

/// The pieces of a version, as far as a constraint may spell it: numbers may be wild.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    pub(super) written: &'a str,
    pub(super) major: &'a str,
    pub(super) minor: Option<&'a str>,
    pub(super) patch: Option<&'a str>,
    pub(super) prerelease: Option<&'a str>,
    pub(super) build: Option<&'a str>,
}

fn split_while(text: &str, accept: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let length = text.bytes().take_while(|byte| accept(*byte)).count();
    if length == 0 {
        None
    } else {
        text.split_at_checked(length)
    }
}

fn number(text: &str) -> Option<(&str, &str)> {
    split_while(text, |byte| {
        byte.is_ascii_digit() || matches!(byte, b'x' | b'X' | b'*' | b'|')
    })
}

fn next_number(text: &str) -> (Option<&str>, &str) {
    match text.strip_prefix('.').and_then(number) {
        Some((number, rest)) => (Some(number), rest),
        None => (None, text),
    }
}

/// The identifiers after `mark`, separated by dots.
fn identifiers(text: &str, mark: char) -> (Option<&str>, &str) {
    let Some(begin) = text.strip_prefix(mark) else {
        return (None, text);
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let Some((_, mut rest)) = split_while(begin, is_part) else {
        return (None, text);
    };
    while let Some((_, after)) = rest.strip_prefix('.').and_then(|next| split_while(next, is_part)) {
        rest = after;
    }
    (begin.get(..begin.len() - rest.len()), rest)
}

/// The longest version at the beginning of `text`, and the rest of the text.
pub(super) fn scan(text: &str) -> Option<(Numbers<'_>, &str)> {
    let (major, rest) = number(text.strip_prefix('v').unwrap_or(text))?;
    let (minor, rest) = next_number(rest);
    let (patch, rest) = if minor.is_some() {
        next_number(rest)
    } else {
        (None, rest)
    };
    let (prerelease, rest) = identifiers(rest, '-');
    let (build, rest) = identifiers(rest, '+');
    let written = text.get(..text.len() - rest.len())?;
    Some((
        Numbers {
            written,
            major,
            minor,
            patch,
            prerelease,
            build,
        },
        rest,
    ))
}

/// The text is not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid semantic version")]
pub struct VersionError;

/// Parses a version; missing numbers are 0 if the spelling allows them to be missing.
pub fn parse_version(text: &str, spelling: Spelling) -> Result<Version, VersionError> {
    if text.len() > MAX_LENGTH {
        return Err(VersionError);
    }
    if spelling == Spelling::Strict {
        return Version::parse(text).map_err(|_| VersionError);
    }
    let (numbers, rest) = scan(text).ok_or(VersionError)?;
    let number = |text: Option<&str>| -> Result<u64, VersionError> {
        let Some(text) = text else { return Ok(0) };
        let has_leading_zero = text.len() > 1 && text.starts_with('0');
        if !rest.is_empty() || has_leading_zero && spelling == Spelling::Partial {
            return Err(VersionError);
        }
        text.parse().map_err(|_| VersionError)
    };
    Ok(Version {
        major: number(Some(numbers.major))?,
        minor: number(numbers.minor)?,
        patch: number(numbers.patch)?,
        pre: Prerelease::new(numbers.prerelease.unwrap_or_default()).map_err(|_| VersionError)?,
        build: BuildMetadata::new(numbers.build.unwrap_or_default()).map_err(|_| VersionError)?,
    })
}

/// The next version without pre-release and build metadata. The patch of a pre-release is raised by finishing it.
/// A number that is already the largest stays.
pub fn increment(version: &Version, part: Component) -> Version {
    let Version {
        major,
        minor,
        patch,
        pre,
        ..
    } = version;
    match part {
        Component::Major => Version::new(major.saturating_add(1), 0, 0),
        Component::Minor => Version::new(*major, minor.saturating_add(1), 0),
        Component::Patch if !pre.is_empty() => Version::new(*major, *minor, *patch),
        Component::Patch => Version::new(*major, *minor, patch.saturating_add(1)),
    }
}
