//! The time from a ClusterCatalog to its first byte.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::ClusterCatalog;
use serde_json::json;

use super::{Figures, catalog, process};
use crate::world::{World, eventually};

const LIMIT: Duration = Duration::from_secs(120);

/// Pushes the catalog and has a catalogd that has just started unpack it, once for each number of cores; the last one
/// stays.
pub(super) async fn measure(
    world: &mut World,
    name: &str,
    blobs: &str,
    cores: &[usize],
    figures: &mut Figures,
) -> Result<()> {
    let reference = world.push_catalog(&format!("{name}:latest"), blobs).await?;
    let (last, others) = cores.split_last().context("no number of cores is given")?;
    for cores in others {
        once(world, name, blobs, &reference, *cores, figures).await?;
        remove(world, name).await?;
    }
    once(world, name, blobs, &reference, *last, figures).await
}

/// Removes the catalog.
pub(super) async fn remove(world: &World, name: &str) -> Result<()> {
    let catalogs = Api::<ClusterCatalog>::all(world.client.clone());
    catalogs.delete(name, &DeleteParams::default()).await?;
    eventually("the catalog is gone", LIMIT, async || {
        Ok(catalogs.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

/// Applies the catalog and waits for the first byte that is served.
async fn once(
    world: &mut World,
    name: &str,
    blobs: &str,
    reference: &str,
    cores: usize,
    figures: &mut Figures,
) -> Result<()> {
    world.catalogd.stop().await?;
    world.start_catalogd()?;
    world.catalogd.ready().await?;
    let pid = world.catalogd.pid().context("catalogd does not run")?;
    process::confine(pid, cores)?;
    process::forget_peak(pid)?;
    let before = process::resident(pid)?;
    let used = process::used(pid)?;
    let object = json!({
        "apiVersion": olm_api::names::API_VERSION,
        "kind": olm_api::names::CLUSTER_CATALOG,
        "metadata": { "name": name },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    });
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    let url = all(world, name);
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
    let peak = process::peak(pid)?;
    figures.add(
        &format!(
            "{name} ({}), cores: {cores}: applied to first served byte",
            catalog::describe(blobs)
        ),
        &format!("{:.2} s", elapsed.as_secs_f64()),
    );
    let above = |peak: u64| {
        let above = process::mebibytes(peak.saturating_sub(before));
        format!("{} ({above} above what it held before)", process::mebibytes(peak))
    };
    figures.add(
        &format!("{name}, cores: {cores}: peak memory of catalogd until then"),
        &above(peak),
    );
    // The variants for clients that take compressed answers follow.
    let zstd = client.get(&url).header("Accept-Encoding", "zstd");
    eventually("the last variant is made", LIMIT, async || {
        let request = zstd.try_clone().context("a request without a body")?;
        let answer = request.send().await?;
        Ok(answer.headers().get("content-encoding").map(drop))
    })
    .await?;
    figures.add(
        &format!("{name}, cores: {cores}: until every variant is made"),
        &format!("{:.2} s", begin.elapsed().as_secs_f64()),
    );
    figures.add(
        &format!("{name}, cores: {cores}: peak memory of catalogd until then"),
        &above(process::peak(pid)?),
    );
    let used = process::used(pid)?.saturating_sub(used);
    figures.add(
        &format!("{name}, cores: {cores}: processor time of catalogd until then"),
        &format!("{:.2} s", used.as_secs_f64()),
    );
    Ok(())
}

/// The URL of the whole catalog.
pub(super) fn all(world: &World, catalog: &str) -> String {
    format!("{}/catalogs/{catalog}/api/v1/all", world.catalogs)
}
