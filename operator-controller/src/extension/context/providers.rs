//! Certificate providers of the cluster, cached for a moment because every run needs them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::certificates::choose::{self, Providers};
use olm_cluster::discover::Discovery;
use parking_lot::Mutex;

/// The time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(10);

/// The providers that the cluster has and the feature gates allow.
pub(crate) struct CertificateProviders {
    discovery: Arc<Discovery>,
    allowed: Providers,
    cached: Mutex<Option<(Instant, Providers)>>,
}

impl CertificateProviders {
    /// A cache for the allowed providers.
    pub(crate) fn new(discovery: Arc<Discovery>, allowed: Providers) -> Self {
        Self {
            discovery,
            allowed,
            cached: Mutex::default(),
        }
    }

    /// The allowed providers that the cluster serves.
    ///
    /// # Errors
    /// The kinds of the cluster are unknown.
    pub(crate) async fn served(&self) -> Result<Providers, kube::Error> {
        let lock = || self.cached.lock();
        let cached = lock().filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, served)) = cached {
            return Ok(served);
        }
        let served = choose::served(&self.discovery, self.allowed).await?;
        *lock() = Some((Instant::now(), served));
        Ok(served)
    }
}
