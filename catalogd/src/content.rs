//! Resolves an image reference and stores the content.

use std::sync::Arc;
use std::time::Instant;

use olm_image::{
    Access, CachedVerification, Credentials, CredentialsError, CurrentPolicy, Pinned, PullError, Reference,
    ReferenceError, Rules, Settings, SettingsError, SignatureStatus,
};
use olm_platform::log::chain;
use olm_platform::pull_secrets::{PullSecrets, ReadError};
use olm_serve::{CatalogImages, Destination, Pull, Snapshot, UnpackError};
use tokio_util::sync::CancellationToken;

/// A failure to fetch or store content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// The reference is not a fully qualified image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        reference: String,
        source: ReferenceError,
    },
    /// A tag and a digest may contradict each other.
    #[error("error creating reference: {0:?} has both a tag and a digest")]
    TagAndDigest(String),
    /// A pull secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ReadError),
    /// A pull secret is invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The configuration of registries or signatures cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The rules for the image in an annotation are invalid.
    #[error("{0}")]
    Rules(String),
    /// The image cannot be pulled, is not a catalog, or cannot be stored.
    #[error(transparent)]
    Unpack(UnpackError),
    /// A newer generation of the object cancelled the work.
    #[error("cancelled by a newer generation of the object")]
    Stopped,
}

impl ContentError {
    /// Whether storage failed instead of the pull.
    pub(crate) fn is_about_storing(&self) -> bool {
        matches!(self, Self::Unpack(error) if error.is_about_storing())
    }

    /// Whether the image itself is faulty: the same digest always fails in the same way.
    pub(crate) fn is_about_content(&self) -> bool {
        matches!(self, Self::Unpack(error) if error.is_about_content())
    }

    /// The label in metrics, one of [`FAILURES`].
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Reference { .. } | Self::TagAndDigest(_) => "reference",
            Self::Secret(_) | Self::Credentials(_) => "secret",
            Self::Settings(_) | Self::Rules(_) => "settings",
            Self::Unpack(error) => match error {
                UnpackError::Pull(error) => match **error {
                    PullError::Fetch { .. } | PullError::Time { .. } => "registry",
                    PullError::Policy { .. } | PullError::Place { .. } => "policy",
                    _ => "image",
                },
                UnpackError::Label(_) | UnpackError::Directory(_) | UnpackError::GivenDirectory(_) => "image",
                UnpackError::Load(_) => "load",
                UnpackError::Store(_) => "store",
                UnpackError::Stopped => "stopped",
            },
            Self::Stopped => "stopped",
        }
    }
}

/// The labels of failures in metrics.
pub(crate) const FAILURES: [&str; 9] = [
    "reference",
    "secret",
    "settings",
    "registry",
    "policy",
    "image",
    "load",
    "store",
    "stopped",
];

impl From<UnpackError> for ContentError {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Stopped => Self::Stopped,
            error => Self::Unpack(error),
        }
    }
}

impl From<PullError> for ContentError {
    fn from(error: PullError) -> Self {
        Self::Unpack(error.into())
    }
}

/// A valid catalog image reference, by tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatalogImage(Reference);

impl CatalogImage {
    pub(crate) fn parse(text: &str) -> Result<Self, ContentError> {
        let reference = Reference::parse(text).map_err(|source| ContentError::Reference {
            reference: text.to_owned(),
            source,
        })?;
        if reference.has_tag_and_digest() {
            return Err(ContentError::TagAndDigest(text.to_owned()));
        }
        Ok(Self(reference))
    }
}

/// Fetches and stores content.
pub(crate) struct Contents {
    images: CatalogImages,
    secrets: PullSecrets,
    settings: Settings,
    policy: CurrentPolicy,
}

impl Contents {
    pub(crate) fn new(images: CatalogImages, secrets: PullSecrets, settings: Settings) -> Self {
        Self {
            policy: CurrentPolicy::new(settings.clone()),
            images,
            secrets,
            settings,
        }
    }

    /// The current credentials and settings for pulls.
    async fn access(&self, rules: Rules) -> Result<Access, ContentError> {
        let secrets = self.secrets.read().await?;
        let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
        let credentials = Arc::new(Credentials::from_secrets(secrets)?);
        let settings = self.settings.clone();
        let (registries, policy) = tokio::task::spawn_blocking(move || settings.read())
            .await
            .map_err(|_| ContentError::Stopped)??;
        Ok(Access {
            credentials,
            registries,
            policy,
            rules,
        })
    }

    /// The signature policy.
    pub(crate) fn policy(&self) -> &CurrentPolicy {
        &self.policy
    }

    /// The verdict of the signature policy and these rules about a served image.
    pub(crate) async fn signature_status(&self, image: &Pinned, rules: Rules) -> CachedVerification {
        let asked = Instant::now();
        let (number, known) = self.policy.without_signatures(image, &rules).await;
        let status = match known {
            Some(known) => known,
            None => match self.access(rules).await {
                Ok(access) => self.images.images().signature_status(image, &access).await,
                Err(error) => Some(SignatureStatus::unknown(image, &chain(&error))),
            },
        };
        CachedVerification::new(number, image.clone(), status, asked)
    }

    /// The digest of a reference now, if it satisfies the policy and these rules.
    pub(crate) async fn resolve(&self, image: &CatalogImage, rules: Rules) -> Result<Pinned, ContentError> {
        if let Some(pinned) = image.0.pinned() {
            return Ok(pinned);
        }
        let access = self.access(rules).await?;
        Ok(self.images.images().resolve(&image.0, &access).await?)
    }

    /// Pulls an image, checks its catalog and replaces the served content. The old content stays if a step fails or
    /// `stop` is cancelled.
    pub(crate) async fn fetch(
        &self,
        pinned: &Pinned,
        destination: Destination,
        rules: Rules,
        stop: &CancellationToken,
    ) -> Result<(Arc<Snapshot>, Pull), ContentError> {
        let access = tokio::select! {
            access = self.access(rules) => access?,
            () = stop.cancelled() => return Err(ContentError::Stopped),
        };
        Ok(self.images.fetch(pinned, &access, destination, stop).await?)
    }
}
