//! The ClusterServiceVersion of a bundle, as far as the catalog has it.

use olm_fbc::{Bundle, Package, property};
use serde_json::{Map, Value, json};

use crate::names;

/// The manifests that a catalog has of a bundle, JSON.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// The ClusterServiceVersion; empty where there is none.
    pub(super) csv: String,
    /// All objects.
    pub(super) objects: Vec<String>,
}

/// Fields of the specification that `olm.csv.metadata` has under the same name.
const SAME: [&str; 9] = [
    "displayName",
    "installModes",
    "keywords",
    "links",
    "maintainers",
    "maturity",
    "minKubeVersion",
    "nativeAPIs",
    "provider",
];

/// The objects that the bundle carries; else a ClusterServiceVersion made of its metadata.
pub(super) fn manifests(package: &Package, bundle: &Bundle, version: &str) -> Manifests {
    let carried: Vec<Value> = bundle
        .objects()
        .unwrap_or_default()
        .iter()
        .filter_map(|object| json_of(object))
        .collect();
    let csv = carried.iter().find(|object| object["kind"] == names::CSV_KIND);
    if let Some(csv) = csv {
        return Manifests {
            csv: csv.to_string(),
            objects: carried.iter().map(Value::to_string).collect(),
        };
    }
    let mut metadata = bundle
        .properties
        .iter()
        .filter(|found| found.kind == property::TYPE_CSV_METADATA);
    let metadata = metadata.find_map(|found| serde_json::from_str::<Value>(&found.value).ok());
    let Some(metadata) = metadata else {
        return Manifests {
            csv: String::new(),
            objects: carried.iter().map(Value::to_string).collect(),
        };
    };
    let csv = synthesized_csv(package, bundle, version, &metadata).to_string();
    let objects = if carried.is_empty() {
        vec![csv.clone()]
    } else {
        carried.iter().map(Value::to_string).collect()
    };
    Manifests { csv, objects }
}

fn json_of(object: &[u8]) -> Option<Value> {
    let text = str::from_utf8(object).ok()?;
    serde_json::from_str(text)
        .ok()
        .or_else(|| olm_yaml::to_json(text).ok())
}

fn synthesized_csv(package: &Package, bundle: &Bundle, version: &str, found: &Value) -> Value {
    // A display name is written even where it is empty.
    let mut spec = Map::from_iter([("displayName".to_owned(), json!(""))]);
    let mut put = |key: &str, value: Option<&Value>| {
        let is_set = |value: &&Value| !value.is_null() && **value != "" && **value != json!([]);
        if let Some(value) = value.filter(is_set) {
            spec.insert(key.to_owned(), value.clone());
        }
    };
    for key in SAME {
        put(key, found.get(key));
    }
    put("customresourcedefinitions", found.get("crdDescriptions"));
    put("apiservicedefinitions", found.get("apiServiceDefinitions"));
    put("version", Some(&json!(version)));
    put("install", Some(&json!({"strategy": "deployment"})));
    let description = found
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let description = if description.is_empty() {
        package.description.as_str()
    } else {
        description
    };
    if !description.is_empty() {
        put("description", Some(&json!(description)));
    }
    let icon = package
        .icon
        .as_ref()
        .and_then(|icon| icon.data().ok().map(|data| (icon, data)));
    if let Some((icon, data)) = icon {
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, data);
        put(
            "icon",
            Some(&json!([{"base64data": data, "mediatype": icon.media_type}])),
        );
    }
    let images: Vec<Value> = bundle
        .related_images
        .iter()
        .map(|related| json!({"name": related.name, "image": related.image}))
        .collect();
    if !images.is_empty() {
        put("relatedImages", Some(&json!(images)));
    }
    let mut metadata = json!({"name": bundle.name});
    for key in ["annotations", "labels"] {
        let value = found.get(key).filter(|value| value.is_object());
        if let (Some(value), Some(metadata)) = (value, metadata.as_object_mut()) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    json!({
        "apiVersion": names::CSV_API_VERSION, "kind": names::CSV_KIND, "metadata": metadata, "spec": spec,
    })
}
