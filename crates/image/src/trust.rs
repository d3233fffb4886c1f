//! Certificate authorities beside those of the system: a directory of PEM files, read again when it changes.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::digest::{Digest, Hasher};
use crate::registries::Security;
use crate::registry::CHAIN_LIMIT;

/// Clients are built anew after this time, so that changed system roots are picked up too.
const CLIENT_AGE: Duration = Duration::from_mins(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A registry that sends nothing for so long is taken for dead.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The directory or a file in it cannot be read.
    #[error("cannot read certificate authorities from `{path}`")]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No file of the directory holds a certificate.
    #[error("no certificates found in \"{path}\"")]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file holds something that is no certificate.
    #[error("`{path}` holds an invalid certificate")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: reqwest::Error,
    },
    /// The TLS machinery refused the configuration, for example because there is no root at all.
    #[error("cannot set up TLS")]
    Client(#[source] reqwest::Error),
}

/// HTTP clients, one per way of verifying, shared by all requests while the trusted roots stay the same.
pub(crate) struct Clients {
    directory: Option<PathBuf>,
    user_agent: String,
    current: Mutex<Option<Current>>,
}

/// The clients of one conversation with a registry.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// For the registry itself. One that accepts any certificate follows no redirect to another host.
    pub(crate) own: reqwest::Client,
    /// For wherever else the registry sends us: its token service, its storage. Verifies every certificate.
    pub(crate) others: reqwest::Client,
}

#[derive(Clone)]
struct Current {
    fingerprint: Digest,
    made: Instant,
    verified: reqwest::Client,
    insecure: Option<reqwest::Client>,
}

impl Clients {
    pub(crate) const fn new(directory: Option<PathBuf>, user_agent: String) -> Self {
        Self {
            directory,
            user_agent,
            current: Mutex::new(None),
        }
    }

    /// The clients for a way of reaching a registry. Reads the directory of authorities on a thread where that may block;
    /// nothing when the program ends meanwhile.
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
            .map(read_directory)
            .transpose()?
            .unwrap_or_default();
        let fingerprint = fingerprint(&files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = current
            .as_ref()
            .filter(|current| current.fingerprint == fingerprint && current.made.elapsed() < CLIENT_AGE);
        let mut clients = match fresh {
            Some(clients) => clients.clone(),
            None => Current {
                fingerprint,
                made: Instant::now(),
                verified: self.build(&files, self.directory.as_deref(), Security::Verified)?,
                insecure: None,
            },
        };
        let others = clients.verified.clone();
        let own = match (security, &clients.insecure) {
            (Security::Verified, _) => others.clone(),
            (Security::Insecure | Security::PlainHttp, Some(client)) => client.clone(),
            (Security::Insecure | Security::PlainHttp, None) => {
                let client = self.build(&files, self.directory.as_deref(), Security::Insecure)?;
                clients.insecure = Some(client.clone());
                client
            }
        };
        *current = Some(clients);
        Ok(Pair { own, others })
    }

    fn build(
        &self,
        files: &[(PathBuf, Vec<u8>)],
        directory: Option<&Path>,
        security: Security,
    ) -> Result<reqwest::Client, TrustError> {
        let mut certificates = Vec::new();
        for (path, text) in files {
            let found =
                reqwest::Certificate::from_pem_bundle(text).map_err(|source| TrustError::Certificate {
                    path: path.clone(),
                    source,
                })?;
            certificates.extend(found);
        }
        if let Some(path) = directory
            && certificates.is_empty()
        {
            return Err(TrustError::Empty {
                path: path.to_owned(),
            });
        }
        reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .tls_certs_merge(certificates)
            .tls_danger_accept_invalid_certs(security != Security::Verified)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(redirects(security))
            .build()
            .map_err(TrustError::Client)
    }
}

/// Follows a few redirects, as blob stores need them, but never from HTTPS to HTTP, and without verification to the same
/// host only. The client itself drops the credentials when the host changes.
fn redirects(security: Security) -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(move |attempt| {
        let previous = attempt.previous().last();
        let downgrade = previous.is_some_and(|previous| gives_up_tls(previous, attempt.url()));
        let elsewhere = previous.is_some_and(|previous| previous.host_str() != attempt.url().host_str());
        if downgrade {
            attempt.error("the registry redirects from HTTPS to HTTP")
        } else if attempt.previous().len() > CHAIN_LIMIT {
            attempt.error("the registry redirects in circles")
        } else if elsewhere && security != Security::Verified {
            // Whoever asked goes on with the other client.
            attempt.stop()
        } else {
            attempt.follow()
        }
    })
}

/// Whether a way leads from HTTPS to HTTP.
pub(crate) fn gives_up_tls(from: &reqwest::Url, to: &reqwest::Url) -> bool {
    from.scheme() == "https" && to.scheme() != "https"
}

/// An error and what it comes from, the innermost last.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'e (dyn Error + 'static) = *error;
        // An error of the system that wraps another one does not name it as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// Whether nobody listens there, or somebody who does not speak TLS. Any other failure says nothing about plain HTTP.
pub(crate) fn speaks_no_tls(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        let system = cause.downcast_ref::<io::Error>();
        matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(_)))
            || system.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// Every file of the directory, in the order of names. Directories in it (and the links by which mounted Secrets are
/// swapped) are skipped.
fn read_directory(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, TrustError> {
    let read = |path: &Path, source| TrustError::Read {
        path: path.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| read(directory, error))? {
        let path = entry.map_err(|error| read(directory, error))?.path();
        if std::fs::metadata(&path)
            .map_err(|error| read(&path, error))?
            .is_dir()
        {
            continue;
        }
        let text = std::fs::read(&path).map_err(|error| read(&path, error))?;
        files.push((path, text));
    }
    files.sort();
    Ok(files)
}

fn fingerprint(files: &[(PathBuf, Vec<u8>)]) -> Digest {
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
    use super::*;

    fn certificate(name: &str) -> String {
        rcgen::generate_simple_self_signed([name.to_owned()])
            .unwrap()
            .cert
            .pem()
    }

    fn clients(directory: &Path) -> Clients {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Clients::new(Some(directory.to_owned()), "test".to_owned())
    }

    #[test]
    fn a_directory_without_a_usable_certificate_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        let check = |expected: &str| {
            let error = clients(directory.path())
                .read_pair(Security::Verified)
                .unwrap_err();
            assert_eq!(error.to_string().replace(&path, "DIR"), expected);
        };
        check("no certificates found in \"DIR\"");
        std::fs::create_dir(directory.path().join("..data")).unwrap();
        std::fs::write(directory.path().join("README"), "nothing").unwrap();
        check("no certificates found in \"DIR\"");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(directory.path().join("broken.crt"), broken).unwrap();
        let error = clients(directory.path())
            .read_pair(Security::Verified)
            .unwrap_err();
        assert!(
            matches!(error, TrustError::Certificate { .. } | TrustError::Client(_)),
            "{error}"
        );
        let error = clients(&directory.path().join("missing"))
            .read_pair(Security::Verified)
            .unwrap_err();
        assert!(matches!(error, TrustError::Read { .. }), "{error}");
    }

    #[test]
    fn clients_are_kept_until_an_authority_changes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.crt"), certificate("a")).unwrap();
        let clients = clients(directory.path());
        let made = || {
            clients.read_pair(Security::Verified).unwrap();
            clients.current.lock().unwrap().as_ref().unwrap().made
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
