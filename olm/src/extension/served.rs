//! Catalogs from catalogd, fetched through the API server: no access to the registry and no credentials for it are
//! needed.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::AsyncReadExt as _;
use kube::Client;
use olm_api::ClusterCatalog;
use olm_api::names::{CATALOGD_SERVICE, SYSTEM_NAMESPACE};
use olm_api::serving::{Endpoint, MetasQuery, base_url, percent_encode};
use olm_fbc::SCHEMA_PACKAGE;

use crate::input::CatalogFiles;
use crate::source::{MAX_CATALOG, scratch};

/// The timeout of the first byte.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// The part of a catalog to fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CatalogPart<'a> {
    /// The whole catalog.
    All,
    /// The package blobs, with the names of the packages.
    Packages,
    /// The blobs of one package.
    Package(&'a str),
}

/// Fetches a catalog, or a part of it; `None` if that part is empty.
pub(crate) async fn fetch(
    client: &Client,
    catalog: &ClusterCatalog,
    part: CatalogPart<'_>,
) -> anyhow::Result<Option<CatalogFiles>> {
    let status = catalog.status.as_ref();
    let urls = status.and_then(|status| status.urls.as_ref());
    // Clients outside the cluster may get another address than that of the Service.
    let usual = || proxy("https", SYSTEM_NAMESPACE, CATALOGD_SERVICE, 443);
    let origin = urls.and_then(|urls| proxied(&urls.base));
    let base = base_url(&origin.unwrap_or_else(usual), catalog.name());
    let url = match part {
        CatalogPart::All => Endpoint::All.url(&base),
        CatalogPart::Packages => MetasQuery {
            schema: Some(SCHEMA_PACKAGE),
            ..MetasQuery::default()
        }
        .url(&base),
        CatalogPart::Package(package) => MetasQuery {
            package: Some(package),
            ..MetasQuery::default()
        }
        .url(&base),
    };
    let request = http::Request::get(&url).body(Vec::new())?;
    let answer = tokio::time::timeout(PATIENCE, client.request_stream(request)).await;
    let answer = answer.map_err(|_| anyhow!("no answer within {} s", PATIENCE.as_secs()))?;
    let mut answer = std::pin::pin!(answer?);
    let directory = scratch()?;
    let path = directory.path().join("catalog.jsonl");
    let mut file = File::create(&path)?;
    let mut left = MAX_CATALOG;
    let mut piece = vec![0; PIECE];
    loop {
        let count = answer.read(&mut piece).await?;
        if count == 0 && left == MAX_CATALOG {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(CatalogFiles::open(&path)?.keeping(directory)));
        }
        left = left
            .checked_sub(count as u64)
            .with_context(|| format!("the catalog has more than {MAX_CATALOG} bytes"))?;
        file.write_all(piece.get(..count).unwrap_or_default())?;
    }
}

/// The path of the API server that leads to the Service of an address such as
/// `https://catalogd-service.olmv1-system.svc/catalogs/samples`; `None` if the address is not that of a Service.
fn proxied(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let host = rest.split('/').next()?;
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None if scheme == "http" => (host, 80_u16),
        None => (host, 443),
    };
    let mut parts = host.split('.');
    let (service, namespace) = (parts.next()?, parts.next()?);
    if service.is_empty() || namespace.is_empty() || parts.next() != Some("svc") {
        return None;
    }
    Some(proxy(scheme, namespace, service, port))
}

fn proxy(scheme: &str, namespace: &str, service: &str, port: u16) -> String {
    let scheme = if scheme == "https" { "https:" } else { "" };
    format!(
        "/api/v1/namespaces/{}/services/{scheme}{}:{port}/proxy",
        percent_encode(namespace),
        percent_encode(service)
    )
}

#[cfg(test)]
mod tests {
    use super::proxied;

    #[test]
    fn the_address_of_a_service_becomes_a_path_of_the_api_server() {
        for (address, path) in [
            (
                "https://catalogd-service.olmv1-system.svc/catalogs/samples",
                Some("/api/v1/namespaces/olmv1-system/services/https:catalogd-service:443/proxy"),
            ),
            (
                "http://c.n.svc.cluster.local:8080",
                Some("/api/v1/namespaces/n/services/c:8080/proxy"),
            ),
            ("https://127.0.0.1:8443/catalogs/samples", None),
            ("https://catalogs.example/catalogs/samples", None),
            ("https://..svc", None),
            ("c.n.svc", None),
        ] {
            assert_eq!(proxied(address).as_deref(), path, "{address}");
        }
    }
}
