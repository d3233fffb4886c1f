//! The certificate of a manager's HTTPS ports.

use std::sync::Arc;

use super::certificate::Files;
use super::self_signed::SelfSigned;
use super::{ReloadingCertificate, TlsError};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// The name of the task that renews a certificate.
const TASK: &str = "certificate";

/// The certificate in the configured files, otherwise the one that the manager creates. Both are renewed until the
/// process ends.
///
/// # Errors
/// When the files contain no usable certificate, or none can be created or stored.
pub async fn serving_certificate(
    files: Option<Files>,
    own: SelfSigned,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<Arc<ReloadingCertificate>, TlsError> {
    if let Some(files) = files {
        return from_files(files, metrics, shutdown);
    }
    let loaded = own.load().await?;
    let certificate = Arc::clone(&loaded.certificate);
    shows_expiry(metrics, &certificate);
    shutdown.spawn(TASK, own.watch(loaded, shutdown.token()));
    Ok(certificate)
}

/// The certificate in files. It is reloaded until the process ends.
///
/// # Errors
/// When the files contain no usable certificate.
pub fn from_files(
    files: Files,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<Arc<ReloadingCertificate>, TlsError> {
    let certificate = files.load()?;
    let watch = files.watch(
        Arc::clone(&certificate),
        metrics.certificates().clone(),
        shutdown.token(),
    );
    shutdown.spawn(TASK, watch);
    shows_expiry(metrics, &certificate);
    Ok(certificate)
}

fn shows_expiry(metrics: &Metrics, certificate: &Arc<ReloadingCertificate>) {
    let certificate = Arc::clone(certificate);
    metrics.certificate(move || certificate.expires());
}
