//! What an operator says is heard at once.

use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use olm_api::names::label;
use olm_platform::queue::Queue;

use super::definition;
use crate::extension::context::Context;

/// Adds to the queue the extensions whose OperatorConditions change. Never returns.
pub async fn watch(context: Arc<Context>, queue: Queue<String>) {
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &definition::resource());
    let config = watcher::Config::default().labels(label::OWNER_NAME);
    let events = watcher::watcher(api, config).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let (object, deleted) = match event {
            Ok(Event::Apply(object)) => (object, false),
            Ok(Event::Delete(object)) => (object, true),
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => continue,
            Err(error) => {
                tracing::debug!(%error, "the watch of OperatorConditions is interrupted");
                continue;
            }
        };
        let labels = object.metadata.labels.unwrap_or_default();
        let Some(owner) = labels.get(label::OWNER_NAME) else {
            continue;
        };
        if deleted && context.extension(owner).is_some() {
            context.memorise(owner, |memory| memory.settled = None);
        }
        queue.add(owner.clone());
    }
}
