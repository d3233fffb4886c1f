//! Executes the plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::ClusterCatalogStatus;
use olm_api::names::{field_manager, finalizer, label, user};
use olm_api::text::escape;
use olm_image::{Pinned, Reference, Rules};
use olm_platform::log::chain;
use olm_platform::queue::{Outcome, Severity};
use olm_platform::write::patched_by;
use olm_serve::{Destination, Origin, Snapshot};
use serde_json::{Map, Value, json};

use super::Context;
use super::observe::{
    BlockedGeneration, CatalogState, Observed, RefusedContent, RunningFetch, ServedContent, WrittenObject,
};
use super::plan::{ContentAction, Plan, ReportedContent};
use super::report::{self, ContentFailure, ContentOutcome};
use crate::content::{CatalogImage, ContentError};
use crate::hint::hint;

/// A failed write to the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Labels and finalizers.
    #[error("error updating finalizers")]
    Metadata(#[source] Box<kube::Error>),
    #[error("error updating status")]
    Status(#[source] Box<kube::Error>),
}

/// The outcome after a failed write: a conflict retries soon, a deleted object is done.
pub(super) fn explain(name: &str, error: &WriteError) -> Outcome {
    let (WriteError::Metadata(cause) | WriteError::Status(cause)) = error;
    Outcome::overtaken(cause).unwrap_or_else(|| {
        tracing::warn!(
            catalog = name,
            error = chain(error),
            "cannot write to the API server"
        );
        Outcome::Failed
    })
}

/// Removes all content and state of a deleted object.
pub(super) async fn forget(context: &Context, name: &str) -> Outcome {
    context.states.forget(name);
    context.counts.forget(name);
    remove(context, name).await;
    Outcome::Done
}

async fn remove(context: &Context, name: &str) {
    let (store, catalog) = (Arc::clone(&context.store), name.to_owned());
    let removed = tokio::task::spawn_blocking(move || store.remove(&catalog)).await;
    if let Ok(Err(error)) = removed {
        // The catalog is no longer served, and the next garbage collection tries again.
        tracing::warn!(
            catalog = name,
            error = chain(&error),
            "cannot remove the catalog's files"
        );
    }
}

/// Writes the labels and finalizers that the other steps need.
pub(super) async fn prepare(
    context: &Context,
    observed: Observed,
    plan: &Plan,
) -> Result<Observed, WriteError> {
    let Some(metadata) = plan.metadata else {
        return Ok(observed);
    };
    let catalog = &observed.catalog;
    let mut patch = Map::new();
    if metadata.set_label {
        patch.insert(
            "labels".to_owned(),
            json!({ label::METADATA_NAME: catalog.name() }),
        );
    }
    if metadata.add_finalizer {
        let mut finalizers = catalog.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer::DELETE_SERVER_CACHE.to_owned());
        patch.insert("finalizers".to_owned(), json!(finalizers));
    }
    let catalog = write_metadata(context, catalog, patch).await?;
    Ok(Observed { catalog, ..observed })
}

async fn write_metadata(
    context: &Context,
    catalog: &ClusterCatalog,
    mut metadata: Map<String, Value>,
) -> Result<Arc<ClusterCatalog>, WriteError> {
    metadata.insert(
        "resourceVersion".to_owned(),
        json!(catalog.metadata.resource_version),
    );
    let api = Api::<ClusterCatalog>::all(context.client.clone());
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let written = api.patch(catalog.name(), &parameters(), &patch).await;
    let written = written.map_err(|error| WriteError::Metadata(Box::new(error)))?;
    Ok(remember(context, catalog, written))
}

/// Writes the status, then removes the finalizer if the plan requires it.
pub(super) async fn publish(
    context: &Context,
    observed: Observed,
    plan: &Plan,
    status: Option<ClusterCatalogStatus>,
) -> Result<(), WriteError> {
    let mut catalog = observed.catalog;
    if let Some(status) = status {
        // Null members are explicit, because a merge patch keeps absent members.
        let patch = json!({
            "metadata": { "resourceVersion": catalog.metadata.resource_version },
            "status": {
                "observedGeneration": status.observed_generation,
                "conditions": status.conditions,
                "resolvedSource": status.resolved_source,
                "urls": status.urls,
                "lastUnpacked": status.last_unpacked,
            },
        });
        let api = Api::<ClusterCatalog>::all(context.client.clone());
        let written = api
            .patch_status(catalog.name(), &parameters(), &Patch::Merge(patch))
            .await;
        let written = written.map_err(|error| WriteError::Status(Box::new(error)))?;
        let events = report::changes(&catalog, &written);
        catalog = remember(context, &catalog, written);
        context.events.publish(catalog.object_ref(&()), events);
    }
    if plan.release {
        let finalizers = catalog.metadata.finalizers.iter().flatten();
        let left: Vec<&String> = finalizers
            .filter(|f| *f != finalizer::DELETE_SERVER_CACHE)
            .collect();
        write_metadata(
            context,
            &catalog,
            Map::from_iter([("finalizers".to_owned(), json!(left))]),
        )
        .await?;
    }
    Ok(())
}

fn parameters() -> PatchParams {
    patched_by(field_manager::CATALOGD)
}

/// Keeps the written object until the watch has seen it, so that no pass starts from an older state.
fn remember(context: &Context, before: &ClusterCatalog, written: ClusterCatalog) -> Arc<ClusterCatalog> {
    let object = Arc::new(written);
    context.states.change(before.name(), |state| {
        let mut replaced: BTreeSet<String> = before.metadata.resource_version.iter().cloned().collect();
        // After two writes the watch may still deliver the state before the first.
        if let Some(earlier) = state.written.take()
            && earlier.object.metadata.resource_version == before.metadata.resource_version
        {
            replaced.extend(earlier.replaced);
        }
        state.written = Some(WrittenObject {
            object: Arc::clone(&object),
            replaced,
        });
    });
    object
}

/// Executes the action on content. Restored content becomes part of the observed facts.
pub(super) async fn content(
    context: &Context,
    observed: &mut Observed,
    planned: &ContentAction,
) -> ContentOutcome {
    let catalog = Arc::clone(&observed.catalog);
    let name = catalog.name();
    let (done, error) = match planned {
        ContentAction::Keep => return ContentOutcome::Nothing,
        ContentAction::Remove(why) => {
            context.states.change(name, CatalogState::forget_content);
            context.counts.forget(name);
            remove(context, name).await;
            return ContentOutcome::Removed(*why);
        }
        ContentAction::Block(message) => {
            return ContentOutcome::Failed(ContentFailure {
                message: message.clone(),
                hint: None,
                severity: Severity::Terminal,
            });
        }
        ContentAction::Retry(message) => {
            return ContentOutcome::Failed(ContentFailure {
                message: message.clone(),
                hint: None,
                severity: Severity::Transient,
            });
        }
        ContentAction::Resolve { reference, before } => {
            if let Some(claimed) = before {
                match copy(context, observed, claimed).await {
                    Ok(stored) => observed.stored = Some(stored),
                    Err(ContentError::Stopped) => return ContentOutcome::Superseded,
                    Err(error) => restore_failed(context, name, &error),
                }
            }
            match follow(context, observed, reference).await {
                Ok(done) => return done,
                Err(failed) => failed,
            }
        }
        ContentAction::Restore(claimed) => match copy(context, observed, claimed).await {
            Ok(stored) => {
                observed.stored = Some(stored.clone());
                return ContentOutcome::Restored(stored);
            }
            Err(ContentError::Stopped) => return ContentOutcome::Superseded,
            Err(error) => {
                restore_failed(context, name, &error);
                return ContentOutcome::Lost(message(&error));
            }
        },
    };
    if matches!(error, ContentError::Stopped) {
        return ContentOutcome::Superseded;
    }
    context.counts.failed(name, error.label());
    tracing::warn!(
        catalog = name,
        error = done.message,
        "cannot serve the wanted content"
    );
    if let (Severity::Terminal, ContentAction::Resolve { reference, .. }) = (done.severity, planned) {
        let blocked = BlockedGeneration {
            generation: catalog.generation(),
            reference: reference.clone(),
        };
        context.states.change(name, |state| state.blocked = Some(blocked));
    }
    ContentOutcome::Failed(done)
}

/// Counts and logs a failed restore.
fn restore_failed(context: &Context, name: &str, error: &ContentError) {
    context.counts.failed(name, error.label());
    tracing::warn!(
        catalog = name,
        error = chain(error),
        "cannot restore the content that status reports"
    );
}

/// Resolves the reference, and fetches the content if it is not stored.
async fn follow(
    context: &Context,
    observed: &Observed,
    reference: &str,
) -> Result<ContentOutcome, (ContentFailure, ContentError)> {
    let name = observed.catalog.name();
    let written = observed.catalog.spec.source.image.as_ref();
    let field = if written.is_some_and(|image| image.reference == reference) {
        "spec.source.image.ref".to_owned()
    } else {
        format!("annotation {}", user::CATALOG_IMAGE_TEMPLATE)
    };
    let failed = |error: ContentError, severity| {
        let hint = hint(&error, &format!("{field} ({})", escape(reference)));
        let message = message(&error);
        (
            ContentFailure {
                message,
                hint,
                severity,
            },
            error,
        )
    };
    let retry = |error| failed(error, Severity::Transient);
    let image = CatalogImage::parse(reference).map_err(|error| failed(error, Severity::Terminal))?;
    let rules = context
        .rules(&observed.catalog)
        .map_err(|message| failed(ContentError::Rules(message), Severity::Terminal))?;
    let stop = running(context, observed);
    let resolved = tokio::select! {
        resolved = context.contents.resolve(&image, rules.clone()) => resolved,
        () = stop.cancelled() => Err(ContentError::Stopped),
    };
    let pinned = resolved.map_err(retry)?;
    let text = pinned.to_string();
    context.states.change(name, |state| {
        state.polled = Some(Timestamp::now());
        state.asked = observed.catalog.annotation(user::POLL).map(str::to_owned);
    });
    if let Some(stored) = observed.stored.as_ref().filter(|stored| stored.resolved == text) {
        context
            .states
            .change(name, |state| state.confirmed = Some(reference.to_owned()));
        return Ok(ContentOutcome::Served(stored.clone()));
    }
    // A digest in the spec never changes its content; a tag can.
    let severity = if text == reference {
        Severity::Terminal
    } else {
        Severity::Transient
    };
    if let Some(refused) = observed
        .state
        .refused
        .as_ref()
        .filter(|refused| refused.resolved == text)
    {
        return Ok(ContentOutcome::Failed(ContentFailure {
            message: refused.message.clone(),
            hint: None,
            severity,
        }));
    }
    let origin = Origin {
        requested: reference.to_owned(),
        resolved: text,
    };
    match fetch(context, name, &pinned, (origin, None), rules, &stop).await {
        Ok(stored) => Ok(ContentOutcome::Served(stored)),
        Err(error) if error.is_about_content() => Err(failed(error, severity)),
        Err(error) => Err(retry(error)),
    }
}

/// Fetches the content that status reports.
async fn copy(
    context: &Context,
    observed: &Observed,
    claimed: &ReportedContent,
) -> Result<ServedContent, ContentError> {
    let mut pinned = Pinned::parse(&claimed.resolved).map_err(|source| ContentError::Reference {
        reference: claimed.resolved.clone(),
        source,
    })?;
    // If the spec contains a tag, mirrors for tags may also have the content, and a signature is about the tag.
    let source = observed.catalog.spec.source.image.as_ref();
    if let Some(Ok(reference)) = source.map(|image| Reference::parse(&image.reference)) {
        pinned = pinned.of_tag(&reference);
    }
    let origin = Origin {
        requested: claimed.requested.clone(),
        resolved: claimed.resolved.clone(),
    };
    let stop = running(context, observed);
    let name = observed.catalog.name();
    let rules = context.rules(&observed.catalog).map_err(ContentError::Rules)?;
    fetch(context, name, &pinned, (origin, claimed.modified), rules, &stop).await
}

/// Fetches and stores content. Remembers unusable content, so that it is not fetched again.
async fn fetch(
    context: &Context,
    name: &str,
    pinned: &Pinned,
    (origin, modified): (Origin, Option<Timestamp>),
    rules: Rules,
    stop: &tokio_util::sync::CancellationToken,
) -> Result<ServedContent, ContentError> {
    let began = Instant::now();
    let resolved = origin.resolved.clone();
    let destination = Destination {
        catalog: name.to_owned(),
        origin,
        modified,
        directory: None,
    };
    match context.contents.fetch(pinned, destination, rules, stop).await {
        Ok((snapshot, pull)) => {
            let record = snapshot.record();
            context.counts.unpacked(name, &pull, began.elapsed());
            context.counts.serves(record);
            context.states.change(name, |state| {
                state.refused = None;
                state.confirmed = None;
            });
            tracing::info!(
                catalog = name,
                image = resolved,
                bytes = record.bytes,
                blobs = record.blobs,
                findings = record.findings.total,
                took = ?began.elapsed(),
                "serving new content"
            );
            let stored = record.into();
            compress(context, snapshot);
            Ok(stored)
        }
        Err(error) => {
            if error.is_about_content() {
                let message = message(&error);
                context.states.change(name, |state| {
                    state.refused = Some(RefusedContent { resolved, message });
                });
            }
            Err(error)
        }
    }
}

/// Makes the derived files in the background, after the content is served. Retries for as long as this content is
/// served: a full disk may have space later.
pub(super) fn compress(context: &Context, snapshot: Arc<Snapshot>) {
    const LONGEST_PAUSE: Duration = Duration::from_mins(10);
    let (store, stop) = (Arc::clone(&context.store), context.stop.clone());
    tokio::spawn(async move {
        let catalog = snapshot.record().catalog.clone();
        // Not kept during the pauses: its files would use disk space after other content has replaced it.
        let wanted = Arc::downgrade(&snapshot);
        let mut work = snapshot;
        let mut pause = Duration::from_secs(5);
        loop {
            let halt = stop.clone();
            let done = tokio::task::spawn_blocking(move || work.prepare(|| !halt.is_cancelled())).await;
            let Ok(Err(error)) = done else {
                return;
            };
            tracing::warn!(
                catalog,
                error = chain(&error),
                "cannot store the compressed variant; serving uncompressed"
            );
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            work = match store.snapshot(&catalog) {
                Some(served) if std::ptr::eq(Arc::as_ptr(&served), wanted.as_ptr()) => served,
                _ => return,
            };
        }
    });
}

/// A token that another generation of the object, or the end of the process, cancels.
fn running(context: &Context, observed: &Observed) -> tokio_util::sync::CancellationToken {
    let stop = context.stop.child_token();
    let running = RunningFetch {
        generation: observed.catalog.generation(),
        stop: stop.clone(),
    };
    context
        .states
        .change(observed.catalog.name(), |state| state.running = Some(running));
    stop
}

/// The message of a failure, beginning with the stage as in the reference.
fn message(error: &ContentError) -> String {
    let stage = if error.is_about_storing() {
        "error storing fbc"
    } else {
        "source catalog content"
    };
    escape(&format!("{stage}: {}", chain(error))).into_owned()
}
