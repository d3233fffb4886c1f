//! The metadata that catalogs show for a bundle with manifests.

use memchr::memmem;
use serde_json::{Map, Value};

use crate::blob::bundle::Bundle;

/// The kind that describes a bundle.
const CSV: &str = "ClusterServiceVersion";

impl Bundle {
    /// The value of the property `olm.csv.metadata`, created from the `ClusterServiceVersion` among the bundle's
    /// manifests; `None` if there is none.
    pub fn csv_metadata(&self) -> Option<String> {
        Some(metadata_of_csv(&self.csv()?).to_string())
    }

    /// The `ClusterServiceVersion` among the manifests that the bundle carries; `None` when it carries none.
    pub fn csv(&self) -> Option<Value> {
        let objects = self.objects().ok()?;
        objects
            .iter()
            // Definitions are large, and most bundles carry several.
            .filter(|object| memmem::find(object, CSV.as_bytes()).is_some())
            .filter_map(|object| olm_yaml::to_json(object).ok())
            .find(|value| value.get("kind").and_then(Value::as_str) == Some(CSV))
    }
}

/// The value of `olm.csv.metadata` for a `ClusterServiceVersion`.
pub fn metadata_of_csv(csv: &Value) -> Value {
    let field = |pointer: &str| csv.pointer(pointer).filter(|value| !is_empty(value)).cloned();
    let mut value = Map::new();
    // These three are always present.
    for (key, pointer) in [
        ("apiServiceDefinitions", "/spec/apiservicedefinitions"),
        ("crdDescriptions", "/spec/customresourcedefinitions"),
        ("provider", "/spec/provider"),
    ] {
        let found = field(pointer).unwrap_or_else(|| Value::Object(Map::new()));
        value.insert(key.to_owned(), found);
    }
    for (key, pointer) in [
        ("annotations", "/metadata/annotations"),
        ("description", "/spec/description"),
        ("displayName", "/spec/displayName"),
        ("installModes", "/spec/installModes"),
        ("keywords", "/spec/keywords"),
        ("labels", "/metadata/labels"),
        ("links", "/spec/links"),
        ("maintainers", "/spec/maintainers"),
        ("maturity", "/spec/maturity"),
        ("minKubeVersion", "/spec/minKubeVersion"),
        ("nativeAPIs", "/spec/nativeAPIs"),
    ] {
        if let Some(found) = field(pointer) {
            value.insert(key.to_owned(), found);
        }
    }
    Value::Object(value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
