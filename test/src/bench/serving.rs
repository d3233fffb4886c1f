//! The speed of serving a catalog.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use olm_api::serving::percent_encode;
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
    pages(world, asked, cores, figures).await?;
    figures.add(
        &format!("serving, cores: {cores}: peak memory of catalogd"),
        &process::mebibytes(process::peak(pid)?),
    );
    Ok(())
}

/// How often a page is requested of which there is only one.
const REPETITIONS: usize = 20;

/// The times of the pages of each kind, one after the other over one connection.
async fn pages(world: &World, asked: &RequestedPackage, cores: usize, figures: &mut Figures) -> Result<()> {
    let client = connection()?;
    let catalog = &asked.catalog;
    let packages = named(
        &client,
        &format!(
            "{}/catalogs/{catalog}/api/v1/metas?schema=olm.package",
            world.catalogs
        ),
    )
    .await?;
    let package = |name: &str| format!("/packages/{catalog}/{}", percent_encode(name));
    let of_each = |rest: &str| -> Vec<String> { packages.iter().map(|name| package(name) + rest).collect() };
    let word = packages.first().context("the catalog has no package")?;
    let word = word.split('-').next().unwrap_or(word);
    let again = |path: &str| vec![path.to_owned(); REPETITIONS];
    let first = text(&client, &format!("{}/", world.catalogs)).await?;
    let mut versions = Vec::new();
    for name in &packages {
        let list = text(&client, &format!("{}{}/versions", world.catalogs, package(name))).await?;
        versions.extend(addresses(&list, &format!("{}/versions/", package(name))));
    }
    for (kind, paths) in [
        ("`/`", again("/")),
        ("search", again(&format!("/?q={}", percent_encode(word)))),
        (
            "search in a facet",
            again(&format!("/?catalog={catalog}&q={}", percent_encode(word))),
        ),
        ("each facet of `/`", addresses(&first, "/?")),
        ("each package, with its update graph", of_each("")),
        ("the versions of each package", of_each("/versions")),
        ("each version that these list", versions),
        ("the feed of each package", of_each("/feed.xml")),
    ] {
        let mut times = Vec::new();
        for path in paths {
            let begun = Instant::now();
            ask(
                &client,
                &format!("{}{path}", world.catalogs),
                &RequestHeaders::default(),
            )
            .await?;
            times.push(begun.elapsed());
        }
        let times = spread(times).with_context(|| format!("there is no page: {kind}"))?;
        figures.add(&format!("{catalog}: pages, {kind}, cores: {cores}"), &times);
    }
    Ok(())
}

/// The names of the blobs of an answer.
async fn named(client: &reqwest::Client, url: &str) -> Result<Vec<String>> {
    let lines = text(client, url).await?;
    let name = |line: &str| -> Result<String> {
        let blob: Value = serde_json::from_str(line)?;
        Ok(blob["name"].as_str().context("a blob has no name")?.to_owned())
    };
    lines.lines().map(name).collect()
}

async fn text(client: &reqwest::Client, url: &str) -> Result<String> {
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}

/// The addresses of a page that begin like this, each once.
fn addresses(page: &str, prefix: &str) -> Vec<String> {
    let links = page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let links = links.filter(|link| link.starts_with(prefix));
    let links: BTreeSet<String> = links.map(|link| link.replace("&amp;", "&")).collect();
    links.into_iter().collect()
}

/// The median and the longest of some times.
fn spread(mut times: Vec<Duration>) -> Option<String> {
    times.sort_unstable();
    let (median, slowest) = times.get(times.len() / 2).zip(times.last())?;
    Some(format!(
        "{} requests, median {}, slowest {}",
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
    fn the_links_of_a_page_are_found_once() {
        let page = r#"<a href="/?q=a&amp;api=K">x</a><a href="/style.css"><a href="/?q=a&amp;api=K">"#;
        assert_eq!(addresses(page, "/?"), ["/?q=a&api=K"]);
        let times = [3, 1, 2].map(Duration::from_millis).to_vec();
        let expected = "3 requests, median 2.00 ms, slowest 3.00 ms";
        assert_eq!(spread(times).as_deref(), Some(expected));
        assert_eq!(spread(Vec::new()), None);
    }

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
