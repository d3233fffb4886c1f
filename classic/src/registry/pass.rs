//! One pass over a CatalogSource: what it asks for is fetched, served and reported.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use olm_classic::catalog_source::{Listening, Served, Source, SourceKind, listen};
use olm_classic::cluster::{items, text};
use olm_classic::names;
use olm_platform::log::chain;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{Failure, FailureKind};
use serde_json::Value;

use super::Key;
use super::context::Context;
use super::listener::Listener;
use super::memory::{Given, Kept, Memory};
use super::pull::{ContentError, Puller, store_name};
use crate::objects::write::Actor;

/// The states of a connection, in the words of gRPC.
pub(super) const READY: &str = "READY";
pub(super) const CONNECTING: &str = "CONNECTING";
pub(super) const FAILED: &str = "TRANSIENT_FAILURE";
/// The shortest time between two questions for a newer image.
const SHORTEST_POLL: Duration = Duration::from_secs(1);
/// The pause until the newer version of an object is here.
const STALE: Duration = Duration::from_millis(200);

/// Works on a source.
pub(super) async fn pass(context: &Context, key: &Key) -> Outcome {
    let (namespace, name) = key;
    let cluster = context.base.store.snapshot();
    let found = cluster.get(names::CATALOG_SOURCE_KIND, namespace, name);
    context
        .metrics
        .count(cluster.of_kind(names::CATALOG_SOURCE_KIND).count());
    let Some(found) = found.filter(|found| text(found, "/metadata/deletionTimestamp").is_empty()) else {
        context.forget(key);
        return Outcome::Done;
    };
    let object = context.with_template(found).await;
    let source = Source {
        object: &object,
        cluster: &cluster,
    };
    let uid = text(&object, "/metadata/uid").to_owned();
    context.memories.with(key, |memory| {
        if memory.uid != uid {
            *memory = Memory {
                uid,
                ..Memory::default()
            };
        }
    });
    let outcome = match source.source_kind() {
        Ok(SourceKind::Image) => image(context, key, &source).await,
        Ok(SourceKind::Address | SourceKind::ConfigMap) | Err(_) => {
            context.memories.with(key, |memory| {
                memory.listener = None;
                memory.given = None;
                memory.fault = None;
            });
            Outcome::Done
        }
    };
    match report(context, key, &source, found).await {
        Ok(()) => outcome,
        Err(failure) => failed(key, &failure),
    }
}

fn failed((namespace, name): &Key, failure: &Failure) -> Outcome {
    if failure.kind == FailureKind::Conflict {
        return Outcome::After(STALE);
    }
    tracing::warn!(
        namespace,
        name,
        error = failure.message,
        "cannot report on a CatalogSource"
    );
    Outcome::Failed
}

/// Fetches the image of a source where that is due.
async fn image(context: &Context, key: &Key, source: &Source<'_>) -> Outcome {
    let reference = text(source.object, "/spec/image");
    let secrets = items(source.object, "/spec/secrets").filter_map(Value::as_str);
    let puller = Puller {
        namespace: key.0.clone(),
        secrets: secrets.map(str::to_owned).collect(),
    };
    if let Err(error) = serve(context, key).await {
        let fault = format!("cannot open a port for the registry: {error}");
        context.memories.with(key, |memory| memory.fault = Some(fault));
        return Outcome::Failed;
    }
    restore(context, key, reference, &puller);
    let due = next_poll(context, key, source);
    let is_current = context.memories.with(key, |memory| {
        let given = memory.given.as_ref();
        memory.fault.is_none()
            && given.is_some_and(|given| {
                given.is_confirmed && given.wanted == reference && given.puller == puller
            })
    });
    if is_current && due.is_none_or(|due| !due.is_zero()) {
        return due.map_or(Outcome::Done, Outcome::After);
    }
    if context.memories.with(key, |memory| memory.given.is_none()) {
        // Clients see that something is under way.
        if let Err(failure) = report(context, key, source, source.object).await
            && failure.kind != FailureKind::Conflict
        {
            tracing::debug!(error = failure.message, "cannot report on a CatalogSource");
        }
    }
    let fetched = fetch(context, key, reference, &puller).await;
    context
        .memories
        .with(key, |memory| memory.asked = Some(Timestamp::now()));
    match fetched {
        Ok(()) => {
            context.memories.with(key, |memory| memory.fault = None);
            next_poll(context, key, source).map_or(Outcome::Done, Outcome::After)
        }
        Err(ContentError::Stopped) => Outcome::Done,
        Err(error) => {
            let hint = if error.is_about_database() {
                format!(
                    "; or set the annotation {} to \"true\", so that a Pod of the image serves it",
                    names::REGISTRY_POD_ANNOTATION
                )
            } else {
                String::new()
            };
            let fault = format!("cannot serve catalog image {reference}: {}{hint}", chain(&error));
            tracing::warn!(
                namespace = key.0,
                name = key.1,
                error = fault,
                "a catalog is not served"
            );
            context.memories.with(key, |memory| memory.fault = Some(fault));
            Outcome::Failed
        }
    }
}

/// Opens the port of a source.
async fn serve(context: &Context, key: &Key) -> std::io::Result<()> {
    if context.memories.with(key, |memory| memory.listener.is_some()) {
        return Ok(());
    }
    let listener = Listener::open(&context.base.shutdown.token()).await?;
    context
        .memories
        .with(key, |memory| memory.listener = Some(listener));
    Ok(())
}

/// Serves what the source was given before the process was started, until the registry says what is newest.
fn restore(context: &Context, key: &Key, wanted: &str, puller: &Puller) {
    let (is_empty, uid) = context
        .memories
        .with(key, |memory| (memory.given.is_none(), memory.uid.clone()));
    let kept = context.memories.kept(key).filter(|kept| {
        is_empty && kept.uid == uid && kept.wanted == wanted && kept.secrets == puller.secrets
    });
    let Some(kept) = kept else { return };
    if let Some(content) = context
        .contents()
        .and_then(|contents| contents.stored(&kept.name))
    {
        let given = Given {
            wanted: wanted.to_owned(),
            puller: puller.clone(),
            content,
            name: kept.name,
            is_confirmed: false,
        };
        give(context, key, given);
    }
}

/// Serves content.
pub(super) fn give(context: &Context, key: &Key, given: Given) {
    let is_news = context.memories.with(key, |memory| {
        if let Some(listener) = &memory.listener {
            listener.slot.set(Some(Arc::clone(&given.content)));
        }
        let name = given.name.clone();
        let before = memory.given.replace(given);
        before.is_none_or(|before| before.name != name)
    });
    if is_news {
        context.publish(key);
    }
}

async fn fetch(context: &Context, key: &Key, reference: &str, puller: &Puller) -> Result<(), ContentError> {
    let contents = context.contents().ok_or(ContentError::Stopped)?;
    let resolved = contents.resolve(reference, puller).await?;
    let name = store_name(&resolved.pinned);
    let uid = context.memories.with(key, |memory| {
        // What was refused may be fetched again once it is another content.
        memory.refused.take_if(|(refused, _)| *refused != name);
        memory.uid.clone()
    });
    let known = context.memories.with(key, |memory| {
        let given = memory.given.as_ref();
        given
            .filter(|given| given.name == name && given.puller == *puller)
            .map(|given| Arc::clone(&given.content))
    });
    let catalog = if let Some(known) = known {
        known
    } else {
        if let Some((_, fault)) = context.memories.with(key, |memory| memory.refused.clone()) {
            return Err(ContentError::Refused(fault));
        }
        let fetched = contents.fetch(reference, &resolved).await;
        fetched.inspect_err(|error| {
            if error.is_about_content() {
                let refused = (name.clone(), chain(error));
                context
                    .memories
                    .with(key, |memory| memory.refused = Some(refused));
            }
        })?
    };
    let kept = Kept {
        uid,
        wanted: reference.to_owned(),
        secrets: puller.secrets.clone(),
        name: name.clone(),
    };
    context.memories.keep(key, kept);
    let given = Given {
        wanted: reference.to_owned(),
        puller: puller.clone(),
        content: catalog,
        name,
        is_confirmed: true,
    };
    give(context, key, given);
    Ok(())
}

/// The time until the registry is asked for a newer image, where it is; zero when that is due.
fn next_poll(context: &Context, key: &Key, source: &Source<'_>) -> Option<Duration> {
    let interval = Duration::try_from(source.poll_interval()?).unwrap_or(SHORTEST_POLL);
    let asked = context.memories.with(key, |memory| memory.asked);
    let Some(asked) = asked else {
        return Some(Duration::ZERO);
    };
    let passed = Duration::try_from(Timestamp::now().duration_since(asked)).unwrap_or_default();
    Some(interval.max(SHORTEST_POLL).saturating_sub(passed))
}

/// Writes what leads to the registry, and the status.
async fn report(context: &Context, key: &Key, source: &Source<'_>, live: &Value) -> Result<(), Failure> {
    let (connection, is_ready, fault, polled, port) = context.memories.with(key, |memory| {
        let is_ready = memory.given.is_some();
        let connection = match (is_ready, &memory.fault) {
            (true, _) => READY,
            (false, None) => CONNECTING,
            (false, Some(_)) => FAILED,
        };
        let port = memory.listener.as_ref().map(|listener| listener.port);
        (connection, is_ready, memory.fault.clone(), memory.asked, port)
    });
    let endpoint = port.and_then(|port| Some(SocketAddr::new(context.address?, port)));
    let served = Served {
        endpoint,
        is_ready,
        connection,
        fault: fault.as_deref(),
        polled,
    };
    let Listening {
        written,
        deleted,
        status,
    } = listen(source, &served, Timestamp::now());
    context.metrics.ready(key, is_ready);
    let writer = &context.base.writer;
    for object in &deleted {
        writer.delete(&Actor::Own, object).await?;
    }
    for object in &written {
        writer.write(&Actor::Own, object).await?;
    }
    let mut wanted = source.object.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    if wanted != *live {
        writer.write(&Actor::Own, &wanted).await?;
    }
    let is_news = context.memories.with(key, |memory| {
        let before = std::mem::replace(&mut memory.connection, connection.to_owned());
        before != connection
    });
    if is_news {
        context.publish(key);
    }
    Ok(())
}
