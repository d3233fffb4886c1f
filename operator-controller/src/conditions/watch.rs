//! What an operator says is heard at once.

use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use olm_api::names::label;
use olm_platform::queue::Queue;

use super::definition;
use crate::extension::context::Context;
use olm_cluster::followed::{Followed, Told};

/// Adds to the queue the extensions whose OperatorConditions change. Never returns.
pub async fn watch(context: Arc<Context>, queue: Queue<String>) {
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &definition::resource());
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
        for Told { before, now, .. } in followed.take(&event, note) {
            if before == now {
                continue;
            }
            let is_gone = now.is_none();
            let Some((Some(owner), _)) = now.or(before) else {
                continue;
            };
            if is_gone && context.extension(&owner).is_some() {
                context.memorise(&owner, |memory| memory.settled = None);
            }
            queue.add(owner);
        }
    }
}

/// The extension that it belongs to, and a mark that differs after every change.
fn note(object: &DynamicObject) -> (Option<String>, Option<String>) {
    let owner = object.labels().get(label::OWNER_NAME).cloned();
    (owner, object.resource_version())
}
