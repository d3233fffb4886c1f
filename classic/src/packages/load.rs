//! Asks a registry for its packages.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use olm_classic::package_manifest::{PackageChannelEntry, manifest};
use olm_classic::registry::{BundleMessage, PackageMessage};
use serde_json::Value;

use super::item::{Item, Source};
use crate::registry::client::ClientError;

/// Number of concurrent calls.
const AT_ONCE: usize = 8;

/// Bytes that the packages of a catalog may take as they are kept, and its entries while they are read.
const MOST: usize = 256 << 20;

/// The calls of the registry API that PackageManifests need.
pub(super) trait Registry: Send + Sync {
    /// The names of all packages.
    fn packages(&self) -> impl Future<Output = Result<Vec<String>, ClientError>> + Send;
    /// A package.
    fn package(&self, name: &str) -> impl Future<Output = Result<PackageMessage, ClientError>> + Send;
    /// The head of a channel.
    fn head(
        &self,
        package: &str,
        channel: &str,
    ) -> impl Future<Output = Result<BundleMessage, ClientError>> + Send;
    /// Hands all bundles over, one by one, until one is refused.
    fn bundles(
        &self,
        each: impl FnMut(BundleMessage) -> Result<(), ClientError> + Send,
    ) -> impl Future<Output = Result<(), ClientError>> + Send;
}

/// Connects to the registries of CatalogSources.
pub(super) trait Connect: Send + Sync + 'static {
    /// A connected registry.
    type Registry: Registry;
    /// Connects to the registry at an address, `HOST:PORT`.
    fn connect(&self, address: &str) -> impl Future<Output = Result<Self::Registry, ClientError>> + Send;
}

/// The PackageManifests of a CatalogSource. A package without a head that can be read is left out.
///
/// # Errors
/// The registry is not reached, or refuses to list.
pub(super) async fn load(object: &Value, registry: &impl Registry) -> Result<Vec<Item>, ClientError> {
    let names = registry.packages().await?;
    let mut entries: BTreeMap<String, Vec<PackageChannelEntry>> = BTreeMap::new();
    let mut bytes = 0;
    registry
        .bundles(|bundle| {
            if let Some(entry) = PackageChannelEntry::new(&bundle) {
                bytes += entry.size();
                entries.entry(bundle.package_name).or_default().push(entry);
            }
            bounded(bytes)
        })
        .await?;
    let source = Arc::new(Source::new(object));
    let packages = names.into_iter().map(|name| {
        let entries = entries.remove(&name).unwrap_or_default();
        let source = Arc::clone(&source);
        async move { package(object, &source, registry, &name, &entries).await }
    });
    let packages: Vec<_> = packages.collect();
    let mut found = pin!(futures::stream::iter(packages).buffered(AT_ONCE));
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(item) = found.try_next().await? {
        bytes += item.as_ref().map_or(0, Item::size);
        bounded(bytes)?;
        items.extend(item);
    }
    Ok(items)
}

fn bounded(bytes: usize) -> Result<(), ClientError> {
    if bytes > MOST {
        return Err(ClientError::Large(MOST));
    }
    Ok(())
}

async fn package(
    object: &Value,
    source: &Arc<Source>,
    registry: &impl Registry,
    name: &str,
    entries: &[PackageChannelEntry],
) -> Result<Option<Item>, ClientError> {
    let Some(package) = readable(registry.package(name).await)? else {
        return Ok(None);
    };
    let mut heads = BTreeMap::new();
    for channel in &package.channels {
        if let Some(head) = readable(registry.head(name, &channel.name).await)? {
            heads.insert(channel.name.clone(), head.csv_json);
        }
    }
    let found = manifest(object, &package, &heads, entries, &source.namespace);
    Ok(found.map(|found| Item::new(source, found)))
}

/// Answer of the registry; `None` where it reports an error of its own.
fn readable<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_answer() => {
            tracing::debug!(%error, "left out of the packages");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
