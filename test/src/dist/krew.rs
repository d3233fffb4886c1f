//! The manifest by which krew installs `kubectl olm`.

use std::collections::BTreeMap;

use serde_json::json;

use super::System;

/// The manifest: the address and the checksum of the archive of each system.
pub(super) fn manifest(url: &str, archives: &[(System, String)], sums: &BTreeMap<String, String>) -> String {
    let platforms: Vec<_> = archives
        .iter()
        .map(|(system, archive)| {
            json!({
                "selector": { "matchLabels": { "os": system.os, "arch": system.architecture } },
                "uri": format!("{}/{archive}", url.trim_end_matches('/')),
                "sha256": sums.get(archive),
                "bin": "olm",
            })
        })
        .collect();
    olm_yaml::to_yaml(&json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "olm" },
        "spec": {
            "version": concat!("v", env!("CARGO_PKG_VERSION")),
            "homepage": url,
            "shortDescription": "Install and manage operators with OLM v1",
            "description": "Installs, explains, upgrades and removes the operators of a cluster with OLM v1, \
                            and works on catalogs and bundles without one.\n",
            "platforms": platforms,
        },
    }))
}
