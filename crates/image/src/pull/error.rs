//! Errors of pulling images.

use crate::access::policy::PolicyRejection;
use crate::access::registries::PlaceError;
use crate::layer::LayerError;
use crate::pull::contents::LostLink;
use crate::registry::error::RegistryError;

/// Error of pulling an image.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry did not give a manifest, a configuration or a layer.
    #[error("cannot fetch {what} of {reference}")]
    Fetch {
        /// The part that was being fetched.
        what: &'static str,
        /// The image.
        reference: String,
        /// The cause.
        source: RegistryError,
    },
    /// There is no place to fetch it from.
    #[error("cannot fetch {reference}")]
    Place {
        /// The image.
        reference: String,
        /// The cause.
        source: PlaceError,
    },
    /// The signature policy does not let it through.
    #[error("cannot use {reference}")]
    Policy {
        /// The image.
        reference: String,
        /// The cause.
        source: PolicyRejection,
    },
    /// The manifest cannot be used.
    #[error("cannot use the manifest of {reference}: {message}")]
    Manifest {
        /// The image.
        reference: String,
        /// The reason.
        message: String,
    },
    /// No image of the index is for this platform.
    #[error("{reference} has no image for {os}/{architecture}")]
    Platform {
        /// The image.
        reference: String,
        /// The operating system wanted.
        os: String,
        /// The architecture wanted.
        architecture: String,
    },
    /// A layer cannot be unpacked.
    #[error("cannot unpack layer {layer} of {reference}")]
    Layer {
        /// The image.
        reference: String,
        /// The number of the layer, from 1.
        layer: usize,
        /// The cause.
        source: LayerError,
    },
    /// A link of the image leads nowhere.
    #[error("cannot use {reference}")]
    Link {
        /// The image.
        reference: String,
        /// The link.
        source: LostLink,
    },
    /// The layers are larger than they may be.
    #[error("the layers of {reference} have {bytes} bytes, more than {limit}")]
    TransferBytes {
        /// The image.
        reference: String,
        /// Their size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There are more layers than there may be.
    #[error("{reference} has more than {limit} layers")]
    Layers {
        /// The image.
        reference: String,
        /// The limit.
        limit: usize,
    },
    /// The pull took too long.
    #[error("{reference} was not pulled within {seconds} seconds")]
    Time {
        /// The image.
        reference: String,
        /// The limit.
        seconds: u64,
    },
    /// The pull was torn down, because the program ends.
    #[error("the pull of {reference} was cut off")]
    CutOff {
        /// The image.
        reference: String,
    },
}

impl PullError {
    /// Whether the registry refuses the pull until a user adds credentials, a permission or the image. A missing image
    /// counts: some registries answer 404 where rights are missing.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Fetch {
                source: RegistryError::Unauthorized { .. }
                    | RegistryError::Denied { .. }
                    | RegistryError::NotFound { .. },
                ..
            }
        )
    }

    /// The verdict of the signature policy, if it refuses the image.
    pub const fn policy_rejection(&self) -> Option<&PolicyRejection> {
        match self {
            Self::Policy { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether a manifest or blob is broken or absent, which asking another time does not change. Otherwise the registry
    /// could not be asked, or did not answer.
    pub(crate) const fn is_broken_content(&self) -> bool {
        matches!(
            self,
            Self::Manifest { .. }
                | Self::Fetch {
                    source: RegistryError::NotFound { .. }
                        | RegistryError::TooLarge { .. }
                        | RegistryError::Mismatch { .. }
                        | RegistryError::Size { .. },
                    ..
                }
        )
    }

    /// Whether it decides about the image: a policy or the registry refuses it, or it is malformed. Otherwise nothing is
    /// known about the image.
    pub fn is_verdict(&self) -> bool {
        matches!(self, Self::Policy { .. }) || self.is_refusal() || !self.is_retryable()
    }

    /// Whether the same pull may succeed later without a change of the image or a limit.
    ///
    /// Authentication, authorisation and missing images count: they are fixed at the registry, not in the object that
    /// names the image.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Fetch { source, .. } => match source {
                RegistryError::TooLarge { .. } => false,
                RegistryError::Unreachable { .. }
                | RegistryError::Trust(_)
                | RegistryError::Unauthorized { .. }
                | RegistryError::Denied { .. }
                | RegistryError::NotFound { .. }
                | RegistryError::Status { .. }
                | RegistryError::Mismatch { .. }
                | RegistryError::Size { .. }
                | RegistryError::Digest { .. }
                | RegistryError::TokenService { .. }
                | RegistryError::Protocol { .. }
                | RegistryError::GivenUp => true,
            },
            Self::Layer { source, .. } => matches!(
                source,
                LayerError::Store { .. } | LayerError::Corrupt(_) | LayerError::Time { .. }
            ),
            // The configuration and the signatures are fixed without the object that names the image.
            Self::Place { .. } | Self::Policy { .. } | Self::Time { .. } | Self::CutOff { .. } => true,
            Self::Manifest { .. }
            | Self::Platform { .. }
            | Self::Link { .. }
            | Self::Layers { .. }
            | Self::TransferBytes { .. } => false,
        }
    }
}
