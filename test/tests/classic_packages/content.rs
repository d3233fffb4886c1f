//! Catalogs that registries of the tests serve.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The picture of every package that has one.
pub(crate) const PICTURE: &[u8] = b"<svg xmlns='http://www.w3.org/2000/svg'/>";

/// A package of a catalog.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The versions in the channel `stable`, the oldest first.
    pub(crate) versions: Vec<&'static str>,
    pub(crate) has_picture: bool,
    /// Bytes of its description.
    pub(crate) description: usize,
}

impl Package {
    pub(crate) fn new(name: &str, versions: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            versions: versions.to_vec(),
            has_picture: false,
            description: 100,
        }
    }

    pub(crate) fn with_picture(self) -> Self {
        Self {
            has_picture: true,
            ..self
        }
    }

    /// Blobs of the package in a catalog.
    pub(crate) fn blobs(&self) -> Vec<Value> {
        let name = &self.name;
        let mut package = json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"});
        if self.has_picture {
            package["icon"] = json!({"mediatype": "image/svg+xml", "base64data": STANDARD.encode(PICTURE)});
        }
        let mut entries: Vec<Value> = Vec::new();
        for version in &self.versions {
            let mut entry = json!({"name": format!("{name}.v{version}")});
            if let Some(before) = entries.last() {
                entry["replaces"] = before["name"].clone();
            }
            entries.push(entry);
        }
        let channel = json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": entries});
        let bundles = self.versions.iter().map(|version| self.bundle(version));
        [package, channel].into_iter().chain(bundles).collect()
    }

    fn bundle(&self, version: &str) -> Value {
        let name = &self.name;
        json!({
            "schema": "olm.bundle", "package": name, "name": format!("{name}.v{version}"),
            "image": format!("registry.example/{name}:v{version}"),
            "properties": [
                {"type": "olm.package", "value": {"packageName": name, "version": version}},
                {"type": "olm.csv.metadata", "value": {
                    "displayName": format!("The {name}"),
                    "description": prose(name, self.description),
                    "provider": {"name": "Samples"},
                    "annotations": {"capabilities": "Basic Install"},
                    "installModes": [{"type": "AllNamespaces", "supported": true}],
                    "crdDescriptions": {"owned": [{
                        "name": format!("{name}s.samples.example"), "version": "v1", "kind": "Sample",
                    }]},
                }},
            ],
        })
    }
}

/// A text of at least this many bytes that compresses as descriptions do.
fn prose(name: &str, bytes: usize) -> String {
    let mut text = String::new();
    let mut number: u64 = 7;
    while text.len() < bytes {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = write!(text, "The operator {name} can do {:x} things. ", number >> 40);
    }
    text
}
