//! Report of a pass over a source: the way to its registry, and its status.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use olm_classic::catalog_source::{Listening, ServedRegistry, Source, listen};
use olm_platform::log::chain;
use olm_rollout::failure::RequestFailure;
use serde_json::Value;

use super::context::Context;
use super::remote::State;
use super::state::{ServedCatalog, TrackedSource};
use crate::objects::write::Actor;
use crate::registry::Key;
use crate::registry::pull::ContentError;
use crate::registry::server::Listener;

/// The states of a connection, in the words of gRPC.
pub(super) const READY: &str = "READY";
pub(super) const CONNECTING: &str = "CONNECTING";
pub(super) const FAILED: &str = "TRANSIENT_FAILURE";

/// The fault of an image that is not served. It is logged.
pub(super) fn fault((namespace, name): &Key, image: &str, error: &ContentError) -> String {
    let fault = format!("cannot serve catalog image {image}: {}", chain(error));
    tracing::warn!(namespace, name, error = fault, "a catalog is not served");
    fault
}

/// Opens the port of a source.
pub(super) async fn serve(context: &Context, key: &Key) -> std::io::Result<()> {
    if context.sources.with(key, |source| source.listener.is_some()) {
        return Ok(());
    }
    let listener = Listener::open(&context.base.shutdown.token()).await?;
    context
        .sources
        .with(key, |source| source.listener = Some(listener));
    Ok(())
}

/// Serves content.
pub(super) fn serve_catalog(context: &Context, key: &Key, served: ServedCatalog) {
    let is_news = context.sources.with(key, |source| {
        if let Some(listener) = &source.listener {
            listener.slot.set(Some(Arc::clone(&served.content)));
        }
        let name = served.name.clone();
        let before = source.served.replace(served);
        before.is_none_or(|before| before.name != name)
    });
    if is_news {
        context.publish(key);
    }
}

/// State of a source for its clients.
struct SourceState {
    connection: &'static str,
    fault: Option<String>,
    polled: Option<Timestamp>,
    content: Option<String>,
    port: Option<u16>,
}

impl SourceState {
    fn of(source: &TrackedSource) -> Self {
        let (connection, fault) = match source.remote.as_ref().map(|remote| remote.state()) {
            Some(State::Ready(_)) => (READY, None),
            Some(State::Connecting) => (CONNECTING, None),
            Some(State::Failed(error)) => (FAILED, Some(error)),
            None => {
                let connection = match (&source.served, &source.fault) {
                    (Some(_), _) => READY,
                    (None, None) => CONNECTING,
                    (None, Some(_)) => FAILED,
                };
                (connection, source.fault.clone())
            }
        };
        Self {
            connection,
            fault,
            polled: source.asked,
            content: source.served.as_ref().map(|served| served.name.clone()),
            port: source.listener.as_ref().map(|listener| listener.port),
        }
    }
}

/// Writes the objects that lead to the registry, and the status.
pub(super) async fn report(
    context: &Context,
    key: &Key,
    source: &Source<'_>,
    live: &Value,
) -> Result<(), RequestFailure> {
    let state = context.sources.with(key, |source| SourceState::of(source));
    let (connection, is_ready) = (state.connection, state.connection == READY);
    let endpoint = state
        .port
        .and_then(|port| Some(SocketAddr::new(context.address?, port)));
    let served = ServedRegistry {
        endpoint,
        is_ready,
        content: state.content.as_deref(),
        connection,
        fault: state.fault.as_deref(),
        polled: state.polled,
    };
    let Listening {
        written,
        deleted,
        status,
    } = listen(source, &served, Timestamp::now());
    let writer = context.writer();
    for object in &deleted {
        writer.delete(&Actor::Own, object).await?;
    }
    for object in &written {
        writer.write(&Actor::Own, object).await?;
    }
    replace_status(context, key, source.object, live, status, connection).await
}

/// Writes the status where it is news. `object` is the source as the pass wants it, `live` as it is stored.
pub(super) async fn replace_status(
    context: &Context,
    key: &Key,
    object: &Value,
    live: &Value,
    status: Value,
    connection: &str,
) -> Result<(), RequestFailure> {
    context.metrics.ready(key, connection == READY);
    let mut wanted = object.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    if wanted != *live {
        context.writer().write(&Actor::Own, &wanted).await?;
    }
    let is_news = context.sources.with(key, |source| {
        let before = std::mem::replace(&mut source.connection, connection.to_owned());
        before != connection
    });
    if is_news {
        context.publish(key);
    }
    Ok(())
}

/// Has a pass over the source made.
pub(super) fn waking(context: &Arc<Context>, key: &Key) -> impl Fn() + Send + Sync + use<> {
    let (context, key) = (Arc::downgrade(context), key.clone());
    move || {
        if let Some(context) = context.upgrade() {
            context.queue.add(key.clone());
        }
    }
}

/// Has a pass over the source made, and says that the connection to its registry changed.
pub(super) fn dialled(context: &Arc<Context>, key: &Key) -> impl Fn() + Send + Sync + use<> {
    let (wake, context, key) = (waking(context, key), Arc::downgrade(context), key.clone());
    move || {
        if let Some(context) = context.upgrade() {
            context.publish(&key);
        }
        wake();
    }
}
