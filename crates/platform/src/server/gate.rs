//! Authorisation of readers: the API server must accept their token and allow them to `get` the resource.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long the API server's word about a token counts.
const VERDICT_LIFETIME: Duration = Duration::from_secs(30);
/// How many verdicts are remembered.
const VERDICTS: usize = 1024;
/// The longest token that the API server is asked about, in bytes; none that it issues comes near.
const TOKEN: usize = 16 << 10;
/// How many tokens are reviewed at once; a client can make up any number.
const REVIEWS: usize = 8;
/// How long to wait for a turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The resource that a client wants to get.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asked {
    /// A path of a server, as RBAC calls it.
    Path(&'static str),
    /// A part of an object, or of all objects when the name is empty.
    Part {
        /// The API group.
        group: &'static str,
        /// The plural.
        resource: &'static str,
        /// The part.
        subresource: &'static str,
        /// The object's name.
        name: String,
    },
}

impl std::fmt::Display for Asked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(formatter, "the non-resource URL {path}"),
            Self::Part {
                group,
                resource,
                subresource,
                name,
            } => {
                write!(formatter, "{resource}.{group}/{subresource}")?;
                if name.is_empty() {
                    Ok(())
                } else {
                    write!(formatter, " {name:?}")
                }
            }
        }
    }
}

/// A refused client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no token, or the API server does not know it.
    #[error("a bearer token of the cluster is needed{}", meant(*audience))]
    Unauthenticated {
        /// The audience that the token must be made for.
        audience: Option<&'static str>,
    },
    /// The token is valid, but its user lacks the permission.
    #[error("{user} may not get {asked}")]
    Forbidden {
        /// The user.
        user: String,
        /// What was asked for.
        asked: Asked,
    },
    /// The API server did not answer.
    #[error("the API server cannot be asked about the token now")]
    Unknown,
}

fn meant(audience: Option<&str>) -> String {
    audience.map_or_else(String::new, |audience| {
        format!(", made for the audience {audience}")
    })
}

impl Refused {
    /// The status of an answer that says so.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

type Verdicts = HashMap<(String, Asked), (Instant, Result<(), Refused>)>;

/// Asks the API server, and remembers what it said for a while.
#[derive(Clone)]
pub struct Gate {
    client: Client,
    /// Whom tokens must be meant for; the API server itself when nothing is named.
    audience: Option<&'static str>,
    verdicts: Arc<Mutex<Verdicts>>,
    reviews: Arc<Semaphore>,
}

impl Gate {
    /// Asks the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            audience: None,
            verdicts: Arc::default(),
            reviews: Arc::new(Semaphore::new(REVIEWS)),
        }
    }

    /// Admits only tokens for this audience: a token for the API server gives far more access than reading here, so clients
    /// should not send it.
    #[must_use]
    pub fn for_audience(mut self, audience: &'static str) -> Self {
        self.audience = Some(audience);
        self
    }

    /// Whether the sender of these headers may get it.
    ///
    /// # Errors
    /// When not.
    pub async fn admit(&self, headers: &HeaderMap, asked: Asked) -> Result<(), Refused> {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .filter(|token| (1..=TOKEN).contains(&token.len()))
            .ok_or_else(|| self.unauthenticated())?;
        let key = (token.to_owned(), asked);
        if let Some(verdict) = self.remembered(&key) {
            return verdict;
        }
        let Ok(Ok(_turn)) = timeout(PATIENCE, self.reviews.acquire()).await else {
            tracing::warn!("too many tokens wait for a review");
            return Err(Refused::Unknown);
        };
        // Another request may have asked the same meanwhile.
        if let Some(verdict) = self.remembered(&key) {
            return verdict;
        }
        let verdict = self.ask(token, &key.1).await.map_err(|error| {
            tracing::warn!(%error, "cannot review a token");
            Refused::Unknown
        })?;
        let mut verdicts = self.verdicts.lock();
        remember(&mut verdicts, key, verdict.clone());
        verdict
    }

    const fn unauthenticated(&self) -> Refused {
        Refused::Unauthenticated {
            audience: self.audience,
        }
    }

    fn remembered(&self, key: &(String, Asked)) -> Option<Result<(), Refused>> {
        let verdicts = self.verdicts.lock();
        verdicts
            .get(key)
            .filter(|(at, _)| at.elapsed() < VERDICT_LIFETIME)
            .map(|(_, verdict)| verdict.clone())
    }

    async fn ask(&self, token: &str, asked: &Asked) -> Result<Result<(), Refused>, kube::Error> {
        let Some(user) = self.user(token).await? else {
            return Ok(Err(self.unauthenticated()));
        };
        let name = user.username.clone().unwrap_or_default();
        if self.may(user, asked).await? {
            return Ok(Ok(()));
        }
        Ok(Err(Refused::Forbidden {
            user: name,
            asked: asked.clone(),
        }))
    }

    async fn user(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            audiences: self.audience.map(|audience| vec![audience.to_owned()]),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let review = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = review.status.unwrap_or_default();
        // A server that knows no audiences names none: its word says nothing about ours.
        let audiences = status.audiences.unwrap_or_default();
        let is_meant = self
            .audience
            .is_none_or(|ours| audiences.iter().any(|audience| audience == ours));
        Ok(status
            .user
            .filter(|_| status.authenticated == Some(true) && is_meant))
    }

    async fn may(&self, user: UserInfo, asked: &Asked) -> Result<bool, kube::Error> {
        let verb = Some("get".to_owned());
        let (path, part) = match asked {
            Asked::Path(path) => {
                let path = Some((*path).to_owned());
                (Some(NonResourceAttributes { path, verb }), None)
            }
            Asked::Part {
                group,
                resource,
                subresource,
                name,
            } => {
                let part = ResourceAttributes {
                    group: Some((*group).to_owned()),
                    resource: Some((*resource).to_owned()),
                    subresource: Some((*subresource).to_owned()),
                    name: Some(name.clone()).filter(|name| !name.is_empty()),
                    verb,
                    ..ResourceAttributes::default()
                };
                (None, Some(part))
            }
        };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: path,
            resource_attributes: part,
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

/// Makes room if there is none: removes expired verdicts first, then refusals, of which a client can cause any number.
fn remember(verdicts: &mut Verdicts, key: (String, Asked), verdict: Result<(), Refused>) {
    if verdicts.len() >= VERDICTS {
        verdicts.retain(|_, (at, _)| at.elapsed() < VERDICT_LIFETIME);
    }
    if verdicts.len() >= VERDICTS {
        verdicts.retain(|_, (_, verdict)| verdict.is_ok());
    }
    if verdicts.len() < VERDICTS {
        verdicts.insert(key, (Instant::now(), verdict));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;

    use super::*;

    const ASKED: Asked = Asked::Path("/metrics");
    const UNKNOWN_TOKEN: Refused = Refused::Unauthenticated { audience: None };

    #[test]
    fn refusals_make_room_for_those_who_are_known() {
        let mut verdicts = Verdicts::new();
        let key = |token: &str| (token.to_owned(), ASKED);
        remember(&mut verdicts, key("scraper"), Ok(()));
        for number in 0..3 * VERDICTS {
            let token = format!("made up {number}");
            remember(&mut verdicts, key(&token), Err(UNKNOWN_TOKEN));
            assert!(verdicts.len() <= VERDICTS);
        }
        assert!(verdicts.contains_key(&key("scraper")));
        for number in 0..2 * VERDICTS {
            remember(&mut verdicts, key(&format!("known {number}")), Ok(()));
        }
        assert_eq!(verdicts.len(), VERDICTS);
        assert!(verdicts.values().all(|(_, verdict)| verdict.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_tokens_do_not_flood_the_api_server() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                let review = br#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","metadata":{},"spec":{"token":""}}"#;
                Ok::<_, std::io::Error>(http::Response::new(Body::from(review.to_vec())))
            }
        });
        let gate = Gate::new(Client::new(service, "default"));
        let asking = (0..100).map(|number| {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer made-up-{number}").parse().unwrap();
            headers.insert(header::AUTHORIZATION, value);
            let gate = gate.clone();
            async move { gate.admit(&headers, ASKED).await }
        });
        let verdicts = futures::future::join_all(asking).await;
        assert_eq!(seen.load(Ordering::SeqCst), REVIEWS);
        let reviewed = verdicts.iter().filter(|v| **v == Err(UNKNOWN_TOKEN));
        let turned_away = verdicts.iter().filter(|v| **v == Err(Refused::Unknown));
        let (reviewed, turned_away) = (reviewed.count(), turned_away.count());
        assert!(
            reviewed >= REVIEWS && turned_away > 0,
            "{reviewed} and {turned_away}"
        );
        assert_eq!(reviewed + turned_away, 100);

        let mut headers = HeaderMap::new();
        let value = format!("Bearer {}", "x".repeat(TOKEN + 1)).parse().unwrap();
        headers.insert(header::AUTHORIZATION, value);
        assert_eq!(gate.admit(&headers, ASKED).await, Err(UNKNOWN_TOKEN));
    }

    #[tokio::test]
    async fn a_token_for_another_audience_is_refused() {
        // What an API server answers about a token: whether it is good, and for whom of those that were asked about.
        let admits = async |audiences: &'static str| {
            let service = tower::service_fn(move |request: http::Request<Body>| async move {
                let body = if request.uri().path().ends_with("tokenreviews") {
                    format!(
                        r#"{{"metadata":{{}},"spec":{{"token":""}},"status":{{"authenticated":true,"user":{{"username":"u"}}{audiences}}}}}"#
                    )
                } else {
                    r#"{"metadata":{},"spec":{},"status":{"allowed":true}}"#.to_owned()
                };
                Ok::<_, std::io::Error>(http::Response::new(Body::from(body.into_bytes())))
            });
            let gate = Gate::new(Client::new(service, "default")).for_audience("ours");
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, "Bearer t".parse().unwrap())]);
            gate.admit(&headers, ASKED).await
        };
        assert_eq!(admits(r#","audiences":["ours"]"#).await, Ok(()));
        let refused = admits("").await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a bearer token of the cluster is needed, made for the audience ours"
        );
        assert!(
            admits(r#","audiences":["https://kubernetes.default.svc"]"#)
                .await
                .is_err()
        );
    }
}
