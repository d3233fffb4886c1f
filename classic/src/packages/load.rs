//! Asks a registry for its packages.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use olm_classic::package_manifest::{Entry, manifest};
use olm_classic::registry::{BundleMessage, PackageMessage};
use serde_json::Value;

use super::item::{Item, Source};

/// How many questions are under way at once.
const AT_ONCE: usize = 8;

/// Why a registry did not answer a question.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    /// It answered that it cannot.
    #[error("the registry refuses: {0}")]
    Refused(String),
    /// It was not reached, or stopped answering.
    #[error("cannot reach the registry: {0}")]
    Unreachable(String),
}

/// The calls of the registry API that PackageManifests need.
pub(super) trait Registry: Send + Sync {
    /// The names of all packages.
    fn packages(&self) -> impl Future<Output = Result<Vec<String>, RegistryError>> + Send;
    /// A package.
    fn package(&self, name: &str) -> impl Future<Output = Result<PackageMessage, RegistryError>> + Send;
    /// The head of a channel.
    fn head(
        &self,
        package: &str,
        channel: &str,
    ) -> impl Future<Output = Result<BundleMessage, RegistryError>> + Send;
    /// Hands all bundles over, one by one.
    fn bundles(
        &self,
        each: impl FnMut(BundleMessage) + Send,
    ) -> impl Future<Output = Result<(), RegistryError>> + Send;
}

/// Connects to the registries of CatalogSources.
pub(super) trait Connect: Send + Sync + 'static {
    /// A connected registry.
    type Registry: Registry;
    /// Connects to the registry of a CatalogSource.
    fn connect(&self, source: &Value) -> impl Future<Output = Result<Self::Registry, RegistryError>> + Send;
}

/// The PackageManifests of a CatalogSource. A package without a head that can be read is left out.
///
/// # Errors
/// The registry is not reached, or refuses to list.
pub(super) async fn load(object: &Value, registry: &impl Registry) -> Result<Vec<Item>, RegistryError> {
    let names = registry.packages().await?;
    let mut entries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    registry
        .bundles(|bundle| {
            if let Some(entry) = Entry::new(&bundle) {
                entries.entry(bundle.package_name).or_default().push(entry);
            }
        })
        .await?;
    let source = Arc::new(Source::new(object));
    let packages = names.into_iter().map(|name| {
        let entries = entries.remove(&name).unwrap_or_default();
        let source = Arc::clone(&source);
        async move { package(object, &source, registry, &name, &entries).await }
    });
    let packages: Vec<_> = packages.collect();
    let found = futures::stream::iter(packages).buffered(AT_ONCE);
    found
        .try_filter_map(|item| async { Ok(item) })
        .try_collect()
        .await
}

async fn package(
    object: &Value,
    source: &Arc<Source>,
    registry: &impl Registry,
    name: &str,
    entries: &[Entry],
) -> Result<Option<Item>, RegistryError> {
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

/// What the registry answered; nothing where it says that it cannot.
fn readable<T>(answer: Result<T, RegistryError>) -> Result<Option<T>, RegistryError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(RegistryError::Refused(why)) => {
            tracing::debug!(why, "left out of the packages");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
