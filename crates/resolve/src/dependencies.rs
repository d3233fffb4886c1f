//! What the chosen bundle must not have.

use olm_version::quoted;

use crate::choose::Choice;
use crate::package::Candidate;
use crate::refusal::{Reason, Refusal};

/// A bundle that depends on something (requirement 3.54).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bundle {} has a dependency declared via property {} which is currently not supported", quoted(.bundle), quoted(.property))]
pub struct DependencyFault {
    /// The bundle.
    pub bundle: String,
    /// The type of the first property that says so.
    pub property: String,
}

impl Candidate {
    /// Refuses a bundle that depends on something: what it needs would not be installed, and it must not be ignored
    /// silently.
    pub fn check_dependencies(&self) -> Result<(), DependencyFault> {
        match self.dependencies().next() {
            None => Ok(()),
            Some(first) => Err(DependencyFault {
                bundle: self.name.clone(),
                property: first.kind.clone(),
            }),
        }
    }
}

/// Refuses a choice whose version is not known, and one that depends on something.
pub(crate) fn check(choice: &Choice<'_>) -> Result<(), Refusal> {
    let candidate = choice.candidate;
    if let Err(fault) = &candidate.version {
        let reason = Reason::Version {
            bundle: candidate.name.clone(),
            fault: fault.clone(),
        };
        return Err(Refusal::new(reason).with_hint("the catalog has to be corrected by its author"));
    }
    let Err(fault) = candidate.check_dependencies() else {
        return Ok(());
    };
    let mut refusal = Refusal::new(Reason::Dependency(fault));
    refusal.add(format!(
        "the bundle was chosen from catalog {}",
        quoted(choice.catalog.name)
    ));
    for property in candidate.dependencies() {
        refusal.add(format!(
            "{} requires {}: {}",
            candidate.name, property.kind, property.value
        ));
    }
    refusal.hint("choose a version without dependencies by spec.source.catalog.version or channels");
    Err(refusal)
}
