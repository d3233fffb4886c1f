//! A real registry that requires tokens, and the service that issues them: for a password, and in exchange for an
//! identity token (RFC 6749 as registries use it).

use std::io::Cursor;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{PASSWORD, USERNAME, tls};
use crate::cluster::Binaries;
use crate::cluster::instance::Instance;
use crate::cluster::pki::{Authority, Subject};
use crate::cluster::process::Daemon;

/// The issuer of the tokens and their audience, as registry and service agree.
const ISSUER: &str = "olm-test";
const SERVICE: &str = "tests";
/// The name of the key that signs them.
const KEY: &str = "tests";
/// The identity token that is exchanged for tokens.
const IDENTITY_TOKEN: &str = "an identity+token/with=odd&characters";

/// A registry with TLS and tokens, without a cluster. Dropping it ends it.
#[derive(Debug)]
pub struct TokenServer {
    /// The address of the registry, as `HOST:PORT`, with TLS.
    pub address: String,
    /// The authority that signed the certificates of registry and service, in PEM.
    pub ca: PathBuf,
    /// The address of the service, as `https://HOST:PORT`.
    pub service: String,
    /// The user name for which the service gives tokens.
    pub username: &'static str,
    /// The password.
    pub password: &'static str,
    /// The identity token that it exchanges.
    pub identity_token: &'static str,
    state: Arc<State>,
    _stop: DropGuard,
    _instance: Instance,
}

/// The credential of a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCredential {
    /// A user name and a password.
    Password,
    /// An identity token.
    Identity,
    /// No credential.
    Nothing,
}

/// The properties of tokens that are issued from now on.
#[derive(Debug, Clone, Copy)]
pub struct TokenProperties {
    /// The lifetime that the service reports.
    pub claimed: Duration,
    /// Whether they are expired, so that the registry refuses them.
    pub expired: bool,
}

#[derive(Debug)]
struct State {
    key: EcdsaKeyPair,
    kind: Mutex<TokenProperties>,
    asked: Mutex<Vec<TokenCredential>>,
}

impl TokenServer {
    /// Starts the registry and the service on free ports of the loopback address.
    ///
    /// # Errors
    /// When the registry cannot be built or does not start.
    pub async fn start() -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(Binaries::ensure_token_registry).await??;
        let mut instance = Instance::create(None)?;
        let folder = instance.folder().to_owned();
        let authority = Authority::create(&folder.join("pki"))?;
        let subject = Subject {
            name: "registry",
            group: None,
        };
        let pair = authority.issue("registry", &subject, &["127.0.0.1"])?;
        let state = Arc::new(State {
            key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
            kind: Mutex::new(TokenProperties {
                claimed: Duration::from_mins(5),
                expired: false,
            }),
            asked: Mutex::default(),
        });
        let keys = folder.join("conf/keys.json");
        std::fs::write(&keys, state.public().to_string())?;

        let (certificate, key) = (std::fs::read(&pair.certificate)?, std::fs::read(&pair.key)?);
        let certificate = Arc::new(ReloadingCertificate::new(&certificate, &key, "tokens")?);
        let transport = Transport::Tls(Arc::new(server_config(&Profile::default(), certificate)?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let service = format!("https://{}", listener.local_addr()?);
        let realm = format!("{service}/token");
        let stop = CancellationToken::new();
        let giving = Arc::clone(&state);
        tokio::spawn(listener::serve(
            listener,
            transport,
            Limits::default(),
            stop.clone(),
            move |request, _| {
                let state = Arc::clone(&giving);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
                    state.answer(&Request::from_parts(head, body.unwrap_or_default().to_vec()))
                }
            },
        ));

        let port = instance.port()?;
        let address = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        let text = include_str!("../../cluster/conf/registry.yaml")
            .replace("${STATE}", &folder.to_string_lossy())
            .replace("${ADDRESS}", &address);
        let tokens = format!(
            "auth:\n  token: {{realm: \"{realm}\", service: {SERVICE}, issuer: {ISSUER}, jwks: \"{}\"}}\n",
            keys.display()
        );
        let file = folder.join("conf/registry.yaml");
        std::fs::write(&file, text + &tls(&pair.certificate, &pair.key) + &tokens)?;
        instance.start(
            Daemon::new("registry", binaries.path("registry"))
                .argument("serve")
                .argument(file)
                .variable("OTEL_TRACES_EXPORTER", "none"),
        )?;
        let probe = async || tokio::net::TcpStream::connect(&address).await.map(drop);
        instance.wait_for("registry", 30, probe).await?;
        Ok(Self {
            address,
            service,
            ca: authority.certificate(),
            username: USERNAME,
            password: PASSWORD,
            identity_token: IDENTITY_TOKEN,
            state,
            _stop: stop.drop_guard(),
            _instance: instance,
        })
    }

    /// Sets the properties of tokens that are issued from now on.
    pub fn give(&self, kind: TokenProperties) {
        *self.state.kind.lock().unwrap_or_else(PoisonError::into_inner) = kind;
    }

    /// The credentials of token requests since the last call.
    pub fn asked(&self) -> Vec<TokenCredential> {
        std::mem::take(&mut *self.state.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// The public half of the key, as the registry reads it (RFC 7517).
    fn public(&self) -> Value {
        // An uncompressed point: one byte that says so, and two coordinates of equal length.
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY, "x": x, "y": y }] })
    }

    fn answer(&self, request: &Request<Vec<u8>>) -> Response<Full<Cursor<Vec<u8>>>> {
        let (status, body) = match self.decide(request) {
            Ok(body) => (StatusCode::OK, body),
            Err((status, error, why)) => (status, json!({ "error": error, "error_description": why })),
        };
        let mut response = Response::new(Full::new(Cursor::new(body.to_string().into_bytes())));
        *response.status_mut() = status;
        response
    }

    fn decide(&self, request: &Request<Vec<u8>>) -> Result<Value, (StatusCode, &'static str, &'static str)> {
        let refused = |error, why| Err((StatusCode::BAD_REQUEST, error, why));
        let is_form = request.method() == http::Method::POST;
        let query = if is_form {
            String::from_utf8_lossy(request.body()).into_owned()
        } else {
            request.uri().query().unwrap_or_default().to_owned()
        };
        let url = Url::parse(&format!("form:?{query}"));
        let asked: Vec<(String, String)> = match &url {
            Ok(url) => url.query_pairs().into_owned().collect(),
            Err(_) => return refused("invalid_request", "no form"),
        };
        let value = |name: &str| {
            asked
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let authorization = request.headers().get(header::AUTHORIZATION);
        let how = match (is_form, authorization) {
            (true, _) => TokenCredential::Identity,
            (false, Some(_)) => TokenCredential::Password,
            (false, None) => TokenCredential::Nothing,
        };
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(how);
        let basic = format!("Basic {}", STANDARD.encode(format!("{USERNAME}:{PASSWORD}")));
        match how {
            TokenCredential::Identity if value("grant_type") != Some("refresh_token") => {
                return refused("unsupported_grant_type", "only refresh_token");
            }
            TokenCredential::Identity if value("refresh_token") != Some(IDENTITY_TOKEN) => {
                return refused("invalid_grant", "the refresh token is not known");
            }
            TokenCredential::Password
                if authorization.is_none_or(|sent| sent.as_bytes() != basic.as_bytes()) =>
            {
                return Err((StatusCode::UNAUTHORIZED, "access_denied", "wrong password"));
            }
            TokenCredential::Nothing => {
                return Err((StatusCode::UNAUTHORIZED, "access_denied", "access is denied"));
            }
            TokenCredential::Identity | TokenCredential::Password => {}
        }
        let audience = value("service").unwrap_or_default();
        let Some(["repository", name, actions]) = value("scope")
            .map(|scope| scope.splitn(3, ':').collect::<Vec<_>>())
            .as_deref()
            .and_then(|parts| <[&str; 3]>::try_from(parts).ok())
        else {
            return refused("invalid_scope", "no scope");
        };
        let actions: Vec<&str> = actions.split(',').collect();
        let access = json!([{ "type": "repository", "name": name, "actions": actions }]);
        self.token(audience, &access)
            .map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "server_error", "no token"))
    }

    /// A token as the registry reads it (RFC 7519), with the lifetime that the service claims.
    fn token(&self, audience: &str, access: &Value) -> Result<Value> {
        let kind = *self.kind.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        // The registry is lenient for a minute.
        let expires = if kind.expired { now - 300 } else { now + 3600 };
        let claims = json!({
            "iss": ISSUER, "sub": USERNAME, "aud": [audience], "exp": expires, "nbf": now - 600, "iat": now, "jti": "t",
            "access": access,
        });
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": KEY });
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self
            .key
            .sign(&SystemRandom::new(), signed.as_bytes())
            .context("cannot sign")?;
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        Ok(json!({ "access_token": token, "expires_in": kind.claimed.as_secs() }))
    }
}
