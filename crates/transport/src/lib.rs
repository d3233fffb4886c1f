//! `olm-transport`: connections to other servers: the trusted certificates and the proxies.
//!
//! ```text
//! directory, system, ConfigMap ─► Authorities ─► verified() ─► client_config() ─► any HTTPS client
//! HTTPS_PROXY, NO_PROXY …      ─► Proxies ───────────────────────────────────────┘
//! ```
//!
//! Every TLS client, except the one for the API server, verifies servers here. Start reading at [`verified`].

mod authorities;
mod cause;
mod certificate;
mod proxy;
mod resolve;
mod tunnel;
mod verifier;

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, SupportedProtocolVersion};

pub use authorities::{Authorities, AuthoritiesError, PemFile, read_directory};
pub use cause::{Obstacle, causes, chain, is_distrust, reason};
pub use proxy::{Proxies, ProxyError};
pub use resolve::Unresolved;
pub use tunnel::connect;
pub use verifier::{Distrust, unverified, verified};

/// A TLS client with the suites and groups of `provider` that offers `versions` and trusts the servers that `verifier`
/// accepts. It offers no application protocol; set `alpn_protocols` for HTTP/2.
///
/// # Errors
/// When provider and versions have no suite in common.
pub fn client_config(
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// The crypto provider of the process: the installed one, otherwise aws-lc-rs.
pub fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// A builder of an HTTP client with a TLS configuration. It uses only the proxies of the environment.
pub fn http_client(tls: ClientConfig, proxies: &Proxies) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .proxy(proxies.for_client())
        .dns_resolver(resolve::Resolver)
}
