//! Health over plain HTTP for the kubelet, metrics over HTTPS for authorised clients.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::gate::{Gate, ProtectedResource};
use crate::listener::{self, Limits, Transport};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::shutdown::Shutdown;

/// Conditions for the readiness of the process, each with a name for the answer.
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
    /// Adds a condition. Its error names the missing part.
    pub fn require(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().push((name, Box::new(check)));
    }

    /// The unmet conditions, one line each.
    pub fn missing(&self) -> Vec<String> {
        let checks = self.checks.lock();
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
    let listener = bind(address).await?;
    let routes = health_routes(readiness, shutdown.token());
    serve(
        listener,
        Transport::Plain,
        Limits::small(),
        "health",
        routes,
        shutdown,
    );
    Ok(())
}

/// Opens the metrics port until the process ends. `gate` decides on access to `/metrics`.
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
    serve(
        listener,
        transport,
        Limits::default(),
        "metrics",
        routes,
        shutdown,
    );
    Ok(())
}

/// Serves until the process ends.
fn serve(
    listener: TcpListener,
    transport: Transport,
    limits: Limits,
    name: &'static str,
    routes: Router,
    shutdown: &Shutdown,
) {
    let respond = move |request, _| {
        let routes = routes.clone();
        async move {
            routes
                .oneshot(request)
                .await
                .unwrap_or_else(|never| match never {})
        }
    };
    shutdown.spawn(
        name,
        listener::serve(listener, transport, limits, shutdown.token(), respond),
    );
}

/// The process stops counting as ready when it begins to stop.
fn health_routes(readiness: Readiness, stopping: CancellationToken) -> Router {
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
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
}

fn metrics_routes(metrics: Metrics, gate: Gate) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state((metrics, gate))
}

async fn scrape(State((metrics, gate)): State<(Metrics, Gate)>, headers: HeaderMap) -> Response {
    match gate.admit(&headers, ProtectedResource::Path("/metrics")).await {
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
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn readiness_names_the_failing_checks() {
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

    #[tokio::test]
    async fn idle_connections_stop_no_probe() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::{TcpSocket, TcpStream};

        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let routes = health_routes(Readiness::default(), stop.clone());
        let respond = move |request, _| {
            let routes = routes.clone();
            async move {
                routes
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {})
            }
        };
        let serving = listener::serve(listener, Transport::Plain, Limits::small(), stop.clone(), respond);
        let serving = tokio::spawn(serving);
        let mut idle = Vec::new();
        for number in 0..300_u16 {
            let socket = TcpSocket::new_v4().unwrap();
            let host = u8::try_from(2 + number % 6).unwrap();
            socket.bind(([127, 0, 0, host], 0).into()).unwrap();
            idle.push(socket.connect(address).await.unwrap());
        }
        for path in ["/healthz", "/readyz"] {
            // The timeout of a probe of the kubelet.
            let probe = tokio::time::timeout(Duration::from_secs(1), async {
                let mut probe = TcpStream::connect(address).await.unwrap();
                let question = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                probe.write_all(question.as_bytes()).await.unwrap();
                let mut answer = String::new();
                probe.read_to_string(&mut answer).await.unwrap();
                answer
            });
            let answer = probe.await.unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"),
                "{answer}"
            );
        }
        let last = idle.last_mut().unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(8), last.read_to_end(&mut rest));
        assert!(closed.await.is_ok(), "who says nothing is sent away after 5 s");
        stop.cancel();
        serving.await.unwrap();
    }
}
