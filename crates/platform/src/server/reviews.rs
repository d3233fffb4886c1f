//! Reviews of clients by the API server: the user of a token, and the rights of a user.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The longest token that is sent to the API server, in bytes. Its own tokens are far shorter.
const TOKEN: usize = 16 << 10;
/// The number of concurrent reviews. A client can invent any number of tokens.
pub(super) const REVIEWS: usize = 8;
/// The time to wait for a permit.
const PATIENCE: Duration = Duration::from_secs(5);

/// An access that a user requests.
#[derive(Debug, Clone)]
pub(crate) enum Attributes {
    /// Access to a path of a server.
    Path(NonResourceAttributes),
    /// Access to a resource.
    Resource(Box<ResourceAttributes>),
}

/// Asks the API server.
#[derive(Clone)]
pub(crate) struct Reviews {
    client: Client,
    turns: Arc<Semaphore>,
}

/// The bearer token of a request; `None` if it is longer than any valid token.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .filter(|token| (1..=TOKEN).contains(&token.len()))
}

impl Reviews {
    /// Asks the API server of `client`.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            turns: Arc::new(Semaphore::new(REVIEWS)),
        }
    }

    /// Waits for a permit to ask, which is held until the result is dropped. `None` if too many requests wait.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = timeout(PATIENCE, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok);
        if turn.is_none() {
            tracing::warn!("too many clients wait for a review");
        }
        turn
    }

    /// The user of a token. `None` if the API server does not know the token, or the token is not meant for the
    /// audience.
    pub(crate) async fn user(
        &self,
        token: &str,
        audience: Option<&str>,
    ) -> Result<Option<UserInfo>, kube::Error> {
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            audiences: audience.map(|audience| vec![audience.to_owned()]),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let review = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = review.status.unwrap_or_default();
        // A server without support for audiences returns none: its answer does not cover our audience.
        let audiences = status.audiences.unwrap_or_default();
        let is_meant = audience.is_none_or(|ours| audiences.iter().any(|audience| audience == ours));
        Ok(status
            .user
            .filter(|_| status.authenticated == Some(true) && is_meant))
    }

    /// Whether a user has an access.
    pub(crate) async fn may(&self, user: UserInfo, what: Attributes) -> Result<bool, kube::Error> {
        let (non_resource_attributes, resource_attributes) = match what {
            Attributes::Path(path) => (Some(path), None),
            Attributes::Resource(resource) => (None, Some(*resource)),
        };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes,
            resource_attributes,
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let review = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}
