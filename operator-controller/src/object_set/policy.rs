//! What users decide by annotation.

use olm_api::{ClusterObjectSet, names};

use super::engine::rollout::{MissingKinds, Writes};

/// What deletion leaves behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Uninstall {
    /// Nothing.
    #[default]
    Delete,
    /// Everything.
    Orphan,
    /// The CustomResourceDefinitions and objects of the kinds they define.
    KeepCrds,
}

/// What a ClusterObjectSet's annotations say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// What deletion leaves behind.
    pub uninstall: Uninstall,
    /// What to do about objects of kinds that the cluster lacks.
    pub missing_kinds: MissingKinds,
    /// Whether anything may be written.
    pub writes: Writes,
}

/// An annotation has a value that means nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("annotation {annotation} has the unknown value \"{value}\" (known are {known})")]
pub struct PolicyError {
    annotation: &'static str,
    value: String,
    known: &'static str,
}

impl Policy {
    /// Reads the annotations.
    ///
    /// # Errors
    /// An annotation has a value that means nothing.
    pub fn of(set: &ClusterObjectSet) -> Result<Self, PolicyError> {
        Ok(Self {
            uninstall: read(
                set,
                names::user::UNINSTALL,
                "delete, orphan, keep-crds",
                &[
                    ("delete", Uninstall::Delete),
                    ("orphan", Uninstall::Orphan),
                    ("keep-crds", Uninstall::KeepCrds),
                ],
            )?,
            missing_kinds: read(
                set,
                names::user::MISSING_KINDS,
                "wait, skip",
                &[("wait", MissingKinds::Wait), ("skip", MissingKinds::Skip)],
            )?,
            writes: read(
                set,
                names::user::PAUSED,
                "true, false",
                &[("true", Writes::Paused), ("false", Writes::Allowed)],
            )?,
        })
    }
}

fn read<T: Copy + Default>(
    set: &ClusterObjectSet,
    annotation: &'static str,
    known: &'static str,
    values: &[(&str, T)],
) -> Result<T, PolicyError> {
    let Some(given) = set.annotation(annotation) else {
        return Ok(T::default());
    };
    let found = values.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| PolicyError {
        annotation,
        value: given.to_owned(),
        known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(annotation: &str, value: &str) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::default();
        set.metadata.annotations = Some([(annotation.to_owned(), value.to_owned())].into());
        set
    }

    #[test]
    fn annotations_decide_and_absence_is_the_default() {
        assert_eq!(Policy::of(&ClusterObjectSet::default()), Ok(Policy::default()));
        assert_eq!(
            Policy::of(&set(names::user::UNINSTALL, "orphan"))
                .unwrap()
                .uninstall,
            Uninstall::Orphan
        );
        assert_eq!(
            Policy::of(&set(names::user::UNINSTALL, "keep-crds"))
                .unwrap()
                .uninstall,
            Uninstall::KeepCrds
        );
        assert_eq!(
            Policy::of(&set(names::user::MISSING_KINDS, "skip"))
                .unwrap()
                .missing_kinds,
            MissingKinds::Skip
        );
        assert_eq!(
            Policy::of(&set(names::user::PAUSED, "true")).unwrap().writes,
            Writes::Paused
        );
    }

    #[test]
    fn an_unknown_value_is_an_error() {
        assert_eq!(
            Policy::of(&set(names::user::PAUSED, "yes"))
                .unwrap_err()
                .to_string(),
            "annotation olm.operatorframework.io/paused has the unknown value \"yes\" (known are true, false)"
        );
    }
}
