//! The HTTP clients for registries, made anew when a trusted authority changes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_transport::{Authorities, AuthoritiesError, PemFile, Proxies, ProxyError, causes};
use parking_lot::Mutex;

use crate::access::registries::Security;
use crate::digest::{Digest, Hasher};

/// Clients are built anew after this time, so that changed system roots are picked up too.
const CLIENT_AGE: Duration = Duration::from_mins(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A registry that sends nothing for so long is taken for dead.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of pings on a connection with HTTP/2, which many requests share, and the time limit of their answers.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Flow-control windows of HTTP/2, in bytes: of one answer, and of one connection.
const WINDOWS: (u32, u32) = (1 << 20, 2 << 20);

/// Error of setting up a client.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The directory of authorities cannot be used.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The environment names a proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The TLS settings do not fit together.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// HTTP clients, one per way of verifying, shared by all requests while the trusted roots stay the same.
pub(crate) struct Clients {
    directory: Option<PathBuf>,
    setting: &'static str,
    user_agent: String,
    current: Mutex<Option<Current>>,
}

/// The clients of one conversation with a registry.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// For the registry itself. It may accept any certificate.
    pub(crate) own: reqwest::Client,
    /// For wherever else the registry sends us: its token service, its storage. Verifies every certificate.
    pub(crate) others: reqwest::Client,
    /// The proxies that both use.
    pub(crate) proxies: Proxies,
}

#[derive(Clone)]
struct Current {
    fingerprint: Digest,
    made: Instant,
    proxies: Proxies,
    verified: reqwest::Client,
    insecure: Option<reqwest::Client>,
}

impl Clients {
    /// `setting` names the source of `directory`, for messages.
    pub(crate) const fn new(directory: Option<PathBuf>, setting: &'static str, user_agent: String) -> Self {
        Self {
            directory,
            setting,
            user_agent,
            current: Mutex::new(None),
        }
    }

    /// The clients for a way of reaching a registry. Reads the directory of authorities on a thread where that may
    /// block; nothing when the program ends meanwhile.
    pub(crate) async fn pair(self: &Arc<Self>, security: Security) -> Option<Result<Pair, TrustError>> {
        let clients = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || clients.read_pair(security));
        made.await.ok()
    }

    /// As [`Self::pair`], on this thread.
    fn read_pair(&self, security: Security) -> Result<Pair, TrustError> {
        let files = self
            .directory
            .as_deref()
            .map(olm_transport::read_directory)
            .transpose()?
            .unwrap_or_default();
        let fingerprint = fingerprint(&files);
        let mut current = self.current.lock();
        let fresh = current
            .as_ref()
            .filter(|current| current.fingerprint == fingerprint && current.made.elapsed() < CLIENT_AGE);
        let mut clients = if let Some(clients) = fresh {
            clients.clone()
        } else {
            let proxies = Proxies::from_environment()?;
            Current {
                fingerprint,
                made: Instant::now(),
                verified: self.build(Some(&files), &proxies)?,
                proxies,
                insecure: None,
            }
        };
        let others = clients.verified.clone();
        let own = match (security, &clients.insecure) {
            (Security::Verified, _) => others.clone(),
            (Security::Insecure | Security::PlainHttp, Some(client)) => client.clone(),
            (Security::Insecure | Security::PlainHttp, None) => {
                let client = self.build(None, &clients.proxies)?;
                clients.insecure = Some(client.clone());
                client
            }
        };
        let proxies = clients.proxies.clone();
        *current = Some(clients);
        Ok(Pair { own, others, proxies })
    }

    /// A client that verifies servers against the system's authorities and those in `files`; without files one that
    /// verifies no server.
    fn build(&self, files: Option<&[PemFile]>, proxies: &Proxies) -> Result<reqwest::Client, TrustError> {
        let provider = olm_transport::provider();
        let verifier = match files {
            Some(files) => {
                let mut authorities = Authorities::system();
                if let Some(directory) = &self.directory {
                    authorities.add_files(directory, files)?;
                }
                olm_transport::verified(&provider, authorities, self.setting)
            }
            None => olm_transport::unverified(&provider),
        };
        let mut tls = olm_transport::client_config(provider, rustls::DEFAULT_VERSIONS, verifier)
            .map_err(TrustError::Tls)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        olm_transport::http_client(tls, proxies)
            .user_agent(&self.user_agent)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1)
            .http2_initial_stream_window_size(WINDOWS.0)
            .http2_initial_connection_window_size(WINDOWS.1)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(TrustError::Client)
    }
}

/// Whether no server listens there, or one that does not speak TLS. Any other failure says nothing about plain HTTP.
pub(crate) fn speaks_no_tls(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        let system = cause.downcast_ref::<io::Error>();
        matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(_)))
            || system.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

fn fingerprint(files: &[PemFile]) -> Digest {
    let mut hasher = Hasher::sha256();
    for (path, text) in files {
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(&text.len().to_le_bytes());
        hasher.update(text);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn certificate(name: &str) -> String {
        rcgen::generate_simple_self_signed([name.to_owned()])
            .unwrap()
            .cert
            .pem()
    }

    fn clients(directory: &Path) -> Clients {
        Clients::new(Some(directory.to_owned()), "--ca-dir", "test".to_owned())
    }

    #[test]
    fn clients_are_kept_until_an_authority_changes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.crt"), certificate("a")).unwrap();
        let clients = clients(directory.path());
        let made = || {
            clients.read_pair(Security::Verified).unwrap();
            clients.current.lock().as_ref().unwrap().made
        };
        let first = made();
        assert_eq!(made(), first);
        std::fs::write(
            directory.path().join("a.crt"),
            certificate("b") + &certificate("c"),
        )
        .unwrap();
        let second = made();
        assert_ne!(second, first);
        clients.read_pair(Security::Insecure).unwrap();
        assert_eq!(made(), second);
    }
}
