//! Health over plain HTTP for the kubelet, metrics for authorised clients or for all.

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
use crate::metrics::{Metrics, TextFormat};
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

/// Opens the metrics port until the process ends, with `/healthz`. `gate` decides on access to `/metrics`; without
/// one, every client may read them.
///
/// # Errors
/// When the address is malformed or taken.
pub async fn open_metrics(
    address: &str,
    transport: Transport,
    metrics: &Metrics,
    gate: Option<Gate>,
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

fn metrics_routes(metrics: Metrics, gate: Option<Gate>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(scrape))
        .with_state((metrics, gate))
}

async fn scrape(State((metrics, gate)): State<(Metrics, Option<Gate>)>, headers: HeaderMap) -> Response {
    if let Some(gate) = gate
        && let Err(refused) = gate.admit(&headers, ProtectedResource::Path("/metrics")).await
    {
        return (refused.status(), format!("{refused}\n")).into_response();
    }
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let format = TextFormat::accepted(&accepted.join(","));
    match metrics.text(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
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
    async fn metrics_without_a_gate_are_for_every_client_and_in_the_format_that_it_accepts() {
        let ask = async |gate: Option<Gate>, path: &str, accept: &str| {
            let request = http::Request::get(path).header(header::ACCEPT, accept);
            let request = request.body(axum::body::Body::empty()).unwrap();
            let answer = metrics_routes(Metrics::default(), gate)
                .oneshot(request)
                .await
                .unwrap();
            let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
            (
                answer.status().as_u16(),
                kind.unwrap().to_str().unwrap().to_owned(),
            )
        };
        let gate = || {
            let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nothing is asked"))
            });
            Some(Gate::new(kube::Client::new(service, "default")))
        };
        let older = "text/plain; version=0.0.4; charset=utf-8".to_owned();
        let newer = "application/openmetrics-text; version=1.0.0; charset=utf-8".to_owned();
        let text = "text/plain; charset=utf-8".to_owned();
        assert_eq!(ask(None, "/metrics", "*/*").await, (200, older));
        assert_eq!(
            ask(None, "/metrics", "application/openmetrics-text").await,
            (200, newer)
        );
        assert_eq!(ask(gate(), "/metrics", "*/*").await, (401, text.clone()));
        assert_eq!(ask(gate(), "/healthz", "*/*").await, (200, text));
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
