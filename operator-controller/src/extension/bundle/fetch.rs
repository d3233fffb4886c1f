//! The image of a bundle, and failures to fetch it.

use olm_api::ClusterExtension;
use olm_api::conditions::{self, PROGRESSING, reason};
use olm_api::updates::held_back;
use olm_image::{PolicyRejection, PullError};

use crate::bundles::FetchError;
use crate::extension::failure::{Severity, StageError, StageFailure};
use crate::extension::resolve::{Origin, Target};

impl StageError for FetchError {
    fn severity(&self) -> Severity {
        match self {
            Self::Reference { .. } => Severity::Terminal,
            Self::Resolve(error) if !error.is_retryable() => Severity::Terminal,
            Self::Pull(error) if !error.is_retryable() => Severity::Terminal,
            // No event announces a new pull secret, image or signature. It is found within a minute.
            Self::Resolve(error) if waits_for_user(error) => Severity::Waiting,
            Self::Pull(error) if waits_for_user(error) => Severity::Waiting,
            Self::Pending { .. } => Severity::Pulling,
            Self::Credentials(_) | Self::Settings(_) | Self::Resolve(_) | Self::Pull(_) => {
                Severity::Transient
            }
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Reference { .. } => reason::BLOCKED,
            _ => reason::RETRYING,
        }
    }

    fn help(&self) -> Option<String> {
        self.rejection()?.remedy().map(str::to_owned)
    }

    fn held_back_by(&self) -> &'static str {
        match self.rejection() {
            Some(_) => held_back::SIGNATURE,
            None => held_back::OTHER,
        }
    }
}

fn waits_for_user(error: &PullError) -> bool {
    let rejection = error.policy_rejection();
    // A policy that cannot be followed may be one that is not read yet.
    error.is_refusal() || rejection.is_some_and(|found| !matches!(found, PolicyRejection::Unusable { .. }))
}

/// The failure of an image that cannot be pulled. It names the catalog, whose author may have to fix the reference,
/// unless the signature policy refuses the image.
pub(crate) fn failure(error: FetchError, target: &Target) -> StageFailure {
    let is_of_image = match &error {
        FetchError::Reference { .. } => true,
        FetchError::Resolve(_) | FetchError::Pull(_) => error.rejection().is_none(),
        FetchError::Credentials(_) | FetchError::Settings(_) | FetchError::Pending { .. } => false,
    };
    let mut failure = StageFailure::from(error);
    if is_of_image && target.origin == Origin::Catalog {
        failure.help = Some(format!(
            "ClusterCatalog {} names this image: check the reference, and that this cluster may pull from its registry",
            target.catalog
        ));
    }
    failure
}

/// The image; `None` if it cannot be fetched and is already installed. Then the installed objects stay.
pub(crate) fn unless_installed<T>(
    fetched: Result<T, FetchError>,
    extension: &ClusterExtension,
    target: &Target,
) -> Result<Option<T>, StageFailure> {
    match fetched {
        // If the present spec was reported as installed, nothing is missing while its image is pulled again.
        Err(error @ FetchError::Pending { .. }) if is_news(extension) => Err(error.into()),
        Err(error) if target.origin == Origin::Installed => {
            tracing::debug!(
                extension = extension.name(),
                error = &error as &dyn std::error::Error,
                "bundle cannot be fetched"
            );
            Ok(None)
        }
        Err(error) => Err(retry_if_tagged(failure(error, target), target)),
        Ok(fetched) => Ok(Some(fetched)),
    }
}

/// Whether the condition `Progressing` is about an earlier spec.
fn is_news(extension: &ClusterExtension) -> bool {
    let reported = conditions::find(extension.conditions(), PROGRESSING);
    reported.is_none_or(|condition| condition.observed_generation != extension.metadata.generation)
}

/// A publisher may push another image with the same tag, without any event. So faults of a bundle with a tag are
/// retried.
pub(crate) fn retry_if_tagged(mut failure: StageFailure, target: &Target) -> StageFailure {
    if failure.severity == Severity::Terminal && !target.bundle.image.contains('@') {
        failure.severity = Severity::Waiting;
    }
    failure
}

#[cfg(test)]
mod tests {
    use olm_image::Reference;

    use super::*;
    use crate::extension::revisions::BundleIdentity;

    #[test]
    fn an_image_that_cannot_be_pulled_is_named_with_its_origin() {
        for (origin, expected) in [
            (
                Origin::Catalog,
                "ClusterCatalog lab names this image: check the reference, ",
            ),
            (Origin::Installed, ""),
        ] {
            let target = Target {
                bundle: BundleIdentity::default(),
                origin,
                catalog: "lab".to_owned(),
                declared: Vec::new(),
                companions: Vec::new(),
            };
            let error = || FetchError::Reference {
                reference: "No".to_owned(),
                source: Reference::parse("No").unwrap_err(),
            };
            let plain = StageFailure::from(error());
            let found = failure(error(), &target);
            assert_eq!(found.message, plain.message);
            let help = found.help.unwrap_or_default();
            assert!(help.starts_with(expected), "{help}");
            assert_eq!(help.is_empty(), expected.is_empty(), "{help}");
            assert_eq!(found.severity, plain.severity);
        }
    }
}
