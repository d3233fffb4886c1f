//! Whether the install modes of a ClusterServiceVersion allow the namespaces of its OperatorGroup.

use std::collections::BTreeMap;

use crate::csv::InstallModeEntry;

const OWN: &str = "OwnNamespace";
const SINGLE: &str = "SingleNamespace";
const MULTI: &str = "MultiNamespace";
const ALL: &str = "AllNamespaces";

/// The install modes that a ClusterServiceVersion declares, each with whether it is supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallModes(BTreeMap<String, bool>);

/// A ClusterServiceVersion declares an install mode twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("InstallMode list contains duplicates, cannot make set: [{0}]")]
pub struct DuplicateModesError(String);

/// Reason why an operator cannot watch the namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedError {
    /// The OperatorGroup selects no namespace.
    #[error("operatorgroup has invalid selected namespaces, cannot configure to watch zero namespaces")]
    None,
    /// The OperatorGroup selects all namespaces and others.
    #[error(
        "operatorgroup has invalid selected namespaces, NamespaceAll found when |selected namespaces| > 1"
    )]
    AllAmongOthers,
    /// The operator's own namespace.
    #[error("OwnNamespace InstallModeType not supported, cannot configure to watch own namespace")]
    Own,
    /// All namespaces.
    #[error("AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces")]
    All,
    /// One other namespace.
    #[error("SingleNamespace InstallModeType not supported, cannot configure to watch one namespace")]
    Single,
    /// Several namespaces.
    #[error("MultiNamespace InstallModeType not supported, cannot configure to watch {0} namespaces")]
    Multi(usize),
}

impl InstallModes {
    /// The declared modes. Unknown ones are kept; a mode that is not declared is not supported.
    ///
    /// # Errors
    /// When a mode is declared twice.
    pub fn new(declared: &[InstallModeEntry]) -> Result<Self, DuplicateModesError> {
        let mut modes = BTreeMap::new();
        for entry in declared {
            if modes.insert(entry.kind.clone(), entry.supported).is_some() {
                return Err(duplicates(declared));
            }
        }
        Ok(Self(modes))
    }

    /// Checks whether an operator in its own namespace can watch the targets; `""` is all namespaces.
    ///
    /// # Errors
    /// The first thing that is not supported.
    pub fn supports(&self, own: &str, targets: &[String]) -> Result<(), UnsupportedError> {
        match targets {
            [] => Err(UnsupportedError::None),
            [target] if target == own => self.require(OWN, UnsupportedError::Own),
            [target] if target.is_empty() => self.require(ALL, UnsupportedError::All),
            [_] => self.require(SINGLE, UnsupportedError::Single),
            several => self.supports_several(own, several),
        }
    }

    fn supports_several(&self, own: &str, targets: &[String]) -> Result<(), UnsupportedError> {
        self.require(MULTI, UnsupportedError::Multi(targets.len()))?;
        for target in targets {
            if target == own {
                self.require(OWN, UnsupportedError::Own)?;
            }
            if target.is_empty() {
                return Err(UnsupportedError::AllAmongOthers);
            }
        }
        Ok(())
    }

    fn require(&self, mode: &str, error: UnsupportedError) -> Result<(), UnsupportedError> {
        if self.0.get(mode) == Some(&true) {
            Ok(())
        } else {
            Err(error)
        }
    }
}

fn duplicates(declared: &[InstallModeEntry]) -> DuplicateModesError {
    let texts: Vec<String> = declared
        .iter()
        .map(|entry| format!("{{{} {}}}", entry.kind, entry.supported))
        .collect();
    DuplicateModesError(texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(supported: &[&str]) -> InstallModes {
        let entries: Vec<InstallModeEntry> = supported
            .iter()
            .map(|kind| InstallModeEntry {
                kind: (*kind).to_owned(),
                supported: true,
            })
            .collect();
        InstallModes::new(&entries).unwrap()
    }

    #[test]
    fn each_selection_needs_its_mode() {
        for (supported, targets, expected) in [
            (&[OWN][..], &["own"][..], Ok(())),
            (&[ALL], &["own"], Err(UnsupportedError::Own)),
            (&[OWN], &[""], Err(UnsupportedError::All)),
            (&[OWN], &["x"], Err(UnsupportedError::Single)),
            (&[SINGLE], &["x"], Ok(())),
            (&[SINGLE], &["x", "y"], Err(UnsupportedError::Multi(2))),
            (&[MULTI], &["x", "own"], Err(UnsupportedError::Own)),
            (&[MULTI, OWN], &["x", "own"], Ok(())),
            (&[MULTI], &["x", ""], Err(UnsupportedError::AllAmongOthers)),
            (&[MULTI], &[], Err(UnsupportedError::None)),
        ] {
            let targets: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
            assert_eq!(
                modes(supported).supports("own", &targets),
                expected,
                "{targets:?}"
            );
        }
    }

    #[test]
    fn a_mode_is_declared_once() {
        let entry = |supported| InstallModeEntry {
            kind: OWN.to_owned(),
            supported,
        };
        let error = InstallModes::new(&[entry(true), entry(false)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "InstallMode list contains duplicates, cannot make set: [{OwnNamespace true} {OwnNamespace false}]"
        );
    }
}
