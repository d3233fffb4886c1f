//! Watches OperatorConditions, so that a change of an operator has an effect at once.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use olm_api::names::label;
use olm_platform::queue::Queue;
use parking_lot::Mutex;

use super::definition;
use olm_cluster::followed::{Followed, ObjectChange};

/// The number of deleted OperatorConditions for each extension. When it changes, the extension creates them again.
#[derive(Debug, Default)]
pub(crate) struct Deletions(Mutex<HashMap<String, u64>>);

impl Deletions {
    /// The number of the extension's OperatorConditions that were deleted.
    pub(crate) fn count(&self, extension: &str) -> u64 {
        self.0.lock().get(extension).copied().unwrap_or_default()
    }

    /// Forgets an extension that is gone.
    pub(crate) fn forget(&self, extension: &str) {
        self.0.lock().remove(extension);
    }

    fn add(&self, extension: &str) {
        let mut all = self.0.lock();
        let count = all.entry(extension.to_owned()).or_default();
        *count = count.wrapping_add(1);
    }
}

/// Adds to the queue the extensions whose OperatorConditions change. Never returns.
pub(crate) async fn watch(client: Client, deletions: Arc<Deletions>, queue: Queue<String>) {
    let api: Api<DynamicObject> = Api::all_with(client, &definition::resource());
    let config = watcher::Config::default().labels(label::OWNER_NAME);
    let events = watcher::watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut followed = Followed::default();
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "the watch of OperatorConditions is interrupted");
                continue;
            }
        };
        for ObjectChange { before, now, .. } in followed.take(&event, note) {
            if before == now {
                continue;
            }
            let is_gone = now.is_none();
            let Some((Some(owner), _)) = now.or(before) else {
                continue;
            };
            if is_gone {
                deletions.add(&owner);
            }
            queue.add(owner);
        }
    }
}

/// The extension of an OperatorCondition, and a mark that changes with it.
fn note(object: &DynamicObject) -> (Option<String>, Option<String>) {
    let owner = object.labels().get(label::OWNER_NAME).cloned();
    (owner, object.resource_version())
}
