//! The certificate authorities for catalogd's certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use olm_api::names;
use olm_platform::tls::{Profile, self_signed};
use olm_transport::{AuthoritiesError, Proxies, ProxyError};

/// The time for which authorities are cached. A failed handshake reloads them at once.
const KEPT: Duration = Duration::from_mins(5);

/// The sources of authorities besides those of the system.
#[derive(Clone)]
pub(crate) struct Authorities {
    /// A directory of PEM files, read when needed.
    pub directory: Option<PathBuf>,
    /// Reads the ConfigMap in which catalogd publishes its own authority.
    pub client: Client,
    /// The namespace of that ConfigMap.
    pub namespace: String,
    /// The TLS profile: versions, cipher suites and groups.
    pub profile: Profile,
}

/// The reason why there is no HTTPS client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// The directory of authorities cannot be used.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The proxy in the environment is invalid.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The program ends.
    #[error("reading the certificate authorities was interrupted")]
    CutOff,
    /// The ConfigMap cannot be read.
    #[error("cannot read the ConfigMap with catalogd's certificate authority")]
    ConfigMap(#[source] Box<kube::Error>),
    /// The TLS profile leaves no cipher suite.
    #[error("cannot set up TLS for requests to catalogs")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("cannot set up a client for requests to catalogs")]
    Client(#[source] reqwest::Error),
}

/// A client and when it was made.
#[derive(Debug, Clone)]
pub(super) struct Trusted {
    pub(super) client: reqwest::Client,
    pub(super) proxies: Proxies,
    made: Instant,
}

impl Trusted {
    pub(super) fn is_fresh(&self) -> bool {
        self.made.elapsed() < KEPT
    }
}

impl Authorities {
    /// An HTTPS client with the current authorities.
    pub(super) async fn client(&self) -> Result<Trusted, TrustError> {
        let directory = self.directory.clone();
        let mut authorities = tokio::task::spawn_blocking(move || read(directory.as_deref()))
            .await
            .map_err(|_| TrustError::CutOff)??;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let published = maps
            .get_opt(names::certificate::CATALOGD_AUTHORITY)
            .await
            .map_err(|e| TrustError::ConfigMap(Box::new(e)))?;
        if let Some(pem) = published.and_then(|map| map.data?.remove(self_signed::CA)) {
            authorities.add_pem(pem.as_bytes());
        }
        let provider = Arc::new(self.profile.provider());
        let verifier = olm_transport::verified(&provider, authorities, "--catalogd-cas-dir");
        let tls = olm_transport::client_config(provider, self.profile.versions(), verifier)
            .map_err(TrustError::Tls)?;
        let proxies = Proxies::from_environment()?;
        let client = olm_transport::http_client(tls, &proxies)
            .user_agent(concat!("operator-controller/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_mins(1))
            .timeout(Duration::from_mins(5))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(TrustError::Client)?;
        Ok(Trusted {
            client,
            proxies,
            made: Instant::now(),
        })
    }
}

/// The authorities of the system and of a directory. Reads many files.
fn read(directory: Option<&Path>) -> Result<olm_transport::Authorities, AuthoritiesError> {
    let mut authorities = olm_transport::Authorities::system();
    if let Some(directory) = directory {
        authorities.add_files(directory, &olm_transport::read_directory(directory)?)?;
    }
    Ok(authorities)
}
