//! Registry authentication: challenges, and the tokens that answer them.

use std::collections::HashMap;

use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, GetAll, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;

use super::body::{ReadError, read_bounded};
use super::clients::Pair;
use super::error::{RegistryError, Unreachable, words};
use super::redirect::{InitialRequest, RedirectPolicy, send};
use crate::access::credentials::Credential;
use crate::reference::Reference;

/// The most bytes of a token answer.
const TOKEN_BYTES: u64 = 256 << 10;
/// Lifetime of a token whose service does not state one.
const TOKEN_LIFE: Duration = Duration::from_mins(1);
/// No token is kept for longer, whatever its service says.
const TOKEN_LIFE_LIMIT: Duration = Duration::from_hours(1);
/// A token is no longer used when it has less than this left.
const TOKEN_MARGIN: Duration = Duration::from_secs(15);
/// The most tokens that are remembered.
const TOKENS: usize = 4096;

/// Action on a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Pull,
    Push,
}

/// Scope of a token.
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
    /// Hosts of token services that registries of other sites may name.
    allowed: Vec<String>,
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
    pub(crate) fn new(allowed: Vec<String>) -> Self {
        Self {
            allowed,
            cache: Mutex::default(),
        }
    }

    pub(crate) fn cached(&self, scope: &Scope, credential: Option<&Credential>) -> Option<HeaderValue> {
        let cache = self.cache.lock();
        cache
            .get(&(scope.clone(), credential.cloned()))
            .filter(|cached| cached.until > Instant::now())
            .map(|cached| cached.value.clone())
    }

    pub(crate) fn forget(&self, scope: &Scope, credential: Option<&Credential>) {
        let mut cache = self.cache.lock();
        cache.remove(&(scope.clone(), credential.cloned()));
    }

    /// The address of the token service. It must belong to the registry's own site, or be allowed: it is going to see
    /// the password, and a registry could have us ask any host otherwise. The service of a registry with TLS must have
    /// TLS too.
    fn trusted_realm(&self, base: &Url, registry: &str, realm: &str) -> Result<Url, RegistryError> {
        let protocol = |message: String| RegistryError::Protocol {
            registry: registry.to_owned(),
            message,
        };
        let url = Url::parse(realm).map_err(|error| protocol(format!("token service: {error}")))?;
        match (url.scheme(), base.scheme()) {
            ("https", _) | ("http", "http") => {}
            _ => return Err(protocol("the token service is not reached over HTTPS".to_owned())),
        }
        let (own, host) = (
            base.host_str().unwrap_or_default(),
            url.host_str().unwrap_or_default(),
        );
        if is_same_site(own, host)
            || self
                .allowed
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(host))
        {
            return Ok(url);
        }
        Err(RegistryError::TokenService {
            registry: registry.to_owned(),
            host: host.to_owned(),
        })
    }

    fn remember(&self, scope: &Scope, credential: Option<&Credential>, value: &HeaderValue, life: Duration) {
        let mut cache = self.cache.lock();
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
        scope: &Scope,
        credential: Option<&Credential>,
        challenges: &[Challenge],
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let registry = scope.registry.as_str();
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service)),
            Challenge::Basic => None,
        });
        let answer = match (bearer, credential) {
            (_, Some(Credential::RegistryToken(token))) => {
                Some((bearer_header(registry, token)?, TOKEN_LIFE_LIMIT))
            }
            (Some((realm, service)), credential) => {
                let realm = self.trusted_realm(base, registry, realm)?;
                let request = token_request(realm, service.as_deref(), &scope.parameter(), credential);
                let unreachable = |source| RegistryError::Unreachable {
                    registry: registry.to_owned(),
                    source,
                };
                let response = send(clients, base, request).await.map_err(unreachable)?;
                let broken = |error| unreachable(Unreachable::new(base, &clients.proxies, error));
                let answer = read_token(response, registry, credential, broken).await?;
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

/// The second label of domains under a country's, below which everybody may have a name: `co.uk`.
const SHARED: [&str; 16] = [
    "ac", "co", "com", "edu", "go", "gob", "gov", "gouv", "govt", "ltd", "mil", "ne", "net", "nom", "or",
    "org",
];

/// Whether two hosts belong together: they are the same, or one is the other's parent domain, or both have the same
/// parent. A parent has at least two labels, and is not one of those below which everybody may have a name.
fn is_same_site(registry: &str, other: &str) -> bool {
    let (registry, other) = (registry.trim_end_matches('.'), other.trim_end_matches('.'));
    let is_address = |host: &str| host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    if registry == other {
        return true;
    }
    if is_address(registry) || is_address(other) {
        return false;
    }
    let below = |domain: &str| other.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let parent = registry
        .split_once('.')
        .map(|(_, parent)| parent)
        .filter(|parent| is_site(parent));
    below(registry) && registry.contains('.') || parent.is_some_and(|parent| other == parent || below(parent))
}

/// Whether a domain has one owner, judged by its form.
fn is_site(domain: &str) -> bool {
    match domain.split('.').collect::<Vec<_>>().as_slice() {
        [] | [_] => false,
        [second, top] => top.len() != 2 || !SHARED.contains(second),
        _ => true,
    }
}

async fn read_token(
    response: reqwest::Response,
    registry: &str,
    credential: Option<&Credential>,
    unreachable: impl FnOnce(reqwest::Error) -> RegistryError,
) -> Result<(HeaderValue, Duration), RegistryError> {
    let status = response.status();
    let body = match read_bounded(response, TOKEN_BYTES).await {
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
        // The service's own message is not repeated: a registry may have named any service.
        let message = refusal_of_service(&body, status);
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

/// Answer of the token service: its status, and its error code when it is a known one.
fn refusal_of_service(body: &[u8], status: StatusCode) -> String {
    const CODES: [&str; 9] = [
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "access_denied",
        "UNAUTHORIZED",
        "DENIED",
    ];
    let code = words(body, status).code;
    let answers = format!("its token service answers {}", status.as_u16());
    match CODES.iter().find(|known| **known == code) {
        Some(code) => format!("{answers} ({code})"),
        None => answers,
    }
}

/// Name of a refused credential, for messages.
pub(crate) const fn called(credential: Option<&Credential>) -> &'static str {
    match credential {
        Some(Credential::IdentityToken(_)) => "the given identity token",
        Some(Credential::Password { .. } | Credential::RegistryToken(_)) => "the given credentials",
        None => "anonymous access",
    }
}

/// A refresh token is exchanged by a form, anything else by a query.
fn token_request(
    mut url: Url,
    service: Option<&str>,
    scope: &str,
    credential: Option<&Credential>,
) -> InitialRequest {
    let mut form = Vec::new();
    if let Some(Credential::IdentityToken(token)) = credential {
        form.extend([
            ("grant_type", "refresh_token"),
            ("client_id", "olm"),
            ("service", service.unwrap_or_default()),
            ("scope", scope),
            ("refresh_token", token),
        ]);
    } else {
        let service = service.map(|service| ("service", service));
        url.query_pairs_mut()
            .extend_pairs(service)
            .append_pair("scope", scope);
    }
    let mut request = InitialRequest {
        method: Method::GET,
        headers: HeaderMap::new(),
        authorization: match credential {
            Some(Credential::Password { username, password }) => Some(basic_header(username, password)),
            _ => None,
        },
        body: None,
        elsewhere: RedirectPolicy::Never,
        url,
    };
    if !form.is_empty() {
        let mut text = request.url.clone();
        text.query_pairs_mut().clear().extend_pairs(form);
        request.method = Method::POST;
        request.body = Some(Bytes::from(text.query().unwrap_or_default().to_owned()));
        request.headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
    }
    request
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
            message: "the token is not allowed in a header".to_owned(),
        })
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Reads `WWW-Authenticate` headers, of which each may hold several challenges. Schemes that are not known here are
/// left out.
pub(crate) fn parse_challenges(headers: &GetAll<'_, HeaderValue>) -> Vec<Challenge> {
    headers
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(parse_header)
        .collect()
}

/// `Scheme name=value, name="value", Scheme …`: a word that no `=` follows begins a challenge (RFC 9110, section
/// 11.6.1).
fn parse_header(text: &str) -> Vec<Challenge> {
    let mut found: Vec<(&str, Option<String>, Option<String>)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            break;
        }
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if let Some(value) = tail.trim_start().strip_prefix('=') {
            let (value, tail) = read_value(value.trim_start());
            if let Some((_, realm, service)) = found.last_mut() {
                match word.to_ascii_lowercase().as_str() {
                    "realm" => *realm = Some(value),
                    "service" => *service = Some(value),
                    _ => {}
                }
            }
            rest = tail;
        } else {
            found.push((word, None, None));
            rest = tail;
        }
    }
    let known = found.into_iter().filter_map(|(scheme, realm, service)| {
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        let realm = realm.filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
        let service = service.filter(|service| !service.is_empty());
        Some(Challenge::Bearer { realm, service })
    });
    known.collect()
}

/// A quoted string or a bare word, and the rest after it.
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
        let check = |text: &str, expected: &[Challenge]| assert_eq!(parse_header(text), expected, "{text}");
        let bearer = |realm: &str, service: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(Into::into),
        };
        check(
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a:pull,push""#,
            &[bearer("https://auth.example/token", Some("registry.example"))],
        );
        check(
            r#"bearer  service=plain , realm="https://a/\"b""#,
            &[bearer("https://a/\"b", Some("plain"))],
        );
        check(r#"Basic realm="x""#, &[Challenge::Basic]);
        check("Basic", &[Challenge::Basic]);
        check("Negotiate", &[]);
        check("Negotiate abc==, Basic realm=x", &[Challenge::Basic]);
        check("Bearer", &[]);
        check(r#"Bearer service="x""#, &[]);
        check(r#"Bearer realm="unterminated"#, &[bearer("unterminated", None)]);
        check(
            r#"Basic realm="a, Bearer realm=b", Bearer realm="https://a",error="invalid_token",service="""#,
            &[Challenge::Basic, bearer("https://a", None)],
        );
    }

    /// A challenge as a registry of the field gives it, and the address that a token for `team/app` is asked of.
    #[test]
    fn challenges_of_registries_of_the_field_lead_to_their_token_services() {
        let cases = [
            // Docker Hub
            (
                "registry-1.docker.io",
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:team/app:pull""#,
                "https://auth.docker.io/token?service=registry.docker.io&",
            ),
            // Quay
            (
                "quay.io",
                r#"Bearer realm="https://quay.io/v2/auth",service="quay.io""#,
                "https://quay.io/v2/auth?service=quay.io&",
            ),
            // Harbor
            (
                "harbor.example.com",
                r#"Bearer realm="https://harbor.example.com/service/token",service="harbor-registry",scope="repository:team/app:pull""#,
                "https://harbor.example.com/service/token?service=harbor-registry&",
            ),
            // ECR Public
            (
                "public.ecr.aws",
                r#"Bearer realm="https://public.ecr.aws/token/",service="public.ecr.aws",scope="aws""#,
                "https://public.ecr.aws/token/?service=public.ecr.aws&",
            ),
            // GHCR
            (
                "ghcr.io",
                r#"Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:user/image:pull""#,
                "https://ghcr.io/token?service=ghcr.io&",
            ),
            // ACR
            (
                "team.azurecr.io",
                r#"Bearer realm="https://team.azurecr.io/oauth2/token",service="team.azurecr.io",scope="repository:team/app:pull",error="invalid_token""#,
                "https://team.azurecr.io/oauth2/token?service=team.azurecr.io&",
            ),
            // GAR
            (
                "europe-docker.pkg.dev",
                r#"Bearer realm="https://europe-docker.pkg.dev/v2/token",service="europe-docker.pkg.dev""#,
                "https://europe-docker.pkg.dev/v2/token?service=europe-docker.pkg.dev&",
            ),
            // Artifactory
            (
                "team.jfrog.io",
                r#"Bearer realm="https://team.jfrog.io/artifactory/api/docker/docker/v2/token",service="team.jfrog.io""#,
                "https://team.jfrog.io/artifactory/api/docker/docker/v2/token?service=team.jfrog.io&",
            ),
            // Artifactory with a host for each repository: the service is on the parent domain, with its port
            (
                "docker-hub.artifactory.example",
                r#"Bearer realm="https://artifactory.example:443/artifactory/api/docker/docker-hub/v2/token",service="artifactory.example:443",scope="repository:team/app:pull""#,
                "https://artifactory.example/artifactory/api/docker/docker-hub/v2/token?service=artifactory.example%3A443&",
            ),
            // Red Hat
            (
                "registry.redhat.io",
                r#"Bearer realm="https://registry.redhat.io/auth/realms/rhcc/protocol/redhat-docker-v2/auth",service="docker-registry",scope="repository:team/app:pull""#,
                "https://registry.redhat.io/auth/realms/rhcc/protocol/redhat-docker-v2/auth?service=docker-registry&",
            ),
            // GitLab
            (
                "registry.gitlab.com",
                r#"Bearer realm="https://gitlab.com/jwt/auth",service="container_registry",scope="repository:team/app:pull""#,
                "https://gitlab.com/jwt/auth?service=container_registry&",
            ),
            // A realm that has a query of its own
            (
                "nvcr.io",
                r#"Bearer realm="https://nvcr.io/proxy_auth?scope=repository:team/app:pull,push""#,
                "https://nvcr.io/proxy_auth?scope=repository:team/app:pull,push&",
            ),
        ];
        for (registry, header, expected) in cases {
            let challenges = parse_header(header);
            let [Challenge::Bearer { realm, service }] = challenges.as_slice() else {
                panic!("{challenges:?}");
            };
            let base = Url::parse(&format!("https://{registry}/v2/")).unwrap();
            let url = Tokens::default().trusted_realm(&base, registry, realm).unwrap();
            let request = token_request(url, service.as_deref(), "repository:team/app:pull", None);
            let expected = format!("{expected}scope=repository%3Ateam%2Fapp%3Apull");
            assert_eq!(request.url.as_str(), expected, "{registry}");
        }
        // ECR and Artifactory without tokens
        for header in [
            r#"Basic realm="https://1.dkr.ecr.eu-west-1.amazonaws.com/",service="ecr.amazonaws.com""#,
            r#"Basic realm="Artifactory Realm""#,
        ] {
            assert_eq!(parse_header(header), [Challenge::Basic]);
        }
    }

    #[test]
    fn a_token_service_belongs_to_the_registrys_site_or_is_allowed() {
        let check = |registry: &str, realm: &str, allowed: &[&str], expected: bool| {
            let tokens = Tokens::new(allowed.iter().map(|&host| host.to_owned()).collect());
            let base = Url::parse(&format!("https://{registry}/v2/")).unwrap();
            let result = tokens.trusted_realm(&base, registry, &format!("https://{realm}/token"));
            assert_eq!(result.is_ok(), expected, "{registry} {realm}");
        };
        check("r.example.com", "r.example.com", &[], true);
        check("r.example.com:5000", "r.example.com:8443", &[], true);
        check("r.example.com", "auth.example.com", &[], true);
        check("r.example.com", "example.com", &[], true);
        check("r.example.com", "a.b.example.com", &[], true);
        check("example.com", "auth.example.com", &[], true);
        check("r.example.com", "other.com", &[], false);
        check("r.example.com", "notexample.com", &[], false);
        check("example.com", "other.com", &[], false);
        check("r.co.uk", "internal.co.uk", &[], false);
        check("a.r.co.uk", "auth.r.co.uk", &[], true);
        check("registry", "kubernetes", &[], false);
        check("registry.team", "kubernetes.team", &[], false);
        check("registry", "a.registry", &[], false);
        check("127.0.0.1:5000", "127.0.0.1:5001", &[], true);
        check("127.0.0.1", "127.0.0.2", &[], false);
        check("1.0.0.127", "2.0.0.127", &[], false);
        check("r.example.com", "169.254.169.254", &[], false);
        check("r.example.com", "[::1]", &[], false);
        check("r.example.com", "other.com", &["Other.com"], true);
        check("r.example.com", "a.other.com", &["other.com"], false);
        let refused = Tokens::default().trusted_realm(
            &Url::parse("https://r.example.com/v2/").unwrap(),
            "r.example.com",
            "https://internal.svc/secret?x=y",
        );
        assert_eq!(
            refused.unwrap_err().to_string(),
            "registry `r.example.com` names a token service of another site, `internal.svc`, which is not allowed"
        );
    }

    #[test]
    fn answers_of_a_token_service_are_not_repeated() {
        let check = |body: &str, expected: &str| {
            assert_eq!(
                refusal_of_service(body.as_bytes(), StatusCode::UNAUTHORIZED),
                expected
            );
        };
        check(
            r#"{"error":"invalid_grant","error_description":"a secret"}"#,
            "its token service answers 401 (invalid_grant)",
        );
        check(
            r#"{"errors":[{"code":"DENIED","message":"a secret"}]}"#,
            "its token service answers 401 (DENIED)",
        );
        for body in [r#"{"details":"a secret"}"#, r#"{"error":"a secret"}"#, "a secret"] {
            check(body, "its token service answers 401");
        }
    }

    #[test]
    fn a_password_is_never_sent_to_a_token_service_without_tls() {
        let check = |base: &str, realm: &str, expected: bool| {
            let result = Tokens::default().trusted_realm(&Url::parse(base).unwrap(), "r.example", realm);
            assert_eq!(result.is_ok(), expected, "{base} {realm}");
        };
        check("https://r.example/v2/", "https://r.example/token", true);
        check("https://r.example/v2/", "http://r.example/token", false);
        check("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/token", true);
        check("https://r.example/v2/", "file:///etc/passwd", false);
        check("https://r.example/v2/", "not a url", false);
    }

    #[test]
    fn an_identity_token_is_exchanged_by_a_form() {
        let realm = || Url::parse("https://auth.example/token?x=1").unwrap();
        let token = Credential::IdentityToken("a+b&c".into());
        let request = token_request(realm(), Some("r"), "repository:a:pull", Some(&token));
        assert_eq!((&request.method, &request.url), (&Method::POST, &realm()));
        assert_eq!(
            request.body.unwrap(),
            "grant_type=refresh_token&client_id=olm&service=r&scope=repository%3Aa%3Apull&refresh_token=a%2Bb%26c"
        );
        let plain = token_request(realm(), Some("r"), "repository:a:pull", None);
        assert_eq!(
            plain.url.as_str(),
            "https://auth.example/token?x=1&service=r&scope=repository%3Aa%3Apull"
        );
    }
}
