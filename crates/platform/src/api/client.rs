//! The connection to the API server.

use std::error::Error as _;
use std::io::ErrorKind;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::client::{Body, ClientBuilder};
use kube::config::{InferConfigError, KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::Service;
use tower::layer::layer_fn;

use crate::metrics::{Metrics, RequestLabels};

/// A variable that the kubelet sets in Pods.
const POD: &str = "KUBERNETES_SERVICE_HOST";

/// The kubeconfig without another choice.
const HOME_KUBECONFIG: &str = "~/.kube/config";

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// This kubeconfig does not exist, and no Pod's credentials take its place.
    #[error(
        "cannot find the API server: there is no file `{0}`; set `KUBECONFIG` or `--kubeconfig` to a kubeconfig"
    )]
    Missing(String),
    /// There is no kubeconfig, and the Pod's credentials cannot be used.
    #[error("cannot use the credentials of the Pod")]
    Pod(#[source] kube::config::InClusterError),
    /// The kubeconfig in use cannot be used, for this reason.
    #[error(
        "cannot use the kubeconfig `{path}`: {why}; fix it, or set `KUBECONFIG` or `--kubeconfig` to another one"
    )]
    Unusable {
        /// The file, or the files of `KUBECONFIG`.
        path: String,
        /// The reason.
        why: String,
    },
    /// The named kubeconfig cannot be used.
    #[error("cannot use the kubeconfig `{path}`")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig has a usable context with this name.
    #[error("cannot use the context `{context}` of the kubeconfig")]
    Context {
        /// The context.
        context: String,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// No client can be created from the configuration.
    #[error("cannot set up a client for the API server")]
    Client(#[source] kube::Error),
}

/// The configuration of the connection to the API server: `kubeconfig` if given, otherwise the files in `KUBECONFIG` or
/// `~/.kube/config`, otherwise the Pod's own credentials. `name` becomes the user agent, which distinguishes the managers in audit logs.
///
/// # Errors
/// When there is no usable configuration.
pub async fn config(kubeconfig: Option<&str>, name: &str) -> Result<Config, ClientError> {
    config_in(kubeconfig, None, name).await
}

/// Like [`config`], in this context of the kubeconfig instead of its current one.
///
/// # Errors
/// When there is no usable configuration, or no such context.
pub async fn config_in(
    kubeconfig: Option<&str>,
    context: Option<&str>,
    name: &str,
) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = match (kubeconfig, context) {
        (None, None) => Config::infer().await.map_err(|error| without_config(&error))?,
        (None, Some(context)) => {
            let unusable = |source| match missing_file(&source) {
                Some(path) => ClientError::Missing(path),
                None => ClientError::Context {
                    context: context.to_owned(),
                    source,
                },
            };
            Config::from_kubeconfig(&options).await.map_err(unusable)?
        }
        (Some(path), _) => {
            let unusable = |source| match missing_file(&source) {
                Some(path) => ClientError::Missing(path),
                None => ClientError::Kubeconfig {
                    path: path.to_owned(),
                    source,
                },
            };
            let file = kube::config::Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(unusable)?
        }
    };
    if let Ok(value) = http::HeaderValue::from_str(&format!("{name}/{}", env!("CARGO_PKG_VERSION"))) {
        config.headers.push((http::header::USER_AGENT, value));
    }
    config.connect_timeout = Some(Duration::from_secs(10));
    // A dead connection must not block a request for ever. Watches send data at least every 290 s.
    config.read_timeout = Some(Duration::from_mins(5));
    config.reset_reader_on_write = true;
    // The work queue retries with its own limits; hidden retries would only delay the report.
    config.default_retry = false;
    Ok(config)
}

/// The part of the client's error that helps: its own text lists the reasons of all sources.
fn without_config(error: &InferConfigError) -> ClientError {
    let unusable = |why: String| {
        let path = std::env::var("KUBECONFIG").ok().filter(|path| !path.is_empty());
        let path = path.unwrap_or_else(|| HOME_KUBECONFIG.to_owned());
        ClientError::Unusable { path, why }
    };
    let Some(kubeconfig) = error.source() else {
        return unusable(error.to_string());
    };
    let Some(missing) = kubeconfig.downcast_ref().and_then(missing_file) else {
        return unusable(kubeconfig.to_string());
    };
    match Config::incluster() {
        Err(source) if std::env::var_os(POD).is_some() => ClientError::Pod(source),
        _ => ClientError::Missing(missing),
    }
}

/// The kubeconfig that does not exist.
fn missing_file(error: &KubeconfigError) -> Option<String> {
    match error {
        KubeconfigError::ReadConfig(cause, path) if cause.kind() == ErrorKind::NotFound => {
            Some(path.display().to_string())
        }
        KubeconfigError::FindPath => Some(HOME_KUBECONFIG.to_owned()),
        _ => None,
    }
}

/// A client whose requests are counted.
///
/// # Errors
/// When the configuration is not usable.
pub fn counted(config: Config, metrics: &Metrics) -> Result<Client, kube::Error> {
    let host = config
        .cluster_url
        .authority()
        .map(ToString::to_string)
        .unwrap_or_default();
    let requests = metrics.requests();
    let layer = layer_fn(|inner| Counted {
        inner,
        host: host.clone(),
        requests: requests.clone(),
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// A client for the [`config`], whose requests are counted.
///
/// # Errors
/// When there is no usable configuration.
pub async fn connect(kubeconfig: Option<&str>, name: &str, metrics: &Metrics) -> Result<Client, ClientError> {
    counted(config(kubeconfig, name).await?, metrics).map_err(ClientError::Client)
}

/// Counts answers and missing answers.
struct Counted<S> {
    inner: S,
    host: String,
    requests: Family<RequestLabels, Counter>,
}

impl<S, B> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (method, host) = (request.method().to_string(), self.host.clone());
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            requests
                .get_or_create(&RequestLabels { code, method, host })
                .inc();
            answer
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_their_outcome() {
        let requests = Family::default();
        let answers = tower::service_fn(|request: http::Request<Body>| async move {
            match request.uri().path() {
                "/broken" => Err(std::io::Error::other("broken")),
                path => Ok(http::Response::builder()
                    .status(if path == "/absent" { 404 } else { 200 })
                    .body(())
                    .unwrap()),
            }
        });
        let mut service = Counted {
            inner: answers,
            host: "api:6443".to_owned(),
            requests: requests.clone(),
        };
        for path in ["/present", "/present", "/absent", "/broken"] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let _ = service.call(request).await;
        }
        for (code, count) in [("200", 2), ("404", 1), ("<error>", 1), ("500", 0)] {
            let request = RequestLabels {
                code: code.to_owned(),
                method: "GET".to_owned(),
                host: "api:6443".to_owned(),
            };
            assert_eq!(requests.get_or_create(&request).get(), count, "{code}");
        }
    }
}
