//! A bundle's version together with its release: the count of re-publications of one version.

use std::cmp::Ordering;
use std::fmt;

use semver::{BuildMetadata as Build, Prerelease, Version};

use crate::blang;
use crate::quote::quoted;

/// A release: dot-separated identifiers that follow the rules and the order of semver pre-releases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Release(Prerelease);

/// The reason why a text is not a release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The text has more than [`Release::MAX_LENGTH`] characters.
    #[error("invalid release {}: exceeds maximum length of {} characters", quoted(.0), Release::MAX_LENGTH)]
    TooLong(String),
    /// Identifiers break the rules.
    #[error("invalid release {}: {}", quoted(.text), lines(.faults))]
    Segments {
        /// The whole text.
        text: String,
        /// The faulty identifiers, counted from 0, each with its fault.
        faults: Vec<(usize, blang::VersionError)>,
    },
}

fn lines(faults: &[(usize, blang::VersionError)]) -> String {
    let lines: Vec<String> = faults
        .iter()
        .map(|(segment, fault)| format!("segment {segment}: {fault}"))
        .collect();
    lines.join("\n")
}

impl Release {
    /// The longest release, in bytes.
    pub const MAX_LENGTH: usize = 20;

    /// Reads a release. The empty text is the empty release.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() > Self::MAX_LENGTH {
            return Err(ReleaseError::TooLong(text.chars().take(256).collect()));
        }
        let faults: Vec<_> = text
            .split('.')
            .enumerate()
            .filter_map(|(segment, identifier)| Some((segment, blang::check_prerelease(identifier).err()?)))
            .collect();
        if !faults.is_empty() {
            let text = text.to_owned();
            return Err(ReleaseError::Segments { text, faults });
        }
        // The checks above implement the grammar of pre-releases.
        Ok(Self(Prerelease::new(text).unwrap_or_default()))
    }

    /// Whether this is the empty release, which is equal to no release in the order.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The release as written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Release {
    /// The empty release comes first. Otherwise the order is that of pre-releases: numbers as numbers and before words.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_empty(), other.is_empty()) {
            (false, false) => self.0.cmp(&other.0),
            (left, right) => right.cmp(&left),
        }
    }
}

/// The meaning of the build metadata of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildMetadata {
    /// The release, if it is a valid one. Bundles of the format registry+v1 have no other place for the release.
    Release,
    /// Plain build metadata, which is ignored.
    Ignored,
}

/// A version and its release, if known.
///
/// Equality compares the texts. [`VersionRelease::is_same`] compares as OLM does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionRelease {
    /// The version; build metadata that is not a release stays in it and is ignored.
    pub version: Version,
    /// The release, if the bundle has one.
    pub release: Option<Release>,
}

/// The reason why a bundle's version or release cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionReleaseError {
    /// The version is not a semantic version.
    #[error("error parsing version {}: {fault}", quoted(.text))]
    Version {
        /// The text.
        text: String,
        /// The fault of the version.
        fault: blang::VersionError,
    },
    /// The release is invalid.
    #[error("error parsing release {}: {fault}", quoted(.text))]
    Release {
        /// The text.
        text: String,
        /// The fault of the release.
        fault: ReleaseError,
    },
}

impl VersionRelease {
    /// Parses a version with an optional release as build metadata: `1.0.0+2`.
    pub fn parse(text: &str, build: BuildMetadata) -> Result<Self, VersionReleaseError> {
        let mut version = parse_version(text)?;
        if build == BuildMetadata::Release
            && !version.build.is_empty()
            && let Ok(release) = Release::parse(version.build.as_str())
        {
            version.build = Build::EMPTY;
            return Ok(Self {
                version,
                release: Some(release),
            });
        }
        Ok(Self {
            version,
            release: None,
        })
    }

    /// Parses a separate version and release; build metadata of the version is ignored.
    pub fn explicit(version: &str, release: &str) -> Result<Self, VersionReleaseError> {
        let version = parse_version(version)?;
        let release = Release::parse(release).map_err(|fault| VersionReleaseError::Release {
            text: release.chars().take(256).collect(),
            fault,
        })?;
        Ok(Self {
            version,
            release: Some(release),
        })
    }

    /// The precedence of versions, then that of releases; no release compares like the empty one.
    pub fn compare(&self, other: &Self) -> Ordering {
        let none = Release::default();
        self.version.cmp_precedence(&other.version).then_with(|| {
            self.release
                .as_ref()
                .unwrap_or(&none)
                .cmp(other.release.as_ref().unwrap_or(&none))
        })
    }

    /// Whether both have the same precedence. Build metadata, and the difference between no release and an empty one,
    /// are ignored.
    pub fn is_same(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }

    /// The version with the release folded into its build metadata, as bundles of the format registry+v1 write it.
    pub fn folded(&self) -> Version {
        let mut version = self.version.clone();
        if let Some(release) = self.release.as_ref().filter(|release| !release.is_empty()) {
            // Every release is valid build metadata.
            version.build = Build::new(release.as_str()).unwrap_or_default();
        }
        version
    }
}

impl fmt::Display for VersionRelease {
    /// The folded form: `1.0.0+2`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folded().fmt(formatter)
    }
}

fn parse_version(text: &str) -> Result<Version, VersionReleaseError> {
    blang::parse_version(text).map_err(|fault| VersionReleaseError::Version {
        text: text.chars().take(256).collect(),
        fault,
    })
}
