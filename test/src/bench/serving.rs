//! The speed of serving a catalog.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqwest::StatusCode;
use serde_json::Value;

use super::unpack::all;
use super::{Figures, RequestedPackage, process};
use crate::world::World;

const DURATION: Duration = Duration::from_secs(4);

/// The headers of a request, which decide whether the answer has content.
#[derive(Debug, Clone, Default)]
struct RequestHeaders {
    encoding: Option<&'static str>,
    known: Option<String>,
}

/// Requests the whole catalog and one package, over one connection and over many.
pub(super) async fn measure(
    world: &World,
    asked: &RequestedPackage,
    cores: usize,
    figures: &mut Figures,
) -> Result<()> {
    let pid = world.catalogd.pid().context("catalogd does not run")?;
    process::forget_peak(pid)?;
    let url = all(world, &asked.catalog);
    let metas = format!(
        "{}/catalogs/{}/api/v1/metas?package={}",
        world.catalogs, asked.catalog, asked.package
    );
    let package = format!("`metas` of a package ({} KB)", asked.size / 1000);
    let package_gzip = format!("{package}, gzip");
    let coded = |encoding| RequestHeaders {
        encoding: Some(encoding),
        ..RequestHeaders::default()
    };
    let unchanged = RequestHeaders {
        known: Some(tag(&url).await?),
        ..RequestHeaders::default()
    };
    let questions = [
        ("`all`", &url, RequestHeaders::default()),
        ("`all`, gzip", &url, coded("gzip")),
        ("`all`, zstd", &url, coded("zstd")),
        ("`all`, not modified", &url, unchanged),
        (package.as_str(), &metas, RequestHeaders::default()),
        (package_gzip.as_str(), &metas, coded("gzip")),
    ];
    for (what, url, terms) in questions {
        for connections in [1, 16, 128] {
            let load = load(url, &terms, connections)
                .await
                .with_context(|| what.to_owned())?;
            figures.add(
                &format!(
                    "{}: {what}, cores: {cores}, connections: {connections}",
                    asked.catalog
                ),
                &load.to_string(),
            );
        }
    }
    figures.add(
        &format!("{}: the page of each package, cores: {cores}", asked.catalog),
        &pages(world, asked).await?,
    );
    figures.add(
        &format!("serving, cores: {cores}: peak memory of catalogd"),
        &process::mebibytes(process::peak(pid)?),
    );
    Ok(())
}

/// The time of the pages of all packages, one after the other over one connection.
async fn pages(world: &World, asked: &RequestedPackage) -> Result<String> {
    let client = connection()?;
    let url = format!(
        "{}/catalogs/{}/api/v1/metas?schema=olm.package",
        world.catalogs, asked.catalog
    );
    let packages = client.get(&url).send().await?.error_for_status()?.text().await?;
    let mut times = Vec::new();
    for line in packages.lines() {
        let package: Value = serde_json::from_str(line)?;
        let name = package["name"].as_str().context("a package has no name")?;
        let begun = Instant::now();
        ask(
            &client,
            &format!("{}/packages/{}/{name}", world.catalogs, asked.catalog),
            &RequestHeaders::default(),
        )
        .await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (median, slowest) = (times.get(times.len() / 2), times.last());
    let (median, slowest) = median.zip(slowest).context("the catalog has no package")?;
    Ok(format!(
        "{} pages, median {}, slowest {}",
        times.len(),
        milliseconds(*median),
        milliseconds(*slowest)
    ))
}

/// The entity tag of the plain answer.
async fn tag(url: &str) -> Result<String> {
    let answer = connection()?.head(url).send().await?.error_for_status()?;
    let tag = answer.headers().get("etag").context("there is no entity tag")?;
    Ok(tag.to_str()?.to_owned())
}

fn connection() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .http1_only()
        .pool_max_idle_per_host(1)
        .build()?)
}

/// The results of all clients.
struct Load {
    elapsed: Duration,
    bytes: u64,
    /// Sorted.
    latencies: Vec<Duration>,
    /// Connections that the server has closed: a client that opens them faster than it closes them holds more than it
    /// may.
    lost: usize,
}

impl std::fmt::Display for Load {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let [requests, bytes] = [self.latencies.len() as f64, self.bytes as f64];
        let seconds = self.elapsed.as_secs_f64();
        write!(
            formatter,
            "{:.0} req/s, {:.1} MB/s, p50 {}, p99 {}",
            requests / seconds,
            bytes / seconds / 1e6,
            milliseconds(self.percentile(50)),
            milliseconds(self.percentile(99)),
        )?;
        if self.lost > 0 {
            write!(formatter, ", {} connections lost", self.lost)?;
        }
        Ok(())
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

impl Load {
    /// The latency that this many of a hundred requests did not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.latencies.len() * percent).div_ceil(100);
        self.latencies
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

async fn load(url: &str, terms: &RequestHeaders, connections: usize) -> Result<Load> {
    let clients = (0..connections).map(|_| warm(url, terms));
    let clients = futures::future::try_join_all(clients).await?;
    let begin = Instant::now();
    let clients: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(again(client, url.to_owned(), terms.clone(), begin + DURATION)))
        .collect();
    let mut load = Load {
        elapsed: Duration::ZERO,
        bytes: 0,
        latencies: Vec::new(),
        lost: 0,
    };
    for client in clients {
        let seen = client.await??;
        load.bytes += seen.bytes;
        load.latencies.extend(seen.latencies);
        load.lost += seen.lost;
    }
    load.elapsed = begin.elapsed();
    load.latencies.sort_unstable();
    Ok(load)
}

/// A client with a completed first handshake, which is not measured.
async fn warm(url: &str, terms: &RequestHeaders) -> Result<reqwest::Client> {
    let client = connection()?;
    let head = RequestHeaders {
        encoding: terms.encoding,
        known: Some("*".to_owned()),
    };
    ask(&client, url, &head).await?;
    Ok(client)
}

/// The results of one client.
#[derive(Default)]
struct ClientStats {
    bytes: u64,
    latencies: Vec<Duration>,
    lost: usize,
}

/// One client that repeats requests over one connection at a time. If a connection is lost, the request is repeated,
/// and its latency includes both attempts.
async fn again(
    client: reqwest::Client,
    url: String,
    terms: RequestHeaders,
    end: Instant,
) -> Result<ClientStats> {
    let mut seen = ClientStats::default();
    while Instant::now() < end {
        let begin = Instant::now();
        let asked = match ask(&client, &url, &terms).await {
            Err(error) if is_lost(&error) => {
                seen.lost += 1;
                ask(&client, &url, &terms).await
            }
            asked => asked,
        };
        seen.bytes += asked?;
        seen.latencies.push(begin.elapsed());
    }
    Ok(seen)
}

/// Whether a request failed because its connection was closed.
fn is_lost(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|cause: &std::io::Error| cause.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Sends one request and returns the size of the answer in bytes.
async fn ask(client: &reqwest::Client, url: &str, terms: &RequestHeaders) -> Result<u64> {
    let mut request = client.get(url);
    if let Some(encoding) = terms.encoding {
        request = request.header("Accept-Encoding", encoding);
    }
    if let Some(known) = &terms.known {
        request = request.header("If-None-Match", known);
    }
    let mut answer = request.send().await?.error_for_status()?;
    let expected = terms.known.is_some().then_some(StatusCode::NOT_MODIFIED);
    if answer.status() != expected.unwrap_or(StatusCode::OK) {
        bail!("answered with {}", answer.status());
    }
    let found = answer
        .headers()
        .get("content-encoding")
        .map(|value| value.as_bytes().to_vec());
    if expected.is_none() && found.as_deref() != terms.encoding.map(str::as_bytes) {
        bail!("asked for encoding {:?}, got {found:?}", terms.encoding);
    }
    let mut bytes = 0;
    while let Some(chunk) = answer.chunk().await? {
        bytes += chunk.len() as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_latencies_that_occurred() {
        let load = |count: u64| Load {
            elapsed: Duration::from_secs(1),
            bytes: 0,
            latencies: (1..=count).map(Duration::from_millis).collect(),
            lost: 0,
        };
        assert_eq!(load(200).percentile(50), Duration::from_millis(100));
        assert_eq!(load(200).percentile(99), Duration::from_millis(198));
        assert_eq!(load(1).percentile(99), Duration::from_millis(1));
        assert_eq!(load(0).percentile(50), Duration::ZERO);
    }
}
