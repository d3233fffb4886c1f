//! From a ClusterCatalog to its first byte.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{Figures, process};
use crate::world::{World, eventually};

/// The name of the catalog under measurement.
pub(super) const CATALOG: &str = "bench";
const LIMIT: Duration = Duration::from_secs(60);

/// Pushes the catalog, applies it, and waits for the first byte that is served.
pub(super) async fn measure(world: &World, blobs: &str, figures: &mut Figures) -> Result<()> {
    let reference = world.push_catalog("bench-catalog:latest", blobs).await?;
    let pid = world.catalogd.pid().context("catalogd does not run")?;
    process::forget_peak(pid)?;
    let before = process::resident(pid)?;
    let object = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": { "name": CATALOG },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    });
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    let url = all(world);
    let begin = Instant::now();
    world.apply(&[object])?;
    eventually("the catalog is served", LIMIT, async || {
        let mut answer = client.get(&url).send().await?;
        Ok(if answer.status().is_success() {
            answer.chunk().await?
        } else {
            None
        })
    })
    .await?;
    let elapsed = begin.elapsed();
    figures.add(
        "unpack: applied to first served byte",
        &format!("{:.2} s", elapsed.as_secs_f64()),
    );
    // The variants for clients that take compressed answers follow.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let peak = process::peak(pid)?;
    figures.add("unpack: peak memory of catalogd", &process::mebibytes(peak));
    figures.add(
        "unpack: peak above what catalogd held before",
        &process::mebibytes(peak.saturating_sub(before)),
    );
    Ok(())
}

/// Where the whole catalog is served.
pub(super) fn all(world: &World) -> String {
    format!("{}/catalogs/{CATALOG}/api/v1/all", world.catalogs)
}
