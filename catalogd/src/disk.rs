//! The disk usage of the cache.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::metrics::CatalogMetrics;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_mins(1);
/// The cache has fewer levels of directories than this.
const DEPTH: usize = 8;

/// Measures the cache directory at intervals, until the process stops.
pub(crate) async fn watch(directory: std::path::PathBuf, counts: CatalogMetrics, stop: CancellationToken) {
    loop {
        let looked_at = directory.clone();
        if let Ok(used) = tokio::task::spawn_blocking(move || used(&looked_at, DEPTH)).await {
            counts.uses_disk(used);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The bytes of the files below a directory. Files that disappear meanwhile are skipped.
fn used(directory: &Path, depth: usize) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() && depth > 0 => used(&entry.path(), depth - 1),
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => 0,
        })
        .sum()
}
