//! Health over plain HTTP for the kubelet, metrics over HTTPS for those who may read them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{CONTENT_TYPE, Metrics};

/// How long the API server's word about a token counts.
const VERDICT_LIFETIME: Duration = Duration::from_secs(30);
/// How many tokens are remembered; a scraper has one.
const VERDICTS: usize = 128;

/// Conditions that have to hold before the process counts as ready, each with a name for the answer.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Vec<Check>>>,
}

type Check = (&'static str, Box<dyn Fn() -> Result<(), String> + Send + Sync>);

impl std::fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Readiness")
    }
}

impl Readiness {
    /// Adds a condition; its error says what is not ready yet.
    pub fn require(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((name, Box::new(check)));
    }

    /// What is not ready, one line each.
    pub fn missing(&self) -> Vec<String> {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks
            .iter()
            .filter_map(|(name, check)| check().err().map(|why| format!("{name}: {why}")))
            .collect()
    }
}

/// Serves `/healthz` and `/readyz` over plain HTTP until told to stop. The process stops counting as ready when it is
/// told to stop.
///
/// # Errors
/// When the listener fails.
pub async fn serve_health(
    listener: TcpListener,
    readiness: Readiness,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let stopping = stop.clone();
    let ready = move || {
        let (readiness, stopping) = (readiness.clone(), stopping.clone());
        async move {
            let missing = readiness.missing();
            if stopping.is_cancelled() {
                (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
            } else if missing.is_empty() {
                (StatusCode::OK, "ok\n".to_owned())
            } else {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("not ready: {}\n", missing.join("; ")),
                )
            }
        }
    };
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready));
    axum::serve(listener, app)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// The routes of the metrics port; serve them over TLS.
pub fn metrics_routes(metrics: Metrics, gate: Gate) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state((metrics, gate))
}

async fn scrape(State((metrics, gate)): State<(Metrics, Gate)>, headers: HeaderMap) -> Response {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    match gate.judge(token).await {
        Verdict::Allowed => match metrics.text() {
            Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        Verdict::Unauthenticated => (
            StatusCode::UNAUTHORIZED,
            "a bearer token of the cluster is needed\n",
        )
            .into_response(),
        Verdict::Forbidden(user) => (
            StatusCode::FORBIDDEN,
            format!("{user} may not get the non-resource URL /metrics\n"),
        )
            .into_response(),
        Verdict::Unknown => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server cannot be asked about the token now\n",
        )
            .into_response(),
    }
}

/// Who may read the metrics: those whom the API server knows and lets `get` the non-resource URL.
#[derive(Clone)]
pub struct Gate {
    client: Client,
    verdicts: Arc<Mutex<HashMap<String, (Instant, Verdict)>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Unauthenticated,
    Forbidden(String),
    /// The API server did not answer; not remembered.
    Unknown,
}

impl Gate {
    /// Asks the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            verdicts: Arc::default(),
        }
    }

    async fn judge(&self, token: Option<&str>) -> Verdict {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Verdict::Unauthenticated;
        };
        if let Some(verdict) = self.remembered(token) {
            return verdict;
        }
        let verdict = match self.ask(token).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(%error, "cannot review a token for the metrics port");
                return Verdict::Unknown;
            }
        };
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if verdicts.len() >= VERDICTS {
            verdicts.clear();
        }
        verdicts.insert(token.to_owned(), (Instant::now(), verdict.clone()));
        verdict
    }

    fn remembered(&self, token: &str) -> Option<Verdict> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts
            .get(token)
            .filter(|(at, _)| at.elapsed() < VERDICT_LIFETIME)
            .map(|(_, verdict)| verdict.clone())
    }

    async fn ask(&self, token: &str) -> Result<Verdict, kube::Error> {
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let review = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unauthenticated);
        };
        let spec = SubjectAccessReviewSpec {
            user: user.username.clone(),
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let allowed = api
            .create(&PostParams::default(), &review)
            .await?
            .status
            .is_some_and(|status| status.allowed);
        Ok(if allowed {
            Verdict::Allowed
        } else {
            Verdict::Forbidden(user.username.unwrap_or_default())
        })
    }
}

/// Opens a port given as `HOST:PORT` or `:PORT`.
///
/// # Errors
/// When the address is malformed or taken.
pub async fn bind(address: &str) -> std::io::Result<TcpListener> {
    let address = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    match TcpListener::bind(&address).await {
        // A kernel without IPv6 has no [::].
        Err(error) if address.starts_with("[::]:") && error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind(address.replacen("[::]", "0.0.0.0", 1)).await
        }
        result => result,
    }
}

/// The address a listener got, for logs and tests with port 0.
pub fn address(listener: &TcpListener) -> Option<SocketAddr> {
    listener.local_addr().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let readiness = Readiness::default();
        assert!(readiness.missing().is_empty());
        readiness.require("store", || Err("catalog a is not here yet".to_owned()));
        readiness.require("listener", || Ok(()));
        assert_eq!(readiness.missing(), ["store: catalog a is not here yet"]);
    }

    #[tokio::test]
    async fn a_port_without_a_host_is_open_on_every_address() {
        let listener = bind(":0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    }
}
