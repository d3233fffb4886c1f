//! Authentication and authorization of the clients of an aggregated API, delegated to the API server.
//!
//! The API server forwards requests of others and presents the certificate of its front proxy. Any other client
//! presents a certificate of the cluster or a token, or is anonymous.

mod trust;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::{StreamExt as _, pin_mut};
use http::HeaderMap;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::Notify;

use self::trust::Trust;
use super::decision_cache::DecisionCache;
use super::reviews::{Attributes, Reviews, bearer_token};
use crate::tls::client::ClientCertificates;

/// The ConfigMap with the authorities and proxy names that the API server trusts.
const CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The time for which an answer of the API server is cached.
const LIFETIME: Duration = Duration::from_secs(10);
/// The number of tokens, and of answers about rights, that are cached.
const MOST: usize = 1024;
/// The group whose members have all rights.
const MASTERS: &str = "system:masters";

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of all others.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The access that a client requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessRequest {
    /// `get`, `list`, `watch`, `create` and so on.
    pub verb: &'static str,
    /// The target of the access.
    pub target: AccessTarget,
}

/// The target of an access.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessTarget {
    /// A path of the server.
    Path(String),
    /// A resource.
    Resource {
        /// The API group.
        group: &'static str,
        /// The version.
        version: &'static str,
        /// The plural.
        resource: &'static str,
        /// The subresource; empty for the object itself.
        subresource: String,
        /// The namespace; empty for all.
        namespace: String,
        /// The name; empty for all.
        name: String,
    },
}

/// A refused client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The certificate or token is unknown.
    #[error("Unauthorized")]
    Unauthenticated,
    /// The user lacks the permission.
    #[error("user {user:?} lacks the permission")]
    Forbidden {
        /// The user.
        user: String,
    },
    /// The API server did not answer.
    #[error("the API server cannot be asked about the client now")]
    Unknown,
}

/// Asks the API server, and caches the answers.
pub struct Delegated {
    client: Client,
    reviews: Reviews,
    /// Entries that replace those of the ConfigMap.
    given: BTreeMap<String, String>,
    trust: ArcSwap<Trust>,
    known: Notify,
    tokens: DecisionCache<String, Option<Arc<UserInfo>>>,
    rights: DecisionCache<(String, AccessRequest), bool>,
}

impl Delegated {
    /// A delegation to the API server of `client`. Entries in `given` replace those of the ConfigMap
    /// `extension-apiserver-authentication`.
    pub fn new(client: Client, given: BTreeMap<String, String>) -> Self {
        Self {
            reviews: Reviews::new(client.clone()),
            client,
            trust: ArcSwap::from_pointee(Trust::read(&given)),
            given,
            known: Notify::new(),
            tokens: DecisionCache::new(LIFETIME, MOST, Option::is_some),
            rights: DecisionCache::new(LIFETIME, MOST, |may| *may),
        }
    }

    /// Watches the ConfigMap. Never returns.
    pub async fn follow(&self) {
        let (namespace, name) = CONFIG_MAP;
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let found = watcher::watch_object(api, name).default_backoff();
        pin_mut!(found);
        while let Some(found) = found.next().await {
            match found {
                Ok(found) => self.take(found.and_then(|map| map.data).unwrap_or_default()),
                Err(error) => {
                    tracing::warn!(%error, "cannot read ConfigMap {namespace}/{name}; bind the Role {name}-reader there");
                }
            }
        }
    }

    /// Waits until the ConfigMap was read.
    pub async fn wait_until_known(&self) {
        loop {
            let known = self.known.notified();
            if self.trust.load().is_known {
                return;
            }
            known.await;
        }
    }

    fn take(&self, mut data: BTreeMap<String, String>) {
        data.extend(self.given.clone());
        let mut trust = Trust::read(&data);
        trust.is_known = true;
        self.trust.store(Arc::new(trust));
        self.known.notify_waiters();
    }

    /// The user who sends these headers over a connection with these certificates.
    ///
    /// # Errors
    /// When the certificate or token is unknown.
    pub async fn user(
        &self,
        headers: &HeaderMap,
        certificates: Option<&ClientCertificates>,
    ) -> Result<Arc<UserInfo>, Denied> {
        let trust = self.trust.load_full();
        if let Some(certificates) = certificates
            && let Some(user) = trust.user(headers, certificates)
        {
            return Ok(Arc::new(authenticated(user)));
        }
        if let Some(token) = bearer_token(headers) {
            return self.user_of_token(token).await?.ok_or(Denied::Unauthenticated);
        }
        if certificates.is_some() || headers.contains_key(http::header::AUTHORIZATION) {
            return Err(Denied::Unauthenticated);
        }
        Ok(Arc::new(UserInfo {
            username: Some("system:anonymous".to_owned()),
            groups: Some(vec![UNAUTHENTICATED.to_owned()]),
            ..UserInfo::default()
        }))
    }

    async fn user_of_token(&self, token: &str) -> Result<Option<Arc<UserInfo>>, Denied> {
        let token = token.to_owned();
        if let Some(user) = self.tokens.get(&token) {
            return Ok(user);
        }
        let _turn = self.reviews.turn().await.ok_or(Denied::Unknown)?;
        if let Some(user) = self.tokens.get(&token) {
            return Ok(user);
        }
        let user = self.reviews.user(&token, None).await.map_err(|error| {
            tracing::warn!(%error, "cannot review a token");
            Denied::Unknown
        })?;
        let user = user.map(|user| Arc::new(authenticated(user)));
        self.tokens.keep(token, user.clone());
        Ok(user)
    }

    /// Checks whether a user has the access.
    ///
    /// # Errors
    /// When the user does not have it.
    pub async fn admit(&self, user: &Arc<UserInfo>, ask: &AccessRequest) -> Result<(), Denied> {
        // The API server allows them everything, and it checks itself whether this server is available.
        if user.groups.iter().flatten().any(|group| group == MASTERS) {
            return Ok(());
        }
        let key = (identity(user), ask.clone());
        let may = match self.rights.get(&key) {
            Some(may) => may,
            None => self.review(user, key).await?,
        };
        if may {
            return Ok(());
        }
        Err(Denied::Forbidden {
            user: user.username.clone().unwrap_or_default(),
        })
    }

    async fn review(&self, user: &UserInfo, key: (String, AccessRequest)) -> Result<bool, Denied> {
        let _turn = self.reviews.turn().await.ok_or(Denied::Unknown)?;
        if let Some(may) = self.rights.get(&key) {
            return Ok(may);
        }
        let may = self.reviews.may(user.clone(), attributes(&key.1)).await;
        let may = may.map_err(|error| {
            tracing::warn!(%error, "cannot review a user's rights");
            Denied::Unknown
        })?;
        self.rights.keep(key, may);
        Ok(may)
    }
}

/// The user with the group of authenticated users. The API server omits it in requests of its own.
fn authenticated(mut user: UserInfo) -> UserInfo {
    let groups = user.groups.get_or_insert_default();
    if !groups
        .iter()
        .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
    {
        groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// All attributes on which a right may depend.
fn identity(user: &UserInfo) -> String {
    serde_json::to_string(user).unwrap_or_default()
}

fn attributes(ask: &AccessRequest) -> Attributes {
    let verb = Some(ask.verb.to_owned());
    let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match &ask.target {
        AccessTarget::Path(path) => Attributes::Path(NonResourceAttributes {
            path: Some(path.clone()),
            verb,
        }),
        AccessTarget::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } => Attributes::Resource(Box::new(ResourceAttributes {
            group: set(group),
            version: set(version),
            resource: set(resource),
            subresource: set(subresource),
            namespace: set(namespace),
            name: set(name),
            verb,
            ..ResourceAttributes::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;

    use super::*;

    /// An API server that knows one token, and allows its user to list.
    fn delegated(asked: &Arc<AtomicUsize>) -> Delegated {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                let is_token = request.uri().path().ends_with("tokenreviews");
                let body = request.into_body().collect_bytes().await?;
                let body = String::from_utf8_lossy(&body).into_owned();
                let status = if is_token && body.contains("\"good\"") {
                    r#"{"authenticated":true,"user":{"username":"jane"}}"#
                } else if is_token {
                    r#"{"authenticated":false}"#
                } else if body.contains("\"list\"") && body.contains("\"jane\"") {
                    r#"{"allowed":true}"#
                } else {
                    r#"{"allowed":false}"#
                };
                let answer = format!(r#"{{"metadata":{{}},"spec":{{"token":""}},"status":{status}}}"#);
                Ok::<_, kube::Error>(http::Response::new(Body::from(answer.into_bytes())))
            }
        });
        Delegated::new(Client::new(service, "default"), BTreeMap::new())
    }

    fn token(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(http::header::AUTHORIZATION, value)])
    }

    fn ask(verb: &'static str) -> AccessRequest {
        AccessRequest {
            verb,
            target: AccessTarget::Path("/apis".to_owned()),
        }
    }

    #[tokio::test]
    async fn a_user_is_whom_the_api_server_knows_by_the_token_and_is_asked_about_once() {
        let asked = Arc::new(AtomicUsize::new(0));
        let delegated = delegated(&asked);
        for _ in 0..3 {
            let user = delegated.user(&token("good"), None).await.unwrap();
            assert_eq!(user.username.as_deref(), Some("jane"));
            assert_eq!(user.groups.as_deref(), Some(&[AUTHENTICATED.to_owned()][..]));
            assert_eq!(delegated.admit(&user, &ask("list")).await, Ok(()));
            let refused = delegated.admit(&user, &ask("delete")).await;
            assert_eq!(
                refused,
                Err(Denied::Forbidden {
                    user: "jane".to_owned()
                })
            );
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        let unknown = delegated.user(&token("made up"), None).await;
        assert_eq!(unknown.unwrap_err(), Denied::Unauthenticated);
    }

    #[tokio::test]
    async fn headers_of_the_front_proxy_mean_nothing_without_its_certificate() {
        let delegated = delegated(&Arc::default());
        delegated.take(BTreeMap::from([(
            "requestheader-username-headers".to_owned(),
            r#"["X-Remote-User"]"#.to_owned(),
        )]));
        let headers = HeaderMap::from_iter([
            (
                http::HeaderName::from_static("x-remote-user"),
                "admin".parse().unwrap(),
            ),
            (
                http::HeaderName::from_static("x-remote-group"),
                MASTERS.parse().unwrap(),
            ),
        ]);
        let user = delegated.user(&headers, None).await.unwrap();
        assert_eq!(user.username.as_deref(), Some("system:anonymous"));
        assert!(delegated.admit(&user, &ask("list")).await.is_err());
    }

    #[tokio::test]
    async fn members_of_the_masters_may_do_everything() {
        let asked = Arc::new(AtomicUsize::new(0));
        let user = Arc::new(UserInfo {
            groups: Some(vec![MASTERS.to_owned()]),
            ..UserInfo::default()
        });
        assert_eq!(delegated(&asked).admit(&user, &ask("delete")).await, Ok(()));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }
}
