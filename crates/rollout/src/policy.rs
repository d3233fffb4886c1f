//! The decisions of users in annotations.

use olm_api::cluster_object_set::CollisionProtection;
use olm_api::{ClusterObjectSet, names};

use crate::engine::rollout::{MissingKinds, Writes};

/// The objects that stay after a deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Uninstall {
    /// None.
    #[default]
    Delete,
    /// All.
    Orphan,
    /// The CustomResourceDefinitions and the objects of their kinds.
    KeepCrds,
}

/// The annotations of a ClusterObjectSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// The objects that stay after a deletion.
    pub uninstall: Uninstall,
    /// The action for objects of kinds that the cluster lacks.
    pub missing_kinds: MissingKinds,
    /// Whether anything may be written.
    pub writes: Writes,
}

/// An annotation has an invalid value.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("annotation {annotation} has the unknown value \"{value}\" (known are {known})")]
pub struct PolicyError {
    annotation: &'static str,
    value: String,
    known: String,
}

impl PolicyError {
    /// Whether this annotation has the invalid value.
    pub fn is_of(&self, annotation: &str) -> bool {
        self.annotation == annotation
    }
}

/// The existing objects that an extension may take over.
///
/// # Errors
/// The annotation has an invalid value.
pub fn adopt<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<CollisionProtection, PolicyError> {
    let known = [
        ("never", CollisionProtection::Prevent),
        ("unowned", CollisionProtection::IfNoController),
        ("all", CollisionProtection::None),
    ];
    value(given, names::user::ADOPT, &known)
}

/// The images that are verified before a revision is created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VerifiedImages {
    /// The image of the bundle.
    #[default]
    Bundle,
    /// The images of the bundle's Pods too.
    All,
}

/// The images of an extension that are verified.
///
/// # Errors
/// The annotation has an invalid value.
pub fn verified_images<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<VerifiedImages, PolicyError> {
    let known = [("all", VerifiedImages::All), ("bundle", VerifiedImages::Bundle)];
    value(given, names::user::VERIFY_IMAGES, &known)
}

impl Policy {
    /// Reads the annotations of a set.
    ///
    /// # Errors
    /// An annotation has an invalid value.
    pub fn of(set: &ClusterObjectSet) -> Result<Self, PolicyError> {
        Self::read(|key| set.annotation(key))
    }

    /// Reads annotations.
    ///
    /// # Errors
    /// An annotation has an invalid value.
    pub fn read<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<Self, PolicyError> {
        Ok(Self {
            uninstall: value(
                &given,
                names::user::UNINSTALL,
                &[
                    ("delete", Uninstall::Delete),
                    ("orphan", Uninstall::Orphan),
                    ("keep-crds", Uninstall::KeepCrds),
                ],
            )?,
            missing_kinds: value(
                &given,
                names::user::MISSING_KINDS,
                &[("wait", MissingKinds::Wait), ("skip", MissingKinds::Skip)],
            )?,
            writes: Self::writes(&given)?,
        })
    }

    /// Whether anything may be written. Ignores the other annotations.
    ///
    /// # Errors
    /// The annotation has an invalid value.
    pub fn writes<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<Writes, PolicyError> {
        value(
            given,
            names::user::PAUSED,
            &[("true", Writes::Paused), ("false", Writes::Allowed)],
        )
    }
}

/// The meaning of an annotation's value; the default if it is absent.
///
/// # Errors
/// The value is not among those given.
pub fn value<'a, T: Copy + Default>(
    given: impl Fn(&str) -> Option<&'a str>,
    annotation: &'static str,
    values: &[(&'static str, T)],
) -> Result<T, PolicyError> {
    let Some(given) = given(annotation) else {
        return Ok(T::default());
    };
    let found = values.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| PolicyError {
        annotation,
        value: given.to_owned(),
        known: values
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", "),
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
