//! The one crypto provider of the process.

/// Makes aws-lc-rs the provider of every TLS connection of this process. The first line of `main`; a second call
/// changes nothing.
pub fn install() {
    // An error only says that a provider is installed already, and there is one in the tree.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
