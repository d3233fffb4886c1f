//! Limits on concurrent pulls, in all and from each registry.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits on concurrent requests for images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of all registries.
    pub total: usize,
    /// Of each registry.
    pub each: usize,
}

/// Permits for concurrent requests.
#[derive(Debug)]
pub struct RequestPermits {
    all: Arc<Semaphore>,
    each: usize,
    registries: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A permit, until it is dropped.
pub type RequestPermit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl RequestPermits {
    /// At least one of each kind.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            all: Arc::new(Semaphore::new(bounds.total.max(1))),
            each: bounds.each.max(1),
            registries: Mutex::default(),
        }
    }

    /// Waits for a permit. A pull that waits for one registry takes no permit from the others. There is always one in
    /// the end.
    pub async fn take(&self, registry: &str) -> Option<RequestPermit> {
        let registry = {
            let mut registries = self.registries.lock();
            registries.retain(|_, permits| Arc::strong_count(permits) > 1);
            let permits = registries.entry(registry.to_owned());
            Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        let first = registry.acquire_owned().await.ok()?;
        let second = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some((first, second))
    }
}
