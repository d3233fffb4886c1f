//! Access to images: credentials, registries and the signature policy.

pub(crate) mod credentials;
pub(crate) mod policy;
pub(crate) mod present;
pub(crate) mod registries;
pub(crate) mod settings;
pub(crate) mod standing;
pub(crate) mod tally;

use std::sync::Arc;

use credentials::Credentials;
use policy::Policy;
use registries::Registries;

/// Credentials, registries and policy for fetching images. Read again by the caller as often as they change.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Credentials of registries.
    pub credentials: Arc<Credentials>,
    /// Mirrors and other configuration of registries.
    pub registries: Arc<Registries>,
    /// Policy for signatures of images.
    pub policy: Arc<Policy>,
}
