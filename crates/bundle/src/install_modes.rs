//! Install modes and the namespaces an operator watches.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of namespaces that an operator can watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstallMode {
    /// Every namespace.
    AllNamespaces,
    /// Several named namespaces.
    MultiNamespace,
    /// The namespace the operator runs in.
    OwnNamespace,
    /// One namespace other than the operator's own.
    SingleNamespace,
}

impl InstallMode {
    /// All modes.
    pub const ALL: [Self; 4] = [
        Self::AllNamespaces,
        Self::MultiNamespace,
        Self::OwnNamespace,
        Self::SingleNamespace,
    ];

    /// The name as written in a ClusterServiceVersion.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllNamespaces => "AllNamespaces",
            Self::MultiNamespace => "MultiNamespace",
            Self::OwnNamespace => "OwnNamespace",
            Self::SingleNamespace => "SingleNamespace",
        }
    }
}

impl fmt::Display for InstallMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The text is not the name of an install mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an install mode")]
pub struct UnknownInstallMode(String);

impl FromStr for InstallMode {
    type Err = UnknownInstallMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "AllNamespaces" => Ok(Self::AllNamespaces),
            "MultiNamespace" => Ok(Self::MultiNamespace),
            "OwnNamespace" => Ok(Self::OwnNamespace),
            "SingleNamespace" => Ok(Self::SingleNamespace),
            other => Err(UnknownInstallMode(other.to_owned())),
        }
    }
}

/// The install modes of an operator. Displayed as `AllNamespaces OwnNamespace`, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallModes(BTreeSet<InstallMode>);

impl InstallModes {
    /// Whether the mode is among them.
    #[must_use]
    pub fn contains(&self, mode: InstallMode) -> bool {
        self.0.contains(&mode)
    }

    /// The modes, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = InstallMode> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<InstallMode> for InstallModes {
    fn from_iter<T: IntoIterator<Item = InstallMode>>(modes: T) -> Self {
        Self(modes.into_iter().collect())
    }
}

impl fmt::Display for InstallModes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(InstallMode::as_str).collect();
        formatter.write_str(&names.join(" "))
    }
}

/// The operator cannot watch the namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid option(s): invalid target namespaces [{namespaces}]: {reason}")]
pub struct TargetError {
    /// The requested namespaces, separated by blanks.
    pub namespaces: String,
    /// The reason.
    pub reason: String,
}

/// The namespaces to watch, which match the install modes. All namespaces are the single entry `""`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetNamespaces(Vec<String>);

impl TargetNamespaces {
    /// Checks the requested namespaces against the install modes. Without a request, all namespaces are chosen if the
    /// operator supports that.
    ///
    /// # Errors
    /// No namespace is requested and there is no default, or the modes do not allow the requested ones.
    pub fn choose(
        modes: &InstallModes,
        install_namespace: &str,
        requested: Option<&[String]>,
    ) -> Result<Self, TargetError> {
        let targets: Vec<String> = match requested {
            Some(requested) if !requested.is_empty() => requested.to_vec(),
            _ if modes.contains(InstallMode::AllNamespaces) => vec![String::new()],
            _ => Vec::new(),
        };
        match fault(modes, install_namespace, &targets) {
            None => Ok(Self(targets)),
            Some(reason) => Err(TargetError {
                namespaces: targets.join(" "),
                reason,
            }),
        }
    }

    /// The namespaces, or the one entry `""`.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether every namespace is watched.
    #[must_use]
    pub(crate) fn is_all(&self) -> bool {
        matches!(self.0.as_slice(), [only] if only.is_empty())
    }

    /// The namespaces separated by commas, as in the annotation `olm.targetNamespaces`.
    #[must_use]
    pub fn joined(&self) -> String {
        self.0.join(",")
    }

    /// Unchecked targets, to render a part of a bundle outside an installation.
    #[must_use]
    pub fn unchecked(namespaces: Vec<String>) -> Self {
        Self(namespaces)
    }
}

fn fault(modes: &InstallModes, install_namespace: &str, targets: &[String]) -> Option<String> {
    let distinct: BTreeSet<&str> = targets.iter().map(String::as_str).collect();
    let includes_own = distinct.contains(install_namespace);
    let includes_all = distinct.contains("");
    let (mode, reason) = match distinct.len() {
        0 if modes.contains(InstallMode::MultiNamespace) => {
            return Some("at least one target namespace must be specified".to_owned());
        }
        0 => return Some("exactly one target namespace must be specified".to_owned()),
        1 if includes_all => (InstallMode::AllNamespaces, "targeting all namespaces".to_owned()),
        1 if includes_own => (InstallMode::OwnNamespace, "targeting own namespace".to_owned()),
        1 => (
            InstallMode::SingleNamespace,
            format!("target namespaces [{}]", targets.join(" ")),
        ),
        _ if includes_own && !modes.contains(InstallMode::OwnNamespace) => {
            (InstallMode::OwnNamespace, "targeting own namespace".to_owned())
        }
        _ => (
            InstallMode::MultiNamespace,
            format!("target namespaces [{}]", targets.join(" ")),
        ),
    };
    let several_with_all = distinct.len() > 1 && includes_all;
    (!modes.contains(mode) || several_with_all)
        .then(|| format!("supported install modes [{modes}] do not support {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_refused_by_its_own_mode() {
        use InstallMode::{AllNamespaces, MultiNamespace, OwnNamespace};
        for (modes, targets, expected) in [
            (vec![MultiNamespace, OwnNamespace], vec!["own", "a"], None),
            (
                vec![MultiNamespace],
                vec!["own", "a"],
                Some("[MultiNamespace] do not support targeting own namespace"),
            ),
            (
                vec![AllNamespaces],
                vec!["own", "a"],
                Some("[AllNamespaces] do not support targeting own namespace"),
            ),
            (
                vec![MultiNamespace],
                vec!["", "own"],
                Some("[MultiNamespace] do not support targeting own namespace"),
            ),
            (
                vec![OwnNamespace],
                vec!["own", "a"],
                Some("[OwnNamespace] do not support target namespaces [own a]"),
            ),
            (
                vec![MultiNamespace, OwnNamespace],
                vec!["", "own"],
                Some("[MultiNamespace OwnNamespace] do not support target namespaces [ own]"),
            ),
        ] {
            let modes: InstallModes = modes.into_iter().collect();
            let targets: Vec<String> = targets.into_iter().map(str::to_owned).collect();
            assert_eq!(
                fault(&modes, "own", &targets),
                expected.map(|expected| format!("supported install modes {expected}")),
                "{targets:?}"
            );
        }
    }
}
