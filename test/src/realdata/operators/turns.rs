//! Packages that may be on one cluster at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::read::Package;

/// The packages that are on the cluster.
#[derive(Default)]
pub(in crate::realdata) struct Turns {
    /// Names at cluster scope that only one package may have at a time.
    names: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Held for writing by a package whose webhooks hold up others.
    calm: Arc<RwLock<()>>,
}

/// The turn of a package, until it is dropped.
pub(in crate::realdata) struct Turn {
    _names: Vec<OwnedMutexGuard<()>>,
    _shared: Option<OwnedRwLockReadGuard<()>>,
    _alone: Option<OwnedRwLockWriteGuard<()>>,
}

impl Turns {
    /// Waits until no other package has a name of this one, or holds it up.
    pub(in crate::realdata) async fn take(&self, package: &Package) -> Turn {
        let mut names = Vec::new();
        // In their order, so that no two wait for each other.
        for name in &package.names {
            let lock = {
                let mut known = self.names.lock().await;
                Arc::clone(known.entry(name.clone()).or_default())
            };
            names.push(lock.lock_owned().await);
        }
        let calm = Arc::clone(&self.calm);
        let (shared, alone) = if package.holds_up_others {
            (None, Some(calm.write_owned().await))
        } else {
            (Some(calm.read_owned().await), None)
        };
        Turn {
            _names: names,
            _shared: shared,
            _alone: alone,
        }
    }
}
