//! One conversation with one registry: requests with authentication, retries and bounded answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode, Url};

use super::auth::{Action, Challenge, Scope, Tokens, called, parse_challenges};
use super::body::{ReadError, read_bounded};
use super::clients::{Clients, Pair, speaks_no_tls};
use super::error::{Missing, RegistryError, Unreachable, words};
use super::redirect::{InitialRequest, RedirectPolicy, send};
use crate::access::credentials::Credential;
use crate::access::registries::{Endpoint, Security};
use crate::reference::Reference;

/// The most bytes of an error answer that are read.
const ERROR_BYTES: usize = 64 << 10;
/// Delays before the second, third and fourth attempt.
const BACKOFF: [Duration; 3] = if cfg!(test) {
    [Duration::from_millis(1); 3]
} else {
    [
        Duration::from_millis(300),
        Duration::from_secs(1),
        Duration::from_secs(3),
    ]
};
/// The longest that a registry's `Retry-After` is obeyed within one call; beyond it the call fails and its caller's own
/// backoff takes over.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(15);

/// State that all sessions share.
pub(crate) struct Shared {
    pub(crate) clients: Arc<Clients>,
    pub(crate) tokens: Tokens,
}

/// Retries at a place that fails temporarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// Not at all: another place can be asked.
    Once,
    /// A few attempts.
    Some,
}

/// A conversation about one repository at one place, with one credential.
pub(crate) struct Session<'shared> {
    shared: &'shared Shared,
    clients: Pair,
    base: Url,
    pub(crate) reference: Reference,
    credential: Option<Credential>,
    action: Action,
    patience: RetryPolicy,
}

impl<'shared> Session<'shared> {
    /// Opens a conversation. Nothing is sent, except to a registry called insecure: whether it speaks TLS is probed.
    pub(crate) async fn open(
        shared: &'shared Shared,
        endpoint: Endpoint,
        credential: Option<Credential>,
        action: Action,
        patience: RetryPolicy,
    ) -> Result<Self, RegistryError> {
        let clients = shared.clients.pair(endpoint.security).await;
        let clients = clients.ok_or(RegistryError::GivenUp)??;
        let registry = endpoint.reference.registry();
        let host = if registry == "docker.io" {
            "registry-1.docker.io"
        } else {
            registry
        };
        let url = |scheme: &str| {
            Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| RegistryError::Protocol {
                registry: registry.to_owned(),
                message: error.to_string(),
            })
        };
        let base = match endpoint.security {
            Security::Verified => url("https")?,
            Security::PlainHttp => url("http")?,
            Security::Insecure => match clients.own.get(url("https")?).send().await {
                Err(error) if speaks_no_tls(&error) => url("http")?,
                // Another fault may have passed when the request itself is sent; if not, that reports it.
                Ok(_) | Err(_) => url("https")?,
            },
        };
        Ok(Self {
            shared,
            clients,
            base,
            reference: endpoint.reference,
            credential,
            action,
            patience,
        })
    }

    /// The registry's name for messages.
    pub(crate) fn registry(&self) -> &str {
        self.reference.registry()
    }

    /// The URL of something in the repository, for example `manifests/latest`.
    pub(crate) fn url(&self, rest: &str) -> Result<Url, RegistryError> {
        self.base
            .join(&format!("{}/{rest}", self.reference.repository()))
            .map_err(|error| self.protocol(&error))
    }

    pub(crate) fn protocol(&self, message: &dyn std::fmt::Display) -> RegistryError {
        RegistryError::Protocol {
            registry: self.registry().to_owned(),
            message: message.to_string(),
        }
    }

    /// The registry's answer broke off.
    pub(crate) fn unreachable(&self, source: reqwest::Error) -> RegistryError {
        self.unanswered(Unreachable::new(&self.base, &self.clients.proxies, source))
    }

    fn unanswered(&self, source: Unreachable) -> RegistryError {
        RegistryError::Unreachable {
            registry: self.registry().to_owned(),
            source,
        }
    }

    /// Whether a URL is of the registry itself, so that it may see the credential.
    fn is_own(&self, url: &Url) -> bool {
        url.scheme() == self.base.scheme()
            && url.host_str() == self.base.host_str()
            && url.port_or_known_default() == self.base.port_or_known_default()
    }

    /// Sends a request, authenticates when asked to, and tries again while the fault is transient.
    /// Every answer but a success is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
        what: &str,
    ) -> Result<Response, RegistryError> {
        let mut delays = self.delays();
        loop {
            let attempt = self
                .attempt(method.clone(), url, &headers, body.clone(), what)
                .await;
            let (error, wait) = match attempt {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            match delays.next() {
                Some(delay) if error.is_transient() && wait.is_none_or(|wait| wait <= RETRY_AFTER_LIMIT) => {
                    tracing::debug!(registry = self.registry(), %error, "asking again");
                    tokio::time::sleep(wait.unwrap_or_else(|| jitter(*delay))).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// The delays between attempts, the longest last.
    pub(crate) fn delays(&self) -> std::slice::Iter<'static, Duration> {
        match self.patience {
            RetryPolicy::Once => [].iter(),
            RetryPolicy::Some => BACKOFF.iter(),
        }
    }

    /// Whether this is the last place that is asked.
    pub(crate) fn is_patient(&self) -> bool {
        self.patience == RetryPolicy::Some
    }

    /// As [`Self::send`], without trying again.
    pub(crate) async fn send_once(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        what: &str,
    ) -> Result<Response, RegistryError> {
        self.attempt(method, url, headers, None, what)
            .await
            .map_err(|(error, _)| error)
    }

    /// One attempt, or two when the first learns how to authenticate.
    async fn attempt(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<Bytes>,
        what: &str,
    ) -> Result<Response, (RegistryError, Option<Duration>)> {
        let own = self.is_own(url);
        let scope = Scope::new(&self.reference, self.action);
        let mut authorization = if own {
            self.shared.tokens.cached(&scope, self.credential.as_ref())
        } else {
            None
        };
        let mut answered = false;
        loop {
            let outgoing = InitialRequest {
                method: method.clone(),
                url: url.clone(),
                headers: headers.clone(),
                authorization: authorization.clone(),
                body: body.clone(),
                elsewhere: RedirectPolicy::WhenReading,
            };
            let response = send(&self.clients, &self.base, outgoing)
                .await
                .map_err(|source| (self.unanswered(source), None))?;
            if response.status() == StatusCode::UNAUTHORIZED && self.is_own(response.url()) && !answered {
                let challenges = parse_challenges(&response.headers().get_all(WWW_AUTHENTICATE));
                if let Some(value) = self
                    .answer(&scope, &challenges)
                    .await
                    .map_err(|error| (error, None))?
                {
                    authorization = Some(value);
                    answered = true;
                    continue;
                }
            }
            if response.status().is_success() {
                return Ok(response);
            }
            let wait = retry_after(response.headers());
            return Err((self.refusal(response, what, wait).await, wait));
        }
    }

    async fn answer(
        &self,
        scope: &Scope,
        challenges: &[Challenge],
    ) -> Result<Option<HeaderValue>, RegistryError> {
        self.shared.tokens.forget(scope, self.credential.as_ref());
        self.shared
            .tokens
            .answer(
                &self.clients,
                &self.base,
                scope,
                self.credential.as_ref(),
                challenges,
            )
            .await
    }

    async fn refusal(&self, response: Response, what: &str, wait: Option<Duration>) -> RegistryError {
        let status = response.status();
        let registry = self.registry().to_owned();
        // The message of another host is not repeated: the registry may have named any host.
        let body = if self.is_own(response.url()) {
            let body = read_bounded(response, ERROR_BYTES as u64).await;
            body.unwrap_or_default()
        } else {
            Bytes::new()
        };
        let words = words(&body, status);
        let mut message = words.message;
        if let Some(wait) = wait.filter(|wait| *wait > RETRY_AFTER_LIMIT) {
            message = format!("{message}; it asks to wait {}", roughly(wait));
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            && let Some(proxy) = self.clients.proxies.name(&self.base)
        {
            message = format!("the proxy `{proxy}` wants credentials, or others than it gets");
        }
        match status {
            StatusCode::UNAUTHORIZED => RegistryError::Unauthorized {
                registry,
                credentials: called(self.credential.as_ref()),
                message,
            },
            StatusCode::FORBIDDEN => RegistryError::Denied { registry, message },
            StatusCode::NOT_FOUND => {
                let missing = Missing::of(&words.code);
                RegistryError::NotFound {
                    registry,
                    what: match missing {
                        Missing::Repository => format!("repository {}", self.reference.repository()),
                        Missing::Content | Missing::Unspecified => what.to_owned(),
                    },
                    message,
                    missing,
                }
            }
            _ => RegistryError::Status {
                registry,
                status: status.as_u16(),
                message,
            },
        }
    }

    /// Reads a whole answer of at most `limit` bytes.
    pub(crate) async fn read(
        &self,
        response: Response,
        limit: u64,
        what: &str,
    ) -> Result<Bytes, RegistryError> {
        read_bounded(response, limit).await.map_err(|error| match error {
            ReadError::TooLarge => RegistryError::TooLarge {
                what: what.to_owned(),
                limit,
            },
            ReadError::Broken(source) => self.unreachable(source),
        })
    }

    /// Headers that ask for the given media types.
    pub(crate) fn accept(types: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(&types.join(", ")) {
            headers.insert(ACCEPT, value);
        }
        headers
    }
}

/// Time that the registry asks to wait: in seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

/// A time in words that stay the same while it passes: conditions contain them, and every change of those is written.
const fn roughly(wait: Duration) -> &'static str {
    match wait.as_secs() {
        0..=60 => "a minute at most",
        61..=600 => "10 minutes at most",
        601..=3600 => "an hour at most",
        _ => "more than an hour",
    }
}

/// Between one half of the delay and the whole of it.
pub(crate) fn jitter(delay: Duration) -> Duration {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::hash::RandomState::new().build_hasher().finish();
    let share = u32::try_from(random % 512).unwrap_or_default();
    delay / 2 + delay / 2 * share / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_wait_is_a_number_of_seconds_or_a_date() {
        let check = |text: &str, expected: Option<std::ops::RangeInclusive<u64>>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            let found = retry_after(&headers).map(|wait| wait.as_secs());
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert!(expected.contains(&found), "{text}: {found}");
            }
        };
        check("7", Some(7..=7));
        check(" 0 ", Some(0..=0));
        check("Wed, 21 Oct 2015 07:28:00 GMT", Some(0..=0));
        let later = SystemTime::now() + Duration::from_secs(90);
        check(&httpdate::fmt_http_date(later), Some(80..=90));
        check("soon", None);
        check("-1", None);
    }
}
