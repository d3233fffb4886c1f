//! The one crypto provider of the process.

/// Makes aws-lc-rs the provider of all TLS connections of this process. Call it first in `main`; a second call changes
/// nothing.
pub fn install() {
    // An error only means that a provider is installed already, and the tree has only one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Gathers the first randomness of this process in a separate thread, after [`install`]. Otherwise the first connection
/// waits some 50 ms for it.
pub fn gather_randomness() {
    std::thread::spawn(|| {
        if let Some(provider) = rustls::crypto::CryptoProvider::get_default() {
            // The first real use tries again and reports the error.
            let _ = provider.secure_random.fill(&mut [0]);
        }
    });
}
