//! What a move acts with.

use kube::Client;
use kube::api::{PatchParams, PostParams};

use crate::check::Request;

/// Callback for each step, with a line such as `subscription/a paused`.
pub type OnStep<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The clients and names with which a move acts.
pub struct MoveContext<'a> {
    /// Acts on objects of the kinds of OLM itself, and reads.
    pub own: Client,
    /// Acts on the objects of the operator.
    pub content: Client,
    /// The field manager of changes to objects of the kinds of OLM itself.
    pub manager: &'a str,
    /// The namespace of the managers.
    pub system_namespace: &'a str,
    /// How the move is requested.
    pub request: Request,
    /// Callback for each step.
    pub on_step: OnStep<'a>,
}

impl MoveContext<'_> {
    /// What happens after an error, as the last part of its text.
    pub(crate) fn again(&self) -> &'static str {
        match self.request {
            Request::Command => "run the command again",
            Request::Annotation => "catalog-operator retries",
        }
    }

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
