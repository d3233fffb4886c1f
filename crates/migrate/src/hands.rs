//! What a move acts with.

use kube::Client;
use kube::api::{PatchParams, PostParams};

/// Told of every step: what has happened to which object.
pub type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The clients and names with which a move acts.
pub struct Hands<'a> {
    /// Acts on objects of the kinds of OLM itself, and reads.
    pub own: Client,
    /// Acts on the objects of the operator.
    pub content: Client,
    /// The field manager of changes to objects of the kinds of OLM itself.
    pub manager: &'a str,
    /// The namespace of the managers.
    pub system_namespace: &'a str,
    /// Told of every step.
    pub tell: Tell<'a>,
}

impl Hands<'_> {
    /// The same with another client for the objects of the operator.
    #[must_use]
    pub(crate) fn with(&self, content: &Client) -> Self {
        Self {
            own: self.own.clone(),
            content: content.clone(),
            ..*self
        }
    }

    /// Parameters of a creation.
    pub(crate) fn creating(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        }
    }

    /// Parameters of a change.
    pub(crate) fn changing(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }
}
