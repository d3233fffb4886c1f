//! Certificate providers of the cluster, cached for a moment because every run needs them.

use std::sync::Arc;
use std::time::Duration;

use crate::certificates::choose::{self, Providers};
use olm_cluster::discover::Discovery;
use olm_platform::fresh::Fresh;

/// The time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(10);

/// The providers that the cluster has and the feature gates allow.
pub(crate) struct CertificateProviders {
    discovery: Arc<Discovery>,
    allowed: Providers,
    cached: Fresh<Providers>,
}

impl CertificateProviders {
    /// A cache for the allowed providers.
    pub(crate) fn new(discovery: Arc<Discovery>, allowed: Providers) -> Self {
        Self {
            discovery,
            allowed,
            cached: Fresh::new(FRESH),
        }
    }

    /// The allowed providers that the cluster serves.
    ///
    /// # Errors
    /// The kinds of the cluster are unknown.
    pub(crate) async fn served(&self) -> Result<Providers, kube::Error> {
        let read = async || choose::served(&self.discovery, self.allowed).await;
        self.cached.get_or(read).await
    }
}
