//! Authorization of readers: the API server must accept their token and allow them to `get` the resource.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
use kube::Client;

use super::decision_cache::DecisionCache;
use super::reviews::{Attributes, Reviews, bearer_token};

/// The time for which the API server's answer about a token is cached.
const VERDICT_LIFETIME: Duration = Duration::from_secs(30);
/// The number of cached verdicts.
const VERDICTS: usize = 1024;

/// The protected resource that a client reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ProtectedResource {
    /// A path of a server, as RBAC calls it.
    Path(&'static str),
    /// A subresource of an object, or of all objects when the name is empty.
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

impl std::fmt::Display for ProtectedResource {
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

/// The reason why a client is denied access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    /// There is no token, or the API server does not know it.
    #[error("a bearer token of the cluster is needed{}", meant(*audience))]
    Unauthenticated {
        /// The required audience of the token.
        audience: Option<&'static str>,
    },
    /// The token is valid, but its user lacks the permission.
    #[error("{user} may not get {asked}")]
    Forbidden {
        /// The user.
        user: String,
        /// The requested access.
        asked: ProtectedResource,
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

impl AccessDenied {
    /// The HTTP status of the answer.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Asks the API server, and caches the answers.
#[derive(Clone)]
pub struct Gate {
    reviews: Reviews,
    /// The required audience of tokens; the API server itself if `None`.
    audience: Option<&'static str>,
    verdicts: Arc<DecisionCache<(String, ProtectedResource), Result<(), AccessDenied>>>,
}

impl Gate {
    /// Asks the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            reviews: Reviews::new(client),
            audience: None,
            verdicts: Arc::new(DecisionCache::new(VERDICT_LIFETIME, VERDICTS, Result::is_ok)),
        }
    }

    /// Admits only tokens for this audience. A token for the API server gives far more access than reads here, so
    /// clients should not send one.
    #[must_use]
    pub fn for_audience(mut self, audience: &'static str) -> Self {
        self.audience = Some(audience);
        self
    }

    /// Checks whether the sender of these headers has access.
    ///
    /// # Errors
    /// When the sender has no access.
    pub async fn admit(&self, headers: &HeaderMap, asked: ProtectedResource) -> Result<(), AccessDenied> {
        let token = bearer_token(headers).ok_or_else(|| self.unauthenticated())?;
        let key = (token.to_owned(), asked);
        if let Some(verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        let Some(_turn) = self.reviews.turn().await else {
            return Err(AccessDenied::Unknown);
        };
        // A concurrent request may have added the verdict meanwhile.
        if let Some(verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        let verdict = self.ask(token, &key.1).await.map_err(|error| {
            tracing::warn!(%error, "cannot review a token");
            AccessDenied::Unknown
        })?;
        self.verdicts.keep(key, verdict.clone());
        verdict
    }

    const fn unauthenticated(&self) -> AccessDenied {
        AccessDenied::Unauthenticated {
            audience: self.audience,
        }
    }

    async fn ask(
        &self,
        token: &str,
        asked: &ProtectedResource,
    ) -> Result<Result<(), AccessDenied>, kube::Error> {
        let Some(user) = self.reviews.user(token, self.audience).await? else {
            return Ok(Err(self.unauthenticated()));
        };
        let name = user.username.clone().unwrap_or_default();
        if self.reviews.may(user, attributes(asked)).await? {
            return Ok(Ok(()));
        }
        Ok(Err(AccessDenied::Forbidden {
            user: name,
            asked: asked.clone(),
        }))
    }
}

fn attributes(asked: &ProtectedResource) -> Attributes {
    let verb = Some("get".to_owned());
    match asked {
        ProtectedResource::Path(path) => {
            let path = Some((*path).to_owned());
            Attributes::Path(NonResourceAttributes { path, verb })
        }
        ProtectedResource::Part {
            group,
            resource,
            subresource,
            name,
        } => Attributes::Resource(Box::new(ResourceAttributes {
            group: Some((*group).to_owned()),
            resource: Some((*resource).to_owned()),
            subresource: Some((*subresource).to_owned()),
            name: Some(name.clone()).filter(|name| !name.is_empty()),
            verb,
            ..ResourceAttributes::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::header;
    use kube::client::Body;

    use super::super::reviews::REVIEWS;
    use super::*;

    const ASKED: ProtectedResource = ProtectedResource::Path("/metrics");
    const UNKNOWN_TOKEN: AccessDenied = AccessDenied::Unauthenticated { audience: None };

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
        let turned_away = verdicts.iter().filter(|v| **v == Err(AccessDenied::Unknown));
        let (reviewed, turned_away) = (reviewed.count(), turned_away.count());
        assert!(
            reviewed >= REVIEWS && turned_away > 0,
            "{reviewed} and {turned_away}"
        );
        assert_eq!(reviewed + turned_away, 100);

        let mut headers = HeaderMap::new();
        let value = format!("Bearer {}", "x".repeat(17 << 10)).parse().unwrap();
        headers.insert(header::AUTHORIZATION, value);
        assert_eq!(gate.admit(&headers, ASKED).await, Err(UNKNOWN_TOKEN));
    }

    #[tokio::test]
    async fn a_token_for_another_audience_is_refused() {
        // The API server's answer about a token: whether it is valid, and for which of the requested audiences.
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
