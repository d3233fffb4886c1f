//! The connection to the API server.

use std::time::Duration;

use kube::{Client, Config};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a kubeconfig nor a Pod's credentials are there.
    #[error("no way to the API server: set KUBECONFIG (or --kubeconfig), or run inside a cluster")]
    Config(#[source] kube::config::InferConfigError),
    /// The named kubeconfig cannot be used.
    #[error("cannot use the kubeconfig `{path}`")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// The configuration cannot be turned into a client.
    #[error("cannot set up a client for the API server")]
    Client(#[source] kube::Error),
}

/// The configuration for reaching the API server: `kubeconfig` when given, else what `KUBECONFIG` names, else the Pod's own
/// credentials. `name` becomes the user agent, by which audit logs tell the managers apart.
///
/// # Errors
/// When there is no usable configuration.
pub async fn config(kubeconfig: Option<&str>, name: &str) -> Result<Config, ClientError> {
    let mut config = match kubeconfig {
        None => Config::infer().await.map_err(ClientError::Config)?,
        Some(path) => {
            let unusable = |source| ClientError::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = kube::config::Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                .await
                .map_err(|source| ClientError::Kubeconfig {
                    path: path.to_owned(),
                    source,
                })?
        }
    };
    if let Ok(value) = http::HeaderValue::from_str(&format!("{name}/{}", env!("CARGO_PKG_VERSION"))) {
        config.headers.push((http::header::USER_AGENT, value));
    }
    config.connect_timeout = Some(Duration::from_secs(10));
    // A connection that died silently must not hold a request for ever. Watches say something at least every 290 s.
    config.read_timeout = Some(Duration::from_mins(5));
    config.reset_reader_on_write = true;
    // The work queue retries with a bound of its own; hidden retries would only delay the report.
    config.default_retry = false;
    Ok(config)
}

/// A client as [`config`] describes it.
///
/// # Errors
/// When there is no usable configuration, or it does not make a client.
pub async fn connect(kubeconfig: Option<&str>, name: &str) -> Result<Client, ClientError> {
    Client::try_from(config(kubeconfig, name).await?).map_err(ClientError::Client)
}
