//! Access to images: credentials, registries and the signature policy.

pub(crate) mod credentials;
pub(crate) mod current;
pub(crate) mod policy;
pub(crate) mod registries;
pub(crate) mod settings;
pub(crate) mod tally;
pub(crate) mod verification;

use std::sync::Arc;

use credentials::Credentials;
use policy::{Policy, PolicyRejection, RequiredSignature, Rules};
use registries::Registries;

use crate::reference::Reference;

/// Credentials, registries and policy for fetching images. Read again by the caller as often as they change.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Credentials of registries.
    pub credentials: Arc<Credentials>,
    /// Mirrors and other configuration of registries.
    pub registries: Arc<Registries>,
    /// Policy for signatures of images.
    pub policy: Arc<Policy>,
    /// Rules for the images of the object at hand, beside the policy.
    pub rules: Rules,
}

impl Access {
    /// The required signatures of an image by the policy and by the rules, as far as its name decides them.
    pub(crate) fn admit(&self, reference: &Reference) -> Result<Vec<RequiredSignature<'_>>, PolicyRejection> {
        let mut wanted = self.policy.admit(reference)?;
        for rules in self.rules.policies() {
            wanted.extend(rules.admit(reference)?);
        }
        Ok(wanted)
    }
}
