//! Clients that act as a service account.
//!
//! All clients share one pool of connections without credentials. Each adds a short-lived token of its account to every
//! request and renews it well before it expires.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{Api, Client, Config, api::PostParams, client::Body, config::AuthInfo};
pub use olm_api::names::is_name;
use olm_platform::{client::counted, metrics::Metrics};
use parking_lot::{Mutex, MutexGuard};

/// The requested lifetime of tokens, in seconds.
const TOKEN_SECONDS: i64 = 3600;
/// The part of a token's life after which it is renewed.
const RENEW_AFTER: f64 = 0.75;
/// The pause after a failed token request.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Names a service account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for AccountName {
    /// `NAMESPACE/NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A text is not of the form `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" does not name a service account: NAMESPACE/NAME is expected")]
pub struct AccountNameError(String);

impl FromStr for AccountName {
    type Err = AccountNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(AccountNameError(text.to_owned())),
        }
    }
}

/// The reason why an account has no token.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IdentityError {
    /// The account does not exist.
    #[error("service account {account} does not exist: create it by `{}`", create_account(.0), account = .0)]
    AccountMissing(AccountName),
    /// The namespace does not exist either.
    #[error(
        "namespace {namespace} of service account {account} does not exist: create both by `kubectl create namespace \
         {namespace}` and `{}`",
        create_account(.0), namespace = .0.namespace, account = .0
    )]
    NamespaceMissing(AccountName),
    /// The controller may not create a token.
    #[error("no token for service account {account}: {message}")]
    Refused {
        /// The account.
        account: AccountName,
        /// The server's message.
        message: String,
    },
    /// The server did not answer.
    #[error("cannot get a token for service account {account}: {message}")]
    Unavailable {
        /// The account.
        account: AccountName,
        /// The error.
        message: String,
    },
}

/// The command that creates the account.
fn create_account(account: &AccountName) -> String {
    format!(
        "kubectl create serviceaccount {} -n {}",
        account.name, account.namespace
    )
}

/// The service accounts that the controller acts as.
pub struct Accounts {
    own: Client,
    anonymous: Client,
    known: Mutex<HashMap<AccountName, Arc<TokenCell>>>,
}

impl Accounts {
    /// `config` has the address of the API server; credentials in it and in its headers are ignored. `own` requests the
    /// tokens. `metrics` counts requests.
    ///
    /// # Errors
    /// The configuration is not usable.
    pub fn new(config: &Config, own: Client, metrics: &Metrics) -> Result<Self, kube::Error> {
        let mut config = config.clone();
        config.auth_info = AuthInfo::default();
        config
            .headers
            .retain(|(name, _)| *name == http::header::USER_AGENT);
        Ok(Self {
            own,
            anonymous: counted(config, metrics)?,
            known: Mutex::default(),
        })
    }

    /// A client with a valid token of the account.
    ///
    /// It is created for each call: the queue in a client takes some 12 KiB, which hundreds of idle accounts should not
    /// hold. The token and the connections are shared.
    ///
    /// # Errors
    /// [`IdentityError`]
    pub async fn client(&self, account: &AccountName) -> Result<Client, IdentityError> {
        let cell = Arc::clone(
            self.known()
                .entry(account.clone())
                .or_insert_with(|| self.cell(account)),
        );
        cell.header().await?;
        Ok(self.acting(cell))
    }

    /// Discards the token because the account is gone, and with it all that was granted to it.
    pub async fn forget_token(&self, account: &AccountName) {
        if let Some(cell) = self.cell_of(account) {
            *cell.state.lock().await = TokenState::default();
        }
    }

    /// Allows a token request at once if the last one failed. Returns whether it did.
    pub async fn forget_failure(&self, account: &AccountName) -> bool {
        match self.cell_of(account) {
            Some(cell) => cell.state.lock().await.failed.take().is_some(),
            None => false,
        }
    }

    fn cell_of(&self, account: &AccountName) -> Option<Arc<TokenCell>> {
        self.known().get(account).cloned()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AccountName, Arc<TokenCell>>> {
        self.known.lock()
    }

    /// Forgets the accounts for which `used` returns false.
    pub fn retain(&self, used: impl Fn(&AccountName) -> bool) {
        self.known().retain(|account, _| used(account));
    }

    fn cell(&self, account: &AccountName) -> Arc<TokenCell> {
        Arc::new(TokenCell {
            account: account.clone(),
            own: self.own.clone(),
            state: tokio::sync::Mutex::new(TokenState::default()),
        })
    }

    fn acting(&self, tokens: Arc<TokenCell>) -> Client {
        let anonymous = self.anonymous.clone();
        let namespace = tokens.account.namespace.clone();
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let (anonymous, tokens) = (anonymous.clone(), Arc::clone(&tokens));
            async move {
                let header = tokens.header().await?;
                request.headers_mut().insert(AUTHORIZATION, header.clone());
                let response = anonymous.send(request).await?;
                if response.status() == http::StatusCode::UNAUTHORIZED {
                    tokens.reject(&header).await;
                }
                Ok::<_, tower::BoxError>(response)
            }
        });
        Client::new(service, namespace)
    }
}

struct TokenCell {
    account: AccountName,
    own: Client,
    state: tokio::sync::Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    token: Option<Token>,
    failed: Option<(Instant, IdentityError)>,
}

struct Token {
    header: HeaderValue,
    renew: Instant,
    expires: Instant,
}

impl TokenCell {
    /// The header with a token that is valid for some time.
    async fn header(&self) -> Result<HeaderValue, IdentityError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(token) = state.token.as_ref().filter(|token| now < token.renew) {
            return Ok(token.header.clone());
        }
        if let Some((at, error)) = state.failed.as_ref().filter(|(at, _)| at.elapsed() < RETRY_AFTER) {
            tracing::trace!(account = %self.account, since = ?at.elapsed(), "not asking for a token again yet");
            return state
                .token
                .as_ref()
                .filter(|t| now < t.expires)
                .map(|t| t.header.clone())
                .ok_or(error.clone());
        }
        match self.request().await {
            Ok(token) => {
                let header = token.header.clone();
                *state = TokenState {
                    token: Some(token),
                    failed: None,
                };
                Ok(header)
            }
            Err(error) => {
                state.failed = Some((now, error.clone()));
                // The old token is used until it expires.
                state
                    .token
                    .as_ref()
                    .filter(|t| now < t.expires)
                    .map(|t| t.header.clone())
                    .ok_or(error)
            }
        }
    }

    /// The server rejected the token: the account was deleted or created again.
    async fn reject(&self, header: &HeaderValue) {
        let mut state = self.state.lock().await;
        if state.token.as_ref().is_some_and(|token| token.header == *header) {
            state.token = None;
        }
    }

    async fn request(&self) -> Result<Token, IdentityError> {
        let account = &self.account;
        let unavailable = |message: String| IdentityError::Unavailable {
            account: account.clone(),
            message,
        };
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        // The clocks may differ, so only the granted lifetime counts, from the moment of the request.
        let asked = Instant::now();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.own.clone(), &account.namespace);
        let answer = match accounts
            .create_token_request(&account.name, &PostParams::default(), &request)
            .await
        {
            Ok(answer) => answer,
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(self.missing().await),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let message = status.message.clone();
                return Err(IdentityError::Refused {
                    account: account.clone(),
                    message,
                });
            }
            Err(kube::Error::Api(status)) => return Err(unavailable(status.message.clone())),
            Err(error) => return Err(unavailable(error.to_string())),
        };
        let status = answer
            .status
            .ok_or_else(|| unavailable("the answer holds no token".to_owned()))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", status.token.unwrap_or_default()))
            .map_err(|_| unavailable("the token is not one".to_owned()))?;
        header.set_sensitive(true);
        let granted = answer.spec.and_then(|spec| spec.expiration_seconds);
        let life = Duration::from_secs(
            granted
                .unwrap_or(TOKEN_SECONDS)
                .clamp(0, TOKEN_SECONDS)
                .unsigned_abs(),
        );
        Ok(Token {
            header,
            renew: asked + life.mul_f64(RENEW_AFTER),
            expires: asked + life,
        })
    }

    async fn missing(&self) -> IdentityError {
        let namespaces: Api<Namespace> = Api::all(self.own.clone());
        match namespaces.get_metadata_opt(&self.account.namespace).await {
            Ok(None) => IdentityError::NamespaceMissing(self.account.clone()),
            Ok(Some(_)) | Err(_) => IdentityError::AccountMissing(self.account.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_named_by_namespace_and_name() {
        let account: AccountName = "ns/name".parse().unwrap();
        assert_eq!(
            (account.namespace.as_str(), account.name.as_str()),
            ("ns", "name")
        );
        assert_eq!(account.to_string(), "ns/name");
        for wrong in [
            "", "name", "/name", "ns/", "a/b/c", "../name", "ns/..", "ns/a?b", "ns/A", "ns/%2f",
        ] {
            assert!(wrong.parse::<AccountName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_object_is_named_with_the_command_that_creates_it() {
        let account: AccountName = "ns/name".parse().unwrap();
        let check = |error: IdentityError, expected: &str| assert_eq!(error.to_string(), expected);
        check(
            IdentityError::AccountMissing(account.clone()),
            "service account ns/name does not exist: create it by `kubectl create serviceaccount name -n ns`",
        );
        check(
            IdentityError::NamespaceMissing(account),
            "namespace ns of service account ns/name does not exist: create both by `kubectl create namespace ns` and \
             `kubectl create serviceaccount name -n ns`",
        );
    }

    #[tokio::test]
    async fn a_token_lives_as_long_as_the_server_grants_whatever_its_clock_says() {
        for (granted, expected) in [(Some(3600), 1), (Some(600), 1), (None, 1), (Some(0), 2)] {
            let answer = serde_json::json!({
                "metadata": {}, "spec": {"audiences": [], "expirationSeconds": granted},
                "status": {"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"},
            });
            let (own, asked) = crate::fake::client(move |_, _| (201, answer.clone()));
            let config = Config::new("http://localhost".parse().unwrap());
            let accounts = Accounts::new(&config, own, &Metrics::default()).unwrap();
            let account: AccountName = "ns/name".parse().unwrap();
            for _ in 0..2 {
                accounts.client(&account).await.unwrap();
            }
            assert_eq!(asked.lock().unwrap().len(), expected, "{granted:?}");
            assert!(!accounts.forget_failure(&account).await);
            accounts.forget_token(&account).await;
            accounts.client(&account).await.unwrap();
            assert_eq!(asked.lock().unwrap().len(), expected + 1, "{granted:?}");
        }
    }
}
