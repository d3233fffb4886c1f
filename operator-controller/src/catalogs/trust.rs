//! Which certificate authorities catalogd's certificate may come from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use olm_api::names;
use olm_platform::tls::{Profile, TlsError, client_config, self_signed};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// For how long what was read is trusted; a failed handshake has it read again at once.
const KEPT: Duration = Duration::from_mins(5);

/// Where authorities come from, beside those of the system.
#[derive(Clone)]
pub struct Authorities {
    /// A directory of PEM files; read again when it is needed.
    pub directory: Option<PathBuf>,
    /// Reads the ConfigMap that catalogd publishes its own authority in.
    pub client: Client,
    /// The namespace of that ConfigMap.
    pub namespace: String,
    /// Versions, suites and groups.
    pub profile: Profile,
}

/// Why there is no HTTPS client.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A directory or a file in it cannot be read.
    #[error("cannot read certificate authorities in `{path}`")]
    Read {
        /// What was to be read.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The directory holds no certificate.
    #[error("no certificates found in \"{0}\"")]
    Empty(String),
    /// The work was cut off.
    #[error("reading the certificate authorities was cut off")]
    CutOff,
    /// The ConfigMap cannot be read.
    #[error("cannot read the ConfigMap with catalogd's certificate authority")]
    ConfigMap(#[source] Box<kube::Error>),
    /// The settings do not make a client.
    #[error("cannot set up TLS for asking catalogs")]
    Tls(#[source] TlsError),
    /// The settings do not make a client.
    #[error("cannot set up a client for asking catalogs")]
    Client(#[source] reqwest::Error),
}

/// A client and when it was made.
#[derive(Debug, Clone)]
pub(super) struct Trusted {
    pub(super) client: reqwest::Client,
    made: Instant,
}

impl Trusted {
    pub(super) fn is_fresh(&self) -> bool {
        self.made.elapsed() < KEPT
    }
}

impl Authorities {
    /// An HTTPS client that believes the authorities as they are now.
    pub(super) async fn client(&self) -> Result<Trusted, TrustError> {
        let directory = self.directory.clone();
        let mut roots = tokio::task::spawn_blocking(move || read_roots(directory.as_deref()))
            .await
            .map_err(|_| TrustError::CutOff)??;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let published = maps
            .get_opt(names::certificate::CATALOGD_AUTHORITY)
            .await
            .map_err(|e| TrustError::ConfigMap(Box::new(e)))?;
        if let Some(pem) = published.and_then(|map| map.data?.remove(self_signed::CA)) {
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
        }
        let tls = client_config(&self.profile, roots).map_err(TrustError::Tls)?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("operator-controller/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_mins(1))
            .timeout(Duration::from_mins(5))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(TrustError::Client)?;
        Ok(Trusted {
            client,
            made: Instant::now(),
        })
    }
}

/// The authorities of the system and those in a directory. Reads many files.
fn read_roots(directory: Option<&Path>) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(directory) = directory {
        let path = directory.display().to_string();
        let certificates = match read_directory(directory) {
            Ok(certificates) if certificates.is_empty() => return Err(TrustError::Empty(path)),
            Ok(certificates) => certificates,
            Err(source) => return Err(TrustError::Read { path, source }),
        };
        roots.add_parsable_certificates(certificates);
    }
    Ok(roots)
}

/// The certificates of all files in a directory; directories in it are left out.
fn read_directory(directory: &Path) -> std::io::Result<Vec<CertificateDer<'static>>> {
    let mut certificates = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            let pem = std::fs::read(&path)?;
            certificates.extend(CertificateDer::pem_slice_iter(&pem).flatten());
        }
    }
    Ok(certificates)
}
