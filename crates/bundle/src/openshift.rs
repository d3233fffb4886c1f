//! Minor versions of OpenShift, and the latest one that a bundle supports.

use std::fmt;

use olm_api::names::property;
use olm_version::Version;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A minor version of OpenShift, without patch and pre-release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion {
    /// The number before the dot.
    pub major: u64,
    /// The number after it.
    pub minor: u64,
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The cluster's version cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cluster's version {text:?} is not a version")]
pub struct ClusterVersionError {
    text: String,
}

impl MinorVersion {
    /// The minor version of the cluster, from its full version such as `4.18.0-rc.1`.
    pub fn of_cluster(text: &str) -> Result<Self, ClusterVersionError> {
        match Version::parse(text) {
            Ok(version) => Ok(Self {
                major: version.major,
                minor: version.minor,
            }),
            Err(_) => Err(ClusterVersionError {
                text: text.to_owned(),
            }),
        }
    }

    /// The minor version to which a cluster of this version updates. 4.23 and 5.0 are sibling releases: 5.1 follows
    /// both.
    #[must_use]
    pub fn next(self) -> Self {
        match (self.major, self.minor) {
            (4, 23) => Self { major: 5, minor: 1 },
            (major, minor) => Self {
                major,
                minor: minor.saturating_add(1),
            },
        }
    }

    /// Whether a bundle with this maximum allows the cluster to update to `next`.
    pub fn allows(self, next: Self) -> bool {
        next <= self
    }
}

/// A bundle's maximum cannot be read. This is reported and never treated as unlimited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaximumError {
    /// A JSON number that is not `MAJOR.MINOR`.
    #[error("the number {0} is not of the form MAJOR.MINOR")]
    Number(String),
    /// A JSON string that is not `MAJOR.MINOR`.
    #[error("{0:?} is not of the form MAJOR.MINOR or MAJOR.MINOR.PATCH")]
    Text(String),
    /// Another JSON type.
    #[error("{0} is neither a version in quotes nor a number")]
    Kind(String),
}

/// The reason why the maximum cannot be read from a bundle's properties.
#[derive(Debug, thiserror::Error)]
pub enum PropertiesError {
    /// The text is not a list of properties.
    #[error("could not convert olm.properties: it is not a JSON list of properties: {0}")]
    Shape(serde_json::Error),
    /// The value is not a version.
    #[error("olm.maxOpenShiftVersion: {0}")]
    Value(MaximumError),
}

/// The latest supported minor versions in a bundle's properties, a JSON list, highest first. The first counts. Empty if
/// there are none.
///
/// # Errors
/// One of them, or the list, cannot be read.
pub fn maxima(properties: &str) -> Result<Vec<MinorVersion>, PropertiesError> {
    #[derive(Deserialize)]
    struct Property {
        #[serde(rename = "type", default)]
        property_type: String,
        value: Option<Box<RawValue>>,
    }
    // A file without properties yields `null`.
    let list: Option<Vec<Property>> = serde_json::from_str(properties).map_err(PropertiesError::Shape)?;
    let absent = || PropertiesError::Value(MaximumError::Kind("null".to_owned()));
    let mut maxima = Vec::new();
    for property in list.into_iter().flatten() {
        if property.property_type == property::MAX_OPENSHIFT_VERSION {
            let value = property.value.as_deref().ok_or_else(absent)?;
            maxima.push(parse_maximum(value).map_err(PropertiesError::Value)?);
        }
    }
    maxima.sort_unstable_by(|left, right| right.cmp(left));
    Ok(maxima)
}

/// Reads the value of a property `olm.maxOpenShiftVersion` from its JSON text. The text matters, not the number: 4.10
/// is not 4.1.
///
/// A string may have blanks around it and leading zeros in its numbers; a patch number is ignored. A number may have
/// neither.
pub fn parse_maximum(raw: &RawValue) -> Result<MinorVersion, MaximumError> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let string: String =
                serde_json::from_str(text).map_err(|_| MaximumError::Kind(text.to_owned()))?;
            from_string(&string).ok_or(MaximumError::Text(string))
        }
        Some(b'-' | b'0'..=b'9') => from_number(text).ok_or_else(|| MaximumError::Number(text.to_owned())),
        _ => Err(MaximumError::Kind(text.chars().take(100).collect())),
    }
}

fn from_string(text: &str) -> Option<MinorVersion> {
    let mut parts = text.trim().split('.');
    let version = MinorVersion {
        major: digits(parts.next()?)?,
        minor: digits(parts.next()?)?,
    };
    if let Some(patch) = parts.next() {
        digits(patch)?;
    }
    parts.next().is_none().then_some(version)
}

fn from_number(text: &str) -> Option<MinorVersion> {
    let (major, minor) = text.split_once('.')?;
    let canonical = !major.starts_with('0') && (minor == "0" || !minor.starts_with('0'));
    canonical.then_some(())?;
    Some(MinorVersion {
        major: digits(major)?,
        minor: digits(minor)?,
    })
}

fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maximum(text: &str) -> Result<String, MaximumError> {
        parse_maximum(&RawValue::from_string(text.to_owned()).unwrap()).map(|v| v.to_string())
    }

    #[test]
    fn maxima_are_read_by_their_text() {
        for (text, expected) in [
            (r#""4.18""#, "4.18"),
            (r#"" 04.018\n""#, "4.18"),
            (r#""4.18.7""#, "4.18"),
            (r#""0.1""#, "0.1"),
            ("4.10", "4.10"),
            ("5.0", "5.0"),
        ] {
            assert_eq!(maximum(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_maxima_are_refused() {
        for text in [
            "4",
            "0.1",
            "5.00",
            "4.18e0",
            "-4.18",
            "1e2",
            "null",
            "{}",
            "[]",
            "true",
            r#""""#,
            r#"".""#,
            r#""4""#,
            r#""4.""#,
            r#""v4.18""#,
            r#""4.x""#,
            r#""4.18-rc.1""#,
            r#""4.18+b""#,
            r#""4.18.0.1""#,
            r#""4. 18""#,
            r#""4.99999999999999999999""#,
        ] {
            assert!(maximum(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_next_minor_follows_the_cluster() {
        for (cluster, next) in [
            ("4.18.0-rc1", "4.19"),
            ("4.9.3", "4.10"),
            ("4.22.9", "4.23"),
            ("4.23.5", "5.1"),
            ("5.0.0-ec.1", "5.1"),
        ] {
            assert_eq!(
                MinorVersion::of_cluster(cluster).unwrap().next().to_string(),
                next,
                "{cluster}"
            );
        }
        for text in ["4.18", "v4.18.0", "", "4.18.x"] {
            assert!(MinorVersion::of_cluster(text).is_err(), "{text}");
        }
    }
}
