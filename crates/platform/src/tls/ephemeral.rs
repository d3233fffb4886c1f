//! A certificate in memory only, for servers whose clients do not verify it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::issue::{Lifetimes, Renew, issue, plan};
use super::{ReloadingCertificate, TlsError};
use crate::shutdown::Shutdown;

const ORIGIN: &str = "the certificate of this process";
const LOOK_EVERY: Duration = Duration::from_hours(24);

/// A self-signed certificate for these names, kept in memory and renewed until the process ends.
///
/// # Errors
/// When it cannot be created.
pub fn ephemeral_certificate(
    names: Vec<String>,
    shutdown: &Shutdown,
) -> Result<Arc<ReloadingCertificate>, TlsError> {
    let today = || Timestamp::now().to_zoned(TimeZone::UTC).date();
    let made = issue(None, Renew::Both, &names, Lifetimes::LONG, today())?;
    let certificate = Arc::new(ReloadingCertificate::new(
        made.certificate().as_bytes(),
        made.key().as_bytes(),
        ORIGIN,
    )?);
    let (served, stop) = (Arc::clone(&certificate), shutdown.token());
    shutdown.spawn("certificate", async move {
        let mut current = made;
        loop {
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(LOOK_EVERY) => {} }
            let renew = plan(Some(&current), &names, Lifetimes::LONG, today());
            if renew == Renew::Nothing {
                continue;
            }
            let renewed = issue(Some(current.clone()), renew, &names, Lifetimes::LONG, today());
            let renewed = renewed.and_then(|made| {
                served.replace(made.certificate().as_bytes(), made.key().as_bytes(), ORIGIN)?;
                Ok(made)
            });
            match renewed {
                Ok(made) => current = made,
                Err(error) => {
                    tracing::warn!(error = crate::log::chain(&error), "cannot renew the certificate");
                }
            }
        }
    });
    Ok(certificate)
}
