//! Certificate authorities: those of the system, of a directory, and of PEM texts.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;

/// The reason why certificate authorities cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The directory or a file in it cannot be read.
    #[error("cannot read certificate authorities from `{path}`")]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No file of the directory contains a certificate.
    #[error("no certificates found in \"{path}\"")]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file contains a malformed certificate.
    #[error("cannot read the certificate in `{path}`: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// A file and its bytes.
pub type PemFile = (PathBuf, Vec<u8>);

/// The certificates that servers may chain to, or present themselves.
#[derive(Debug, Clone)]
pub struct Authorities {
    /// The certificates that may issue others.
    pub(crate) roots: RootCertStore,
    /// Digests of the whole certificates: a server may present one of them as its own.
    certificates: HashSet<[u8; 32]>,
}

impl Authorities {
    /// No authorities.
    pub fn none() -> Self {
        Self {
            roots: RootCertStore::empty(),
            certificates: HashSet::new(),
        }
    }

    /// The authorities of the system (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`). Reads files.
    pub fn system() -> Self {
        let mut authorities = Self::none();
        for certificate in rustls_native_certs::load_native_certs().certs {
            // Every system has a few malformed ones; no user configured them.
            let _ = authorities.add(certificate);
        }
        authorities
    }

    /// Adds the files of [`read_directory`].
    ///
    /// # Errors
    /// When no file contains a certificate, or one contains a malformed one.
    pub fn add_files(&mut self, directory: &Path, files: &[PemFile]) -> Result<(), AuthoritiesError> {
        let mut found = false;
        for (path, text) in files {
            let malformed = |reason: String| AuthoritiesError::Certificate {
                path: path.clone(),
                reason,
            };
            for certificate in CertificateDer::pem_slice_iter(text) {
                let certificate = certificate.map_err(|error| malformed(error.to_string()))?;
                self.add(certificate)
                    .map_err(|error| malformed(error.to_string()))?;
                found = true;
            }
        }
        if found {
            Ok(())
        } else {
            Err(AuthoritiesError::Empty {
                path: directory.to_owned(),
            })
        }
    }

    /// Adds the certificates of a PEM text. Malformed ones are skipped.
    pub fn add_pem(&mut self, text: &[u8]) {
        for certificate in CertificateDer::pem_slice_iter(text).flatten() {
            if let Err(error) = self.add(certificate) {
                tracing::warn!(%error, "a published certificate authority cannot be used");
            }
        }
    }

    fn add(&mut self, certificate: CertificateDer<'_>) -> Result<(), rustls::Error> {
        let fingerprint = fingerprint(&certificate);
        // webpki checks neither the CA flag nor the dates of an authority.
        let may_issue = Certificate::read(&certificate)
            .is_none_or(|read| read.may_issue() && !read.has_expired(UnixTime::now()));
        if may_issue {
            self.roots.add(certificate.into_owned())?;
        } else {
            // A malformed one stays an error.
            RootCertStore::empty().add(certificate.into_owned())?;
        }
        self.certificates.extend(fingerprint);
        Ok(())
    }

    /// Whether exactly this certificate is one of the authorities.
    pub(crate) fn contain(&self, certificate: &CertificateDer<'_>) -> bool {
        fingerprint(certificate).is_some_and(|fingerprint| self.certificates.contains(&fingerprint))
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    digest(&SHA256, certificate).as_ref().try_into().ok()
}

/// Reads every file of a directory, in the order of names. Directories in it (and the links by which Kubernetes swaps
/// mounted Secrets) are skipped.
///
/// # Errors
/// When the directory or a file cannot be read.
pub fn read_directory(directory: &Path) -> Result<Vec<PemFile>, AuthoritiesError> {
    let read = |path: &Path, source| AuthoritiesError::Read {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_usable_certificate_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let read = || {
            let mut authorities = Authorities::none();
            let added =
                read_directory(folder.path()).and_then(|files| authorities.add_files(folder.path(), &files));
            added.map_err(|error| error.to_string().replace(&path, "DIR"))
        };
        assert_eq!(read().unwrap_err(), "no certificates found in \"DIR\"");
        std::fs::create_dir(folder.path().join("..data")).unwrap();
        std::fs::write(folder.path().join("README"), "nothing").unwrap();
        assert_eq!(read().unwrap_err(), "no certificates found in \"DIR\"");
        let good = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert;
        std::fs::write(folder.path().join("ca.crt"), good.pem()).unwrap();
        assert_eq!(read(), Ok(()));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.path().join("broken.crt"), broken).unwrap();
        let error = read().unwrap_err();
        assert!(
            error.starts_with("cannot read the certificate in `DIR/broken.crt`: "),
            "{error}"
        );
        let missing = read_directory(&folder.path().join("missing")).unwrap_err();
        assert!(matches!(missing, AuthoritiesError::Read { .. }), "{missing}");
    }
}
