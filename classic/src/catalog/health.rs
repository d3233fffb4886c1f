//! Health of CatalogSources, and their entries for Subscriptions.

use olm_classic::cluster::text;
use olm_classic::resolve::CatalogContent;
use olm_classic::subscription::{Entry, Health};
use serde_json::Value;

/// The verdict about a CatalogSource as it is on the wire: it is bad while its spec is invalid or its content is not
/// known.
pub fn health(source: &Value) -> Health {
    let is_invalid = text(source, "/status/reason") == "SpecInvalidError";
    match text(source, "/status/connectionState/lastObservedState") {
        _ if is_invalid => Health::Bad,
        "READY" => Health::Good,
        // Known content is served on while the registry is looked for.
        "IDLE" | "CONNECTING" if source.pointer("/status/registryService/createdAt").is_some() => {
            Health::Good
        }
        _ => Health::Bad,
    }
}

/// Whether the content of a CatalogSource is on its way: nothing is known to be wrong.
pub fn is_coming(source: &Value) -> bool {
    text(source, "/status/reason").is_empty()
        && matches!(
            text(source, "/status/connectionState/lastObservedState"),
            "" | "IDLE" | "CONNECTING" | "READY"
        )
}

/// Entries of the catalogs for the installed version of a Subscription.
pub fn entries(subscription: &Value, catalogs: &[CatalogContent]) -> Vec<Entry> {
    let of = |pointer: &str| text(subscription, pointer);
    let installed = of("/status/installedCSV");
    let catalog = catalogs.iter().find(|catalog| {
        catalog.namespace == of("/spec/sourceNamespace") && catalog.name == of("/spec/source")
    });
    let content = catalog.and_then(|catalog| catalog.content.as_ref().ok());
    let Some(content) = content.filter(|_| !installed.is_empty()) else {
        return Vec::new();
    };
    let found = content.of_package(of("/spec/name"));
    let found = found.filter(|entry| entry.name == installed);
    let found = found.map(|entry| {
        let [package_deprecation, channel_deprecation, bundle_deprecation] = entry.deprecations.clone();
        Entry {
            name: entry.name.clone(),
            package: entry.package.clone(),
            channel: entry.channel.clone(),
            catalog: format!("{}/{}", of("/spec/sourceNamespace"), of("/spec/source")),
            package_deprecation,
            channel_deprecation,
            bundle_deprecation,
        }
    });
    found.collect()
}
