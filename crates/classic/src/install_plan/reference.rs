//! Steps that name the unpacked bundle that holds their object.

use serde::Deserialize;
use serde_json::Value;

use super::steps::{BundleContent, Origin, bundle_steps};
use crate::cluster::{Cluster, text};
use crate::names;
use crate::properties::read_annotation;

/// The manifest of a step whose object stands in a ConfigMap.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reference {
    kind: String,
    name: String,
    namespace: String,
    catalog_source_name: String,
    catalog_source_namespace: String,
    replaces: String,
    properties: String,
}

/// The object of a step as JSON: its manifest, or what the manifest refers to.
///
/// # Errors
/// When the unpacked bundle does not exist, cannot be read, or does not hold the object.
pub(super) fn manifest(step: &Value, namespace: &str, cluster: &Cluster) -> Result<String, String> {
    let manifest = text(step, "/resource/manifest");
    let reference: Reference = serde_json::from_str(manifest).unwrap_or_default();
    let parts = [
        &reference.name,
        &reference.namespace,
        &reference.catalog_source_name,
        &reference.catalog_source_namespace,
    ];
    if reference.kind != "ConfigMap" || parts.iter().any(|part| part.is_empty()) {
        return Ok(manifest.to_owned());
    }
    let map = cluster
        .get("ConfigMap", &reference.namespace, &reference.name)
        .ok_or_else(|| {
            format!(
                "error finding unpacked bundle configmap for ref {manifest}: configmaps \"{}\" not found",
                reference.name
            )
        })?;
    let csv = text(step, "/resolving");
    let properties = match reference.properties.as_str() {
        "" => Vec::new(),
        properties => read_annotation(properties)
            .map_err(|error| format!("failed to load bundle properties for \"{csv}\": {error}"))?,
    };
    let bundle = BundleContent {
        properties,
        ..content(map)?
    };
    let origin = Origin {
        namespace: namespace.to_owned(),
        replaces: reference.replaces,
        catalog: reference.catalog_source_name,
        catalog_namespace: reference.catalog_source_namespace,
    };
    let steps = bundle_steps(&bundle, &origin).map_err(|error| error.to_string())?;
    let field = |name: &str| text(step, &format!("/resource/{name}"));
    let found = steps.into_iter().find(|found| {
        [&found.group, &found.version, &found.kind, &found.name]
            == [field("group"), field("version"), field("kind"), field("name")]
    });
    found.map(|found| found.manifest.to_string()).ok_or_else(|| {
        format!(
            "couldn't find unpacked step for {csv}: {}[{}/{}/{} ({}/{})] ({})",
            field("name"),
            field("group"),
            field("version"),
            field("kind"),
            field("sourceName"),
            field("sourceNamespace"),
            text(step, "/status"),
        )
    })
}

/// The objects of an unpacked bundle. Only text is read: nothing that we run packs bundles into ConfigMaps.
fn content(map: &Value) -> Result<BundleContent, String> {
    let data = map.get("data").and_then(Value::as_object);
    let mut content = BundleContent::default();
    for (key, text_of) in data.into_iter().flatten() {
        let object = olm_yaml::to_json(text_of.as_str().unwrap_or_default())
            .map_err(|error| format!("error converting bundle to json: {key}: {error}"))?;
        let json = object.to_string();
        if text(&object, "/kind") == names::CSV_KIND {
            content.csv.clone_from(&json);
        }
        content.objects.push(json);
    }
    Ok(content)
}
