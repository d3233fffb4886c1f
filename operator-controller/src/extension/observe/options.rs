//! The options in the annotations of a ClusterExtension.

use olm_api::ClusterExtension;
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::{CLUSTER_EXTENSION, user};
use olm_api::updates::held_back;
use olm_cluster::image_policies::own_rules;
use olm_image::Rules;
use olm_preflight::crd_upgrade;

use crate::extension::failure::{Severity, StageError};
use olm_rollout::engine::rollout::Writes;
use olm_rollout::policy::{Policy, PolicyError, VerifiedImages, adopt, value, verified_images};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether anything may be changed.
    pub writes: Writes,
    /// The existing objects that may be taken over.
    pub adopt: CollisionProtection,
    /// The severity of findings in changed custom resource definitions.
    pub definitions: crd_upgrade::Policy,
    /// Whether workloads of the bundle may run under the installing account.
    pub installer_workloads: InstallerWorkloads,
    /// Rules for the images of bundles, beside the signature policy.
    pub signatures: Rules,
    /// The images that are verified.
    pub verified_images: VerifiedImages,
}

/// Whether workloads of a bundle may run under the installing account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InstallerWorkloads {
    /// The bundle is refused.
    #[default]
    Refused,
    /// The workloads get all rights of that account.
    Allowed,
}

/// An annotation has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// An annotation with a fixed set of values.
    #[error("{error}{what}", error = .0, what = consequence(.0))]
    Value(PolicyError),
    /// The policy for CRD checks.
    #[error("annotation {}", user::CRD_POLICY)]
    Definitions(#[source] crd_upgrade::PolicyError),
    /// The rules for images.
    #[error("annotation {}: {}; nothing new is applied until you correct the value", user::SIGNATURE_POLICY, .0)]
    Signatures(String),
}

/// The consequence of an invalid value.
fn consequence(error: &PolicyError) -> &'static str {
    if error.is_of(user::PAUSED) {
        "; it is not paused: drift is repaired, and nothing new is applied until you correct the value"
    } else {
        "; nothing new is applied until you correct the value"
    }
}

impl From<PolicyError> for OptionsError {
    fn from(error: PolicyError) -> Self {
        Self::Value(error)
    }
}

impl StageError for OptionsError {
    fn severity(&self) -> Severity {
        Severity::Terminal
    }

    fn held_back_by(&self) -> &'static str {
        held_back::CONFIGURATION
    }
}

impl Options {
    /// Reads all options.
    ///
    /// # Errors
    /// One of them has an invalid value.
    pub fn of(extension: &ClusterExtension) -> Result<Self, OptionsError> {
        let given = |key: &str| extension.annotation(key);
        let policy = Policy::read(given)?;
        for switch in [user::UPGRADEABLE_OVERRIDE, user::ALLOW_BREAK_DEPENDENTS] {
            value(given, switch, &[("true", true), ("false", false)])?;
        }
        let installer_workloads = [
            ("true", InstallerWorkloads::Allowed),
            ("false", InstallerWorkloads::Refused),
        ];
        let definitions = given(user::CRD_POLICY).map(crd_upgrade::Policy::parse);
        Ok(Self {
            writes: policy.writes,
            adopt: adopt(given)?,
            installer_workloads: value(given, user::ALLOW_INSTALLER_WORKLOADS, &installer_workloads)?,
            definitions: definitions
                .transpose()
                .map_err(OptionsError::Definitions)?
                .unwrap_or_default(),
            signatures: signatures(extension)?,
            verified_images: verified_images(given)?,
        })
    }
}

/// The rules of the extension itself for its images.
///
/// # Errors
/// The annotation cannot be read.
pub(super) fn signatures(extension: &ClusterExtension) -> Result<Rules, OptionsError> {
    let text = extension.annotation(user::SIGNATURE_POLICY);
    own_rules(CLUSTER_EXTENSION, extension.name(), text).map_err(OptionsError::Signatures)
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;

    use super::*;
    use crate::extension::failure::StageFailure;

    fn extension(annotations: &[(&str, &str)]) -> ClusterExtension {
        let mut extension = ClusterExtension::new("a", ClusterExtensionSpec::default());
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        extension.metadata.annotations = Some(annotations.iter().map(owned).collect());
        extension
    }

    #[test]
    fn annotations_decide_and_absence_is_the_default() {
        assert_eq!(Options::of(&extension(&[])), Ok(Options::default()));
        let options = Options::of(&extension(&[
            (user::PAUSED, "true"),
            (user::ADOPT, "unowned"),
            (user::CRD_POLICY, "pattern=Off"),
            (user::UPGRADEABLE_OVERRIDE, "false"),
            (user::ALLOW_INSTALLER_WORKLOADS, "true"),
            (user::VERIFY_IMAGES, "all"),
        ]))
        .unwrap();
        assert_eq!(options.verified_images, VerifiedImages::All);
        assert_eq!(options.installer_workloads, InstallerWorkloads::Allowed);
        assert_eq!(options.writes, Writes::Paused);
        assert_eq!(options.adopt, CollisionProtection::IfNoController);
        assert!(options.definitions.off.contains(&crd_upgrade::Check::Pattern));
    }

    #[test]
    fn an_unknown_value_of_any_is_an_error() {
        for (annotation, expected) in [
            (user::UNINSTALL, "(known are delete, orphan, keep-crds)"),
            (user::MISSING_KINDS, "(known are wait, skip)"),
            (
                user::PAUSED,
                "(known are true, false); it is not paused: drift is repaired",
            ),
            (user::ADOPT, "(known are never, unowned, all)"),
            (user::UPGRADEABLE_OVERRIDE, "(known are true, false)"),
            (user::ALLOW_BREAK_DEPENDENTS, "(known are true, false)"),
            (user::ALLOW_INSTALLER_WORKLOADS, "(known are true, false)"),
            (user::CRD_POLICY, "\"x\" is not of the form CHECK=Error|Warn|Off"),
            (
                user::SIGNATURE_POLICY,
                "it is not JSON: expected value at line 1 column 1; write a list",
            ),
        ] {
            let failure = StageFailure::from(Options::of(&extension(&[(annotation, "x")])).unwrap_err());
            assert!(
                failure.message.contains(annotation) && failure.message.contains(expected),
                "{}",
                failure.message
            );
            assert_eq!(
                (failure.severity, failure.reason),
                (Severity::Terminal, "Blocked")
            );
        }
    }
}
