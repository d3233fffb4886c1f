//! The ConfigMap with the content of a source, followed for as long as the source names it.

use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::objects::kinds;

/// The state of a ConfigMap.
#[derive(Debug, Clone, Default)]
pub(super) enum ConfigMapState {
    /// Nothing yet.
    #[default]
    Nothing,
    /// There is none.
    Missing,
    /// It is this.
    Is(Arc<Value>),
}

/// A ConfigMap that is followed until this is dropped.
pub(super) struct WatchedMap {
    /// Its name.
    pub(super) name: String,
    known: Arc<Mutex<ConfigMapState>>,
    _stop: DropGuard,
}

impl WatchedMap {
    /// Follows a ConfigMap, and calls `changed` on every change.
    pub(super) fn open(
        client: Client,
        namespace: &str,
        name: &str,
        changed: impl Fn() + Send + 'static,
    ) -> Self {
        let (known, stop) = (Arc::<Mutex<ConfigMapState>>::default(), CancellationToken::new());
        let kind = kinds::CONFIG_MAP;
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind.api());
        let (own, token, watched) = (Arc::clone(&known), stop.clone(), name.to_owned());
        tokio::spawn(async move {
            let objects = watch_object(api, &watched).default_backoff();
            pin_mut!(objects);
            while let Some(Some(object)) = token.run_until_cancelled(objects.next()).await {
                match object {
                    Ok(object) => {
                        *own.lock() = object.map_or(ConfigMapState::Missing, |object| {
                            ConfigMapState::Is(Arc::new(as_known(&object)))
                        });
                        changed();
                    }
                    Err(error) => {
                        tracing::debug!(%error, name = watched, "the watch of a ConfigMap is interrupted");
                    }
                }
            }
        });
        Self {
            name: name.to_owned(),
            known,
            _stop: stop.drop_guard(),
        }
    }

    /// Its state.
    pub(super) fn known(&self) -> ConfigMapState {
        self.known.lock().clone()
    }
}

/// The object as rules read it.
fn as_known(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".to_owned(), kinds::CONFIG_MAP.kind.into());
        fields.insert("apiVersion".to_owned(), kinds::CONFIG_MAP.api_version().into());
    }
    value
}
