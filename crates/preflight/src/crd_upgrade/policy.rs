//! The level of each check: error, warning or off.

use std::collections::BTreeSet;

use super::{Change, Check};

/// The level of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A finding stops the change.
    Error,
    /// A finding is a warning.
    Warn,
    /// The check does not run.
    Off,
}

/// The levels of all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Checks that do not run.
    pub off: BTreeSet<Check>,
    /// Checks whose findings do not stop a change.
    pub warn: BTreeSet<Check>,
    /// Changes that a check allows.
    pub allowed: BTreeSet<(Check, Change)>,
}

/// The reason why a text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An entry is not `CHECK=LEVEL`.
    #[error("{0:?} is not of the form CHECK=Error|Warn|Off")]
    Form(String),
    /// The check does not exist.
    #[error("there is no check {0:?}; there are {all}", all = Check::ALL.map(Check::as_str).join(", "))]
    Check(String),
    /// A check is named twice.
    #[error("the check {0} is named twice")]
    Twice(Check),
}

impl Default for Policy {
    /// All checks, but changed descriptions and added values of an enumeration are allowed.
    fn default() -> Self {
        Self {
            off: BTreeSet::from([Check::Description]),
            warn: BTreeSet::new(),
            allowed: BTreeSet::from([(Check::Enum, Change::Addition)]),
        }
    }
}

impl Policy {
    /// All checks, and no change is allowed.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            off: BTreeSet::new(),
            warn: BTreeSet::new(),
            allowed: BTreeSet::new(),
        }
    }

    /// The default policy with the levels of a text: `CHECK=Error|Warn|Off`, separated by commas.
    ///
    /// # Errors
    /// [`PolicyError`]
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        let mut named = BTreeSet::new();
        for entry in text.split(',').map(str::trim) {
            let form = || PolicyError::Form(entry.to_owned());
            let (name, level) = entry.split_once('=').ok_or_else(form)?;
            let level = match level {
                "Error" => Level::Error,
                "Warn" => Level::Warn,
                "Off" => Level::Off,
                _ => return Err(form()),
            };
            let check = Check::ALL.into_iter().find(|check| check.as_str() == name);
            let check = check.ok_or_else(|| PolicyError::Check(name.to_owned()))?;
            if !named.insert(check) {
                return Err(PolicyError::Twice(check));
            }
            policy.set(check, level);
        }
        Ok(policy)
    }

    fn set(&mut self, check: Check, level: Level) {
        self.off.remove(&check);
        self.warn.remove(&check);
        match level {
            Level::Error => {}
            Level::Warn => {
                self.warn.insert(check);
            }
            Level::Off => {
                self.off.insert(check);
            }
        }
    }

    /// Whether a finding of this kind is reported.
    #[must_use]
    pub fn reports(&self, check: Check, change: Change) -> bool {
        !self.off.contains(&check) && !self.allowed.contains(&(check, change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_set_one_by_one_over_the_default() {
        let policy = Policy::parse("pattern=Warn, description=Error,maximum=Off").unwrap();
        assert_eq!(policy.warn, BTreeSet::from([Check::Pattern]));
        assert_eq!(policy.off, BTreeSet::from([Check::Maximum]));
        assert_eq!(policy.allowed, Policy::default().allowed);
        assert_eq!(Policy::parse("type=Error"), Ok(Policy::default()));
    }

    #[test]
    fn an_unknown_policy_is_named() {
        for (text, expected) in [
            ("", "\"\" is not of the form CHECK=Error|Warn|Off"),
            ("type", "\"type\" is not of the form CHECK=Error|Warn|Off"),
            (
                "type=warn",
                "\"type=warn\" is not of the form CHECK=Error|Warn|Off",
            ),
            ("type=Warn,", "\"\" is not of the form CHECK=Error|Warn|Off"),
            ("type=Warn,type=Off", "the check type is named twice"),
        ] {
            assert_eq!(Policy::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let unknown = Policy::parse("types=Warn").unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no check \"types\"; there are existingFieldRemoval, scope, "),
            "{unknown}"
        );
    }
}
