//! The version of Kubernetes.

use std::fmt;

use super::{Requirement, RequirementStatus};
use crate::csv::ClusterServiceVersion;
use crate::names;

/// A version of three numbers, which may have leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: [i64; 3],
    prerelease: String,
    build: String,
}

impl Version {
    /// The version, without a leading `v`; `None` unless it has exactly three numbers.
    fn parse(text: &str) -> Option<Self> {
        let (rest, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, prerelease) = rest.split_once('-').unwrap_or((rest, ""));
        let mut parts = numbers.split('.').map(number);
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        let is_version = parts.next().is_none() && is_identifier(prerelease) && is_identifier(build);
        is_version.then(|| Self {
            numbers,
            prerelease: prerelease.to_owned(),
            build: build.to_owned(),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(formatter, "{major}.{minor}.{patch}")?;
        for (separator, part) in [('-', &self.prerelease), ('+', &self.build)] {
            if !part.is_empty() {
                write!(formatter, "{separator}{part}")?;
            }
        }
        Ok(())
    }
}

/// Whether a text is empty or consists of identifiers between dots. Numbers may have leading zeros.
fn is_identifier(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.is_empty() || text.split('.').all(is_part)
}

fn number(text: &str) -> Option<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Whether the API server is as new as the ClusterServiceVersion wants; nothing where it does not say.
pub(super) fn requirement(csv: &ClusterServiceVersion, server: Option<&str>) -> Option<Requirement> {
    let wanted = &csv.spec.min_kube_version;
    if wanted.is_empty() {
        return None;
    }
    let row = Requirement::new(names::GROUP, "v1alpha1", names::CSV_KIND, &csv.metadata.name);
    Some(match compare(wanted, server) {
        Ok(message) => row.found(RequirementStatus::Present, message),
        Err(message) => row.found(RequirementStatus::PresentNotSatisfied, message),
    })
}

fn compare(wanted: &str, server: Option<&str>) -> Result<String, String> {
    let server = server.ok_or("Server version discovery error")?;
    // A pre-release counts as the release: distributions mark their builds so.
    let server_version = server.strip_prefix('v').unwrap_or(server);
    let release = server_version.split('-').next().unwrap_or_default();
    let running = Version::parse(release).ok_or("Server version parsing error")?;
    let oldest =
        Version::parse(wanted.strip_prefix('v').unwrap_or(wanted)).ok_or("CSV version parsing error")?;
    // The server has no pre-release here, and one of the wanted version is older than its release.
    if oldest.numbers > running.numbers {
        return Err(format!(
            "CSV version requirement not met: minKubeVersion ({wanted}) > server version ({running})"
        ));
    }
    Ok(format!(
        "CSV minKubeVersion ({wanted}) less than server version ({server})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_must_not_be_older() {
        for (wanted, server, expected) in [
            ("1.5.0", "v1.10.0", true),
            ("v1.10.0", "v1.10.0", true),
            ("1.10.1", "v1.10.0", false),
            ("1.10.0", "v1.10.0-rc.1", true),
            ("1.10.0-rc.1", "v1.10.0", true),
            ("1.11.0-rc.1", "v1.10.0", false),
            ("1.10.0", "v1.10.0+k3s1", true),
            ("1.010.0", "v1.10.0", true),
            ("1.10", "v1.10.0", false),
            ("1.10.0.0", "v1.10.0", false),
            ("1.10.x", "v1.10.0", false),
            ("1.10.0-01", "v1.10.0", true),
            ("1.10.0-a..b", "v1.10.0", false),
            ("1.10.0", "v1.10.0+k3s~1", false),
        ] {
            assert_eq!(
                compare(wanted, Some(server)).is_ok(),
                expected,
                "{wanted} on {server}"
            );
        }
    }

    #[test]
    fn a_version_that_cannot_be_read_is_named() {
        assert_eq!(
            compare("1.0.0", None).unwrap_err(),
            "Server version discovery error"
        );
        assert_eq!(
            compare("1.0.0", Some("v1")).unwrap_err(),
            "Server version parsing error"
        );
        assert_eq!(
            compare("new", Some("v1.1.1")).unwrap_err(),
            "CSV version parsing error"
        );
        assert_eq!(
            compare("v2.0.0", Some("v1.1.1+b-1")).unwrap_err(),
            "CSV version requirement not met: minKubeVersion (v2.0.0) > server version (1.1.1+b)"
        );
    }
}
