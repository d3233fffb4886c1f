//! Rules for the images of one object. They hold beside the policy of the files: an image must satisfy all of them.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use super::{ImagePolicy, Policy, PolicyError, image_policy, parse};

/// Rules for the images of one object, from any number of origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    policies: Vec<Arc<Policy>>,
    mark: u64,
}

impl Rules {
    /// Reads a JSON list of requirements in the form of `policy.json`. Keys and roots must be in it: a file would be
    /// one of whoever reads the rules. `origin` says who set them, in messages.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(origin: &str, text: &str) -> Result<Self, String> {
        let policy = parse::rules(origin, text).map_err(PolicyError::into_message)?;
        Ok(Self::of([policy], &(origin, text)))
    }

    /// The rules of objects of one kind: the most specific scope decides, and an image in no scope is accepted. An
    /// object that cannot be read refuses the images in its scopes, and all images if these cannot be read.
    pub fn of_image_policies<'a>(objects: impl IntoIterator<Item = ImagePolicy<'a>>) -> Self {
        let objects: Vec<_> = objects.into_iter().collect();
        let text: Vec<_> = objects
            .iter()
            .map(|object| (object.kind, object.name.as_str(), object.spec.to_string()))
            .collect();
        if objects.is_empty() {
            return Self::default();
        }
        Self::of(image_policy::policies(&objects), &text)
    }

    /// Rules that exist and cannot be read: they refuse every image.
    pub fn unreadable(origin: &str, why: &str) -> Self {
        Self::of([image_policy::unusable(origin, why)], &(origin, why))
    }

    /// These rules and others.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        if others.policies.is_empty() {
            return self;
        }
        self.policies.extend(others.policies.iter().cloned());
        self.mark = hashed(&(self.mark, others.mark));
        self
    }

    fn of(policies: impl IntoIterator<Item = Policy>, source: &impl Hash) -> Self {
        Self {
            policies: policies.into_iter().map(Arc::new).collect(),
            mark: hashed(source),
        }
    }

    /// A number that changes with the rules; 0 without any.
    pub const fn mark(&self) -> u64 {
        self.mark
    }

    /// The policies, each of which an image must satisfy.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().map(AsRef::as_ref)
    }
}

fn hashed(source: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    hasher.finish()
}
