//! Complete semantic versions, and the exact fault of an invalid one.

use semver::{BuildMetadata, Prerelease, Version};

use crate::component::Component;
use crate::quote::quoted;

/// The longest version that is read, in bytes.
const MAX_LENGTH: usize = 1024;

/// The reason why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text is empty.
    #[error("Version string empty")]
    Empty,
    /// The text is longer than any version.
    #[error("the version is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// Fewer than three numbers.
    #[error("No Major.Minor.Patch elements found")]
    Incomplete,
    /// One of the three numbers is missing.
    #[error("strconv.ParseUint: parsing \"\": invalid syntax")]
    MissingNumber,
    /// One of the three numbers contains other characters than digits.
    #[error("Invalid character(s) found in {} number {}", .0.lower(), quoted(.1))]
    NotANumber(Component, String),
    /// One of the three numbers begins with a zero.
    #[error("{} number must not contain leading zeroes {}", .0.upper(), quoted(.1))]
    LeadingZero(Component, String),
    /// A number does not fit 64 bits.
    #[error("strconv.ParseUint: parsing {}: value out of range", quoted(.0))]
    TooLarge(String),
    /// A pre-release identifier is empty.
    #[error("Prerelease is empty")]
    EmptyPrerelease,
    /// A numeric pre-release identifier begins with a zero.
    #[error("Numeric PreRelease version must not contain leading zeroes {}", quoted(.0))]
    PrereleaseLeadingZero(String),
    /// A pre-release identifier contains other characters than letters, digits and hyphens.
    #[error("Invalid character(s) found in prerelease {}", quoted(.0))]
    Prerelease(String),
    /// A build identifier is empty.
    #[error("Build meta data is empty")]
    EmptyBuild,
    /// A build identifier contains other characters than letters, digits and hyphens.
    #[error("Invalid character(s) found in build meta data {}", quoted(.0))]
    Build(String),
}

impl Component {
    fn lower(self) -> &'static str {
        match self {
            Self::Major => "major",
            Self::Minor => "minor",
            Self::Patch => "patch",
        }
    }

    fn upper(self) -> &'static str {
        match self {
            Self::Major => "Major",
            Self::Minor => "Minor",
            Self::Patch => "Patch",
        }
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str, part: Component) -> Result<u64, VersionError> {
    if text.is_empty() {
        return Err(VersionError::MissingNumber);
    }
    if !is_number(text) {
        return Err(VersionError::NotANumber(part, text.to_owned()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(VersionError::LeadingZero(part, text.to_owned()));
    }
    text.parse().map_err(|_| VersionError::TooLarge(text.to_owned()))
}

/// Checks that `text` is one identifier of a pre-release.
pub(crate) fn check_prerelease(text: &str) -> Result<(), VersionError> {
    if text.is_empty() {
        return Err(VersionError::EmptyPrerelease);
    }
    if is_number(text) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(VersionError::PrereleaseLeadingZero(text.to_owned()));
        }
        return match text.parse::<u64>() {
            Ok(_) => Ok(()),
            Err(_) => Err(VersionError::TooLarge(text.to_owned())),
        };
    }
    if is_identifier(text) {
        Ok(())
    } else {
        Err(VersionError::Prerelease(text.to_owned()))
    }
}

fn check_build(text: &str) -> Result<(), VersionError> {
    if text.is_empty() {
        Err(VersionError::EmptyBuild)
    } else if is_identifier(text) {
        Ok(())
    } else {
        Err(VersionError::Build(text.to_owned()))
    }
}

/// Reads a complete version `x.y.z[-pre][+build]`; no `v` before it, no leading zeros.
pub fn parse_version(text: &str) -> Result<Version, VersionError> {
    if text.is_empty() {
        return Err(VersionError::Empty);
    }
    if text.len() > MAX_LENGTH {
        return Err(VersionError::TooLong);
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(VersionError::Incomplete);
    };
    let major = number(major, Component::Major)?;
    let minor = number(minor, Component::Minor)?;
    let (rest, build) = rest
        .split_once('+')
        .map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, prerelease) = rest
        .split_once('-')
        .map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let mut version = Version::new(major, minor, number(patch, Component::Patch)?);
    if let Some(prerelease) = prerelease {
        prerelease.split('.').try_for_each(check_prerelease)?;
        version.pre =
            Prerelease::new(prerelease).map_err(|_| VersionError::Prerelease(prerelease.to_owned()))?;
    }
    if let Some(build) = build {
        build.split('.').try_for_each(check_build)?;
        version.build = BuildMetadata::new(build).map_err(|_| VersionError::Build(build.to_owned()))?;
    }
    Ok(version)
}

/// Parses a version in the tolerant form: with blanks around it, a leading `v`, leading zeros, and less than three
/// numbers if nothing follows them.
pub fn parse_tolerant(text: &str) -> Result<Version, VersionError> {
    let text = text.trim();
    if text.len() > MAX_LENGTH {
        return Err(VersionError::TooLong);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err(VersionError::Incomplete);
    }
    while parts.len() < 3 {
        parts.push("0".to_owned());
    }
    parse_version(&parts.join("."))
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}
