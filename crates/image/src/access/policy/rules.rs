//! Rules for the images of one object. They hold beside the policy of the files: an image must satisfy both.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::{Policy, PolicyError, parse};

/// Rules for the images of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    policy: Option<Arc<Policy>>,
    mark: u64,
}

impl Rules {
    /// Reads a JSON list of requirements in the form of `policy.json`. Keys and roots must be in it: a file would be
    /// one of whoever reads the rules. `origin` says who set them, in messages.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(origin: &str, text: &str) -> Result<Self, String> {
        let policy = parse::rules(origin, text).map_err(|error| match error {
            PolicyError::Syntax(message) | PolicyError::Requirement { message, .. } => message,
            PolicyError::Key { path, .. } => {
                format!("`{path}` would be a file of the manager; give its content in the field `…Data`")
            }
        })?;
        let mut hasher = DefaultHasher::new();
        (origin, text).hash(&mut hasher);
        Ok(Self {
            policy: Some(Arc::new(policy)),
            mark: hasher.finish(),
        })
    }

    /// A number that changes with the rules; 0 without any.
    pub const fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.policy.as_deref()
    }
}
