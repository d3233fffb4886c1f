//! Health of CatalogSources, and their entries for Subscriptions.

use olm_classic::cluster::text;
use olm_classic::resolve::CatalogContent;
use olm_classic::subscription::{DeprecatedEntry, Health};
use serde_json::Value;

/// The verdict about a CatalogSource as it is on the wire. As with the Go implementation, it is about the spec and the
/// objects of the registry and not about the connection to it: what a resolution cannot read, `ResolutionFailed` names.
pub fn health(source: &Value) -> Health {
    let is_made = source.pointer("/status/registryService/createdAt").is_some();
    match text(source, "/status/reason") {
        "SpecInvalidError" | "ConfigMapError" => Health::Bad,
        _ if is_made => Health::Good,
        _ => Health::Bad,
    }
}

/// Entries of the catalogs for the installed version of a Subscription.
pub fn entries(subscription: &Value, catalogs: &[CatalogContent]) -> Vec<DeprecatedEntry> {
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
        DeprecatedEntry {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_registry_that_does_not_answer_is_healthy_while_its_objects_are_there() {
        let made = json!({"createdAt": "2026-01-01T00:00:00Z"});
        for (reason, service, expected) in [
            ("", &made, Health::Good),
            ("RegistryServerError", &made, Health::Good),
            ("ConfigMapError", &made, Health::Bad),
            ("SpecInvalidError", &made, Health::Bad),
            ("", &json!({}), Health::Bad),
        ] {
            let source = json!({"status": {
                "reason": reason, "registryService": service,
                "connectionState": {"lastObservedState": "TRANSIENT_FAILURE"},
            }});
            assert_eq!(health(&source), expected, "{source}");
        }
    }
}
