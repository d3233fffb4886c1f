//! Verification of content that an earlier process stored: served at once, verified afterwards.

use std::sync::Arc;

use olm_platform::log::chain;

use super::{Context, act};

/// Compares stored content with its digests. Stops serving damaged content and fetches it again; creates missing
/// compressed variants.
pub(crate) async fn verify(context: Arc<Context>) {
    for snapshot in context.store.snapshots() {
        context.counts.serves(snapshot.record());
        let (read, stop) = (Arc::clone(&snapshot), context.stop.clone());
        let verified = tokio::task::spawn_blocking(move || read.verify(|| !stop.is_cancelled())).await;
        let catalog = &snapshot.record().catalog;
        match verified {
            Ok(Ok(())) => act::compress(&context, snapshot),
            Ok(Err(error)) => {
                tracing::error!(
                    catalog,
                    error = chain(&error),
                    "stored content is damaged; fetching it again"
                );
                context.store.reject(&snapshot);
                context.queue.add(catalog.clone());
            }
            Err(_) => return,
        }
    }
    context.stop.cancelled().await;
}
