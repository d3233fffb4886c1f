//! Health over plain HTTP for the kubelet, metrics over HTTPS for those who may read them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::gate::{Asked, Gate};
use crate::listener::{self, Limits, Transport};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::shutdown::Shutdown;

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

/// Opens the health port, `/healthz` and `/readyz` over plain HTTP, until the process ends.
///
/// # Errors
/// When the address is malformed or taken.
pub async fn open_health(address: &str, readiness: Readiness, shutdown: &Shutdown) -> std::io::Result<()> {
    let serving = serve_health(bind(address).await?, readiness, shutdown.token());
    shutdown.spawn("health", async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the health port failed");
        }
    });
    Ok(())
}

/// Opens the metrics port, `/metrics` for those whom `gate` admits, until the process ends.
///
/// # Errors
/// When the address is malformed or taken.
pub async fn open_metrics(
    address: &str,
    transport: Transport,
    metrics: &Metrics,
    gate: Gate,
    shutdown: &Shutdown,
) -> std::io::Result<()> {
    let listener = bind(address).await?;
    let routes = metrics_routes(metrics.clone(), gate);
    let respond = move |request, _| {
        let routes = routes.clone();
        async move {
            routes
                .oneshot(request)
                .await
                .unwrap_or_else(|never| match never {})
        }
    };
    let serving = listener::serve(listener, transport, Limits::default(), shutdown.token(), respond);
    shutdown.spawn("metrics", serving);
    Ok(())
}

/// Serves until told to stop. The process stops counting as ready when it is told to stop.
async fn serve_health(
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

fn metrics_routes(metrics: Metrics, gate: Gate) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state((metrics, gate))
}

async fn scrape(State((metrics, gate)): State<(Metrics, Gate)>, headers: HeaderMap) -> Response {
    match gate.admit(&headers, Asked::Path("/metrics")).await {
        Ok(()) => match metrics.text() {
            Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        Err(refused) => (refused.status(), format!("{refused}\n")).into_response(),
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
