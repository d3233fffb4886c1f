//! How fast a catalog is served.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::unpack::{CATALOG, all};
use super::{Figures, process};
use crate::world::World;

const DURATION: Duration = Duration::from_secs(4);

/// Asks for everything and for one package, over one connection and over many.
pub(super) async fn measure(world: &World, package: &str, figures: &mut Figures) -> Result<()> {
    let pid = world.catalogd.pid().context("catalogd does not run")?;
    process::forget_peak(pid)?;
    let metas = format!(
        "{}/catalogs/{CATALOG}/api/v1/metas?package={package}",
        world.catalogs
    );
    let questions = [
        ("`all`", all(world), None),
        ("`all`, gzip", all(world), Some("gzip")),
        ("`metas` of a package", metas, None),
    ];
    for (what, url, encoding) in questions {
        for connections in [1, 16] {
            let load = load(&url, encoding, connections)
                .await
                .with_context(|| what.to_owned())?;
            figures.add(&format!("{what}, connections: {connections}"), &load.to_string());
        }
    }
    figures.add(
        "serving: peak memory of catalogd",
        &process::mebibytes(process::peak(pid)?),
    );
    Ok(())
}

/// What clients saw together.
struct Load {
    elapsed: Duration,
    bytes: u64,
    /// Sorted.
    latencies: Vec<Duration>,
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
        )
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

async fn load(url: &str, encoding: Option<&'static str>, connections: usize) -> Result<Load> {
    let begin = Instant::now();
    let clients: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(client(url.to_owned(), encoding, begin + DURATION)))
        .collect();
    let mut load = Load {
        elapsed: Duration::ZERO,
        bytes: 0,
        latencies: Vec::new(),
    };
    for client in clients {
        let (bytes, latencies) = client.await??;
        load.bytes += bytes;
        load.latencies.extend(latencies);
    }
    load.elapsed = begin.elapsed();
    load.latencies.sort_unstable();
    Ok(load)
}

/// One connection that asks again and again.
async fn client(url: String, encoding: Option<&'static str>, end: Instant) -> Result<(u64, Vec<Duration>)> {
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .http1_only()
        .pool_max_idle_per_host(1)
        .build()?;
    let ask = async || -> Result<u64> {
        let mut request = client.get(&url);
        if let Some(encoding) = encoding {
            request = request.header("Accept-Encoding", encoding);
        }
        let mut answer = request.send().await?.error_for_status()?;
        let found = answer
            .headers()
            .get("content-encoding")
            .map(|value| value.as_bytes().to_vec());
        if found.as_deref() != encoding.map(str::as_bytes) {
            bail!("asked for encoding {encoding:?}, got {found:?}");
        }
        let mut bytes = 0;
        while let Some(chunk) = answer.chunk().await? {
            bytes += chunk.len() as u64;
        }
        Ok(bytes)
    };
    // The handshake is not counted.
    ask().await?;
    let (mut bytes, mut latencies) = (0, Vec::new());
    while Instant::now() < end {
        let begin = Instant::now();
        bytes += ask().await?;
        latencies.push(begin.elapsed());
    }
    Ok((bytes, latencies))
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
        };
        assert_eq!(load(200).percentile(50), Duration::from_millis(100));
        assert_eq!(load(200).percentile(99), Duration::from_millis(198));
        assert_eq!(load(1).percentile(99), Duration::from_millis(1));
        assert_eq!(load(0).percentile(50), Duration::ZERO);
    }
}
