//! What an earlier process left on the disk: served at once, verified afterwards.

use std::sync::Arc;

use olm_platform::log::chain;

use super::{Context, act};

/// Reads what the store holds and compares it with its digests. What is damaged is not served any longer and fetched anew;
/// what lacks its compressed variant gets it.
pub(crate) async fn verify(context: Arc<Context>) {
    for snapshot in context.store.snapshots() {
        context.counts.serves(snapshot.record());
        let (read, stop) = (Arc::clone(&snapshot), context.stop.clone());
        let verdict = tokio::task::spawn_blocking(move || read.verify(|| !stop.is_cancelled())).await;
        let catalog = &snapshot.record().catalog;
        match verdict {
            Ok(Ok(())) => act::compress(&context, snapshot),
            Ok(Err(error)) => {
                tracing::error!(
                    catalog,
                    error = chain(&error),
                    "stored content is damaged and fetched anew"
                );
                context.store.reject(&snapshot);
                context.queue.add(catalog.clone());
            }
            Err(_) => return,
        }
    }
    context.stop.cancelled().await;
}
