//! Registry authentication: challenges, and the tokens that answer them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use reqwest::header::{GetAll, HeaderValue};
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;

use crate::credentials::Credential;
use crate::reference::Reference;
use crate::registry::error::{Unanswered, words};
use crate::registry::{ReadError, RegistryError, read_bounded};
use crate::trust::Pair;

/// The most bytes of a token answer.
const TOKEN_BYTES: u64 = 256 << 10;
/// How long a token lasts when its service does not say.
const TOKEN_LIFE: Duration = Duration::from_mins(1);
/// No token is kept for longer, whatever its service says.
const TOKEN_LIFE_LIMIT: Duration = Duration::from_hours(1);
/// A token is no longer used when it has less than this left.
const TOKEN_MARGIN: Duration = Duration::from_secs(15);
/// The most tokens that are remembered.
const TOKENS: usize = 4096;

/// What is going to be done with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Pull,
    Push,
}

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    registry: String,
    repository: String,
    action: Action,
}

impl Scope {
    pub(crate) fn new(reference: &Reference, action: Action) -> Self {
        Self {
            registry: reference.registry().to_owned(),
            repository: reference.repository().to_owned(),
            action,
        }
    }

    fn parameter(&self) -> String {
        let actions = match self.action {
            Action::Pull => "pull",
            Action::Push => "pull,push",
        };
        format!("repository:{}:{actions}", self.repository)
    }
}

/// One way to authenticate that a registry offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

/// Authorization headers by scope and credential. Two credentials never share one.
#[derive(Default)]
pub(crate) struct Tokens {
    cache: Mutex<HashMap<(Scope, Option<Credential>), Cached>>,
}

#[derive(Clone)]
struct Cached {
    value: HeaderValue,
    until: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Tokens {
    pub(crate) fn cached(&self, scope: &Scope, credential: Option<&Credential>) -> Option<HeaderValue> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache
            .get(&(scope.clone(), credential.cloned()))
            .filter(|cached| cached.until > Instant::now())
            .map(|cached| cached.value.clone())
    }

    pub(crate) fn forget(&self, scope: &Scope, credential: Option<&Credential>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.remove(&(scope.clone(), credential.cloned()));
    }

    fn remember(&self, scope: &Scope, credential: Option<&Credential>, value: &HeaderValue, life: Duration) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if cache.len() >= TOKENS {
            cache.retain(|_, cached| cached.until > now);
        }
        if cache.len() < TOKENS {
            let cached = Cached {
                value: value.clone(),
                until: now + life,
            };
            cache.insert((scope.clone(), credential.cloned()), cached);
        }
    }

    /// Answers a registry's challenge; nothing when there is nothing to answer with.
    pub(crate) async fn answer(
        &self,
        clients: &Pair,
        base: &Url,
        registry: &str,
        scope: &Scope,
        credential: Option<&Credential>,
        challenges: &[Challenge],
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service)),
            Challenge::Basic => None,
        });
        let answer = match (bearer, credential) {
            (_, Some(Credential::RegistryToken(token))) => {
                Some((bearer_header(registry, token)?, TOKEN_LIFE_LIMIT))
            }
            (Some((realm, service)), credential) => {
                let realm = trusted_realm(base, registry, realm)?;
                // The password goes to no host that is not the registry and cannot say who it is.
                let client = if realm.host_str() == base.host_str() {
                    &clients.own
                } else {
                    &clients.others
                };
                let unreachable = |source| RegistryError::Unreachable {
                    registry: registry.to_owned(),
                    source: Unanswered::new(base, source),
                };
                let request =
                    token_request(client, &realm, service.as_deref(), &scope.parameter(), credential);
                let response = request.send().await.map_err(unreachable)?;
                let answer = read_token(response, registry, credential, unreachable).await?;
                Some(answer)
            }
            (None, Some(Credential::Password { username, password }))
                if challenges.contains(&Challenge::Basic) =>
            {
                Some((basic_header(username, password), TOKEN_LIFE_LIMIT))
            }
            (None, _) => None,
        };
        if let Some((value, life)) = &answer {
            self.remember(scope, credential, value, *life);
        }
        Ok(answer.map(|(value, _)| value))
    }
}

/// The token service of a registry with TLS must have TLS too: it is going to see the password.
fn trusted_realm(base: &Url, registry: &str, realm: &str) -> Result<Url, RegistryError> {
    let protocol = |message: String| RegistryError::Protocol {
        registry: registry.to_owned(),
        message,
    };
    let url = Url::parse(realm).map_err(|error| protocol(format!("token service: {error}")))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if base.scheme() == "http" => Ok(url),
        _ => Err(protocol("the token service is not reached over HTTPS".to_owned())),
    }
}

async fn read_token(
    response: reqwest::Response,
    registry: &str,
    credential: Option<&Credential>,
    unreachable: impl FnOnce(reqwest::Error) -> RegistryError,
) -> Result<(HeaderValue, Duration), RegistryError> {
    let status = response.status();
    let body = match read_bounded(response, TOKEN_BYTES, "token").await {
        Ok(body) => body,
        Err(ReadError::TooLarge) => {
            return Err(RegistryError::TooLarge {
                what: "token answer".to_owned(),
                limit: TOKEN_BYTES,
            });
        }
        Err(ReadError::Broken(source)) => return Err(unreachable(source)),
    };
    if !status.is_success() {
        let message = words(&body, status).message;
        let registry = registry.to_owned();
        return Err(match status.as_u16() {
            // A service that fails is no reason to say that the credentials are wrong.
            429 | 500.. => RegistryError::Status {
                registry,
                status: status.as_u16(),
                message,
            },
            _ => RegistryError::Unauthorized {
                registry,
                credentials: called(credential),
                message,
            },
        });
    }
    let wrong = || RegistryError::Protocol {
        registry: registry.to_owned(),
        message: "the token service's answer holds no token".to_owned(),
    };
    let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|_| wrong())?;
    let token = answer
        .token
        .filter(|token| !token.is_empty())
        .or(answer.access_token)
        .ok_or_else(wrong)?;
    let life = answer
        .expires_in
        .map_or(TOKEN_LIFE, Duration::from_secs)
        .min(TOKEN_LIFE_LIMIT);
    Ok((
        bearer_header(registry, &token)?,
        life.saturating_sub(TOKEN_MARGIN),
    ))
}

/// What a credential is called where it is refused.
pub(crate) const fn called(credential: Option<&Credential>) -> &'static str {
    match credential {
        Some(Credential::IdentityToken(_)) => "the given identity token",
        Some(Credential::Password { .. } | Credential::RegistryToken(_)) => "the given credentials",
        None => "anonymous access",
    }
}

/// A refresh token is exchanged by a form, anything else by a query.
fn token_request(
    client: &reqwest::Client,
    realm: &Url,
    service: Option<&str>,
    scope: &str,
    credential: Option<&Credential>,
) -> RequestBuilder {
    let mut url = realm.clone();
    if let Some(Credential::IdentityToken(token)) = credential {
        let mut form = Url::parse("form:").unwrap_or_else(|_| realm.clone());
        form.query_pairs_mut()
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "olm")
            .append_pair("service", service.unwrap_or_default())
            .append_pair("scope", scope)
            .append_pair("refresh_token", token);
        return client
            .post(url)
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned());
    }
    if let Some(service) = service {
        url.query_pairs_mut().append_pair("service", service);
    }
    url.query_pairs_mut().append_pair("scope", scope);
    let request = client.get(url);
    match credential {
        Some(Credential::Password { username, password }) => {
            request.header(reqwest::header::AUTHORIZATION, basic_header(username, password))
        }
        _ => request,
    }
}

fn basic_header(username: &str, password: &str) -> HeaderValue {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    sensitive(
        HeaderValue::from_str(&format!("Basic {text}")).unwrap_or_else(|_| HeaderValue::from_static("")),
    )
}

fn bearer_header(registry: &str, token: &str) -> Result<HeaderValue, RegistryError> {
    HeaderValue::from_str(&format!("Bearer {token}"))
        .map(sensitive)
        .map_err(|_| RegistryError::Protocol {
            registry: registry.to_owned(),
            message: "the token cannot stand in a header".to_owned(),
        })
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Reads `WWW-Authenticate` headers. Schemes that are not known here are left out.
pub(crate) fn parse_challenges(headers: &GetAll<'_, HeaderValue>) -> Vec<Challenge> {
    headers
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter_map(parse_challenge)
        .collect()
}

fn parse_challenge(text: &str) -> Option<Challenge> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    let mut rest = rest.trim_start();
    while let Some((name, tail)) = rest.split_once('=') {
        let (value, tail) = read_value(tail.trim_start());
        match name.trim().to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            _ => {}
        }
        rest = tail.trim_start().trim_start_matches(',').trim_start();
    }
    realm.map(|realm| Challenge::Bearer { realm, service })
}

/// A quoted string or a bare word, and what follows it.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, tail) = text.split_at_checked(end).unwrap_or((text, ""));
        return (value.to_owned(), tail);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(position + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_in_every_form() {
        let check =
            |text: &str, expected: Option<Challenge>| assert_eq!(parse_challenge(text), expected, "{text}");
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
            })
        };
        check(
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a:pull,push""#,
            bearer("https://auth.example/token", Some("registry.example")),
        );
        check(
            r#"bearer  service=plain , realm="https://a/\"b""#,
            bearer("https://a/\"b", Some("plain")),
        );
        check(r#"Basic realm="x""#, Some(Challenge::Basic));
        check("Basic", Some(Challenge::Basic));
        check("Negotiate", None);
        check("Bearer", None);
        check(r#"Bearer service="x""#, None);
        check(r#"Bearer realm="unterminated"#, bearer("unterminated", None));
    }

    #[test]
    fn a_password_is_never_sent_to_a_token_service_without_tls() {
        let check = |base: &str, realm: &str, expected: bool| {
            let result = trusted_realm(&Url::parse(base).unwrap(), "r.example", realm);
            assert_eq!(result.is_ok(), expected, "{base} {realm}");
        };
        check("https://r.example/v2/", "https://auth.example/token", true);
        check("https://r.example/v2/", "http://auth.example/token", false);
        check("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/token", true);
        check("https://r.example/v2/", "file:///etc/passwd", false);
        check("https://r.example/v2/", "not a url", false);
    }

    #[test]
    fn an_identity_token_is_exchanged_by_a_form() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::new();
        let realm = Url::parse("https://auth.example/token?x=1").unwrap();
        let token = Credential::IdentityToken("a+b&c".into());
        let request = token_request(&client, &realm, Some("r"), "repository:a:pull", Some(&token))
            .build()
            .unwrap();
        assert_eq!(request.method(), "POST");
        assert_eq!(
            std::str::from_utf8(request.body().unwrap().as_bytes().unwrap()).unwrap(),
            "grant_type=refresh_token&client_id=olm&service=r&scope=repository%3Aa%3Apull&refresh_token=a%2Bb%26c"
        );
        let plain = token_request(&client, &realm, Some("r"), "repository:a:pull", None)
            .build()
            .unwrap();
        assert_eq!(
            plain.url().as_str(),
            "https://auth.example/token?x=1&service=r&scope=repository%3Aa%3Apull"
        );
    }
}
