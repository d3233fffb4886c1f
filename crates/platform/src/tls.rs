//! TLS: versions, suites and groups, and certificates that change without a restart.

pub mod certificate;
pub mod client;
mod ephemeral;
pub mod issue;
pub mod profile;
pub mod self_signed;
mod serving;
mod stored_certificate;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

pub use certificate::ReloadingCertificate;
pub use ephemeral::ephemeral_certificate;
pub use profile::Profile;
pub use serving::{from_files, serving_certificate};

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A PEM text contains no certificate or key, or a malformed one.
    #[error("`{origin}` holds no usable {what}: {reason}")]
    Pem {
        /// The file or Secret.
        origin: String,
        /// The expected content.
        what: &'static str,
        /// The fault.
        reason: String,
    },
    /// Certificate, key or settings do not match.
    #[error("cannot use the certificate, key or TLS settings")]
    Unusable(#[source] rustls::Error),
    /// The API server refused the Secret or ConfigMap that holds generated certificates.
    #[error("cannot keep the certificate in `{object}`")]
    Store {
        /// Kind, namespace and name.
        object: String,
        /// The cause.
        source: kube::Error,
    },
    /// A certificate cannot be created.
    #[error("cannot make a certificate")]
    Generate(#[source] rcgen::Error),
}

/// A server's configuration: the profile's versions, suites and groups, certificates from `certificate`, HTTP/2 and
/// 1.1.
///
/// # Errors
/// When the profile allows no version, suite or group.
pub fn server_config(
    profile: &Profile,
    certificate: Arc<ReloadingCertificate>,
) -> Result<ServerConfig, TlsError> {
    configured(profile, certificate, WebPkiClientVerifier::no_client_auth())
}

/// A server's configuration that also requests certificates of clients. [`client::ClientAuthorities`] verifies them for
/// each request.
///
/// # Errors
/// When the profile allows no version, suite or group.
pub fn server_config_for_client_certificates(
    profile: &Profile,
    certificate: Arc<ReloadingCertificate>,
) -> Result<ServerConfig, TlsError> {
    let verifier = client::AnyCertificate(Arc::new(profile.provider()));
    configured(profile, certificate, Arc::new(verifier))
}

fn configured(
    profile: &Profile,
    certificate: Arc<ReloadingCertificate>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(profile.provider()))
        .with_protocol_versions(profile.versions())
        .map_err(TlsError::Unusable)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
