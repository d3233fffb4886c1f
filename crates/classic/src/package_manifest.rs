//! The PackageManifests that the catalogs of a cluster give.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Catalog;
use serde_json::{Map, Value, json};

use crate::cluster::{items, text};
use crate::registry::{BundleMessage, DeprecationMessage, Registry};

mod icon;
mod selectors;

pub use icon::{IconAnswer, icon};
pub use selectors::{FieldSelectorError, LabelSelectorError, label_selector, name_of_field_selector};

const API_VERSION: &str = "packages.operators.coreos.com/v1";
/// The property that hides a bundle from the entries of its channels.
const DEPRECATED: &str = "olm.deprecated";
/// Labels that a package has where nothing says on what it runs.
const PLATFORMS: [(&str, &str); 2] = [
    ("operatorframework.io/os", "linux"),
    ("operatorframework.io/arch", "amd64"),
];
/// Fields that descriptions have as ClusterServiceVersions have them.
const SAME: [&str; 10] = [
    "displayName",
    "version",
    "provider",
    "keywords",
    "links",
    "maintainers",
    "maturity",
    "description",
    "installModes",
    "minKubeVersion",
];

/// A CatalogSource as it is on the wire, and its content.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The CatalogSource.
    pub object: &'a Value,
    /// What its registry serves.
    pub catalog: &'a Catalog,
}

/// A PackageManifest with what `get` and `list` leave out.
#[derive(Debug, Clone, PartialEq)]
pub struct PackageManifest {
    /// The object.
    pub object: Value,
    /// The channel that it describes the package by.
    pub channel: String,
    /// The first icon of that channel's head: media type and base64.
    pub icon: Option<(String, String)>,
}

/// Those that a namespace sees, of its own catalogs first, then of the global ones; all, for an empty namespace. `global` is the
/// namespace of global catalogs.
pub fn manifests(sources: &[Source<'_>], namespace: &str, global: &str) -> Vec<PackageManifest> {
    let place = |source: &&Source<'_>| text(source.object, "/metadata/namespace").to_owned();
    let mut seen: Vec<&Source<'_>> = sources
        .iter()
        .filter(|source| {
            let place = place(source);
            namespace.is_empty() || place == namespace || place == global
        })
        .collect();
    seen.sort_by_key(|source| place(source) != namespace);
    let mut found = Vec::new();
    for source in seen {
        let own = place(&source);
        let shown = if namespace.is_empty() {
            own.as_str()
        } else {
            namespace
        };
        let registry = Registry::new(source.catalog);
        // Once for the catalog: a list of all bundles for each package takes minutes for a large one.
        let mut bundles: BTreeMap<String, Vec<BundleMessage>> = BTreeMap::new();
        for bundle in registry.list_bundles() {
            bundles
                .entry(bundle.package_name.clone())
                .or_default()
                .push(bundle);
        }
        for name in registry.list_packages() {
            let bundles = bundles.remove(name).unwrap_or_default();
            found.extend(manifest(source.object, &registry, &bundles, name, shown));
        }
    }
    found
}

/// A channel whose head is described.
struct Described {
    name: String,
    csv: Value,
    value: Value,
}

fn manifest(
    source: &Value,
    registry: &Registry<'_>,
    bundles: &[BundleMessage],
    name: &str,
    namespace: &str,
) -> Option<PackageManifest> {
    let package = registry.get_package(name).ok()?;
    let mut channels = Vec::new();
    for channel in &package.channels {
        let Ok(head) = registry.get_bundle_for_channel(name, &channel.name) else {
            continue;
        };
        let Ok(csv) = serde_json::from_str::<Value>(&head.csv_json) else {
            continue;
        };
        let mut value = json!({
            "name": channel.name,
            "currentCSV": channel.csv_name,
            "currentCSVDesc": description(&csv),
            "entries": entries(bundles, &channel.name),
        });
        deprecated(&mut value, channel.deprecation.as_ref());
        channels.push(Described {
            name: channel.name.clone(),
            csv,
            value,
        });
    }
    let default = channels
        .iter()
        .find(|channel| channel.name == package.default_channel_name);
    // Who names no default channel has none, but is described by the first.
    let described = default.or_else(|| channels.first())?;
    let default_name = if package.default_channel_name.is_empty() {
        ""
    } else {
        described.name.as_str()
    };
    let provider = described
        .csv
        .pointer("/spec/provider")
        .cloned()
        .unwrap_or_else(|| json!({}));
    let mut status = json!({
        "catalogSource": text(source, "/metadata/name"),
        "catalogSourceDisplayName": text(source, "/spec/displayName"),
        "catalogSourcePublisher": text(source, "/spec/publisher"),
        "catalogSourceNamespace": text(source, "/metadata/namespace"),
        "packageName": name,
        "provider": provider,
        "channels": channels.iter().map(|channel| &channel.value).collect::<Vec<_>>(),
        "defaultChannel": default_name,
    });
    deprecated(&mut status, package.deprecation.as_ref());
    let icon = items(&described.csv, "/spec/icon").next();
    Some(PackageManifest {
        object: json!({
            "apiVersion": API_VERSION,
            "kind": "PackageManifest",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels(source, &described.csv),
                "creationTimestamp": source.pointer("/metadata/creationTimestamp"),
            },
            "spec": {},
            "status": status,
        }),
        channel: described.name.clone(),
        icon: icon.map(|icon| {
            (
                text(icon, "/mediatype").to_owned(),
                text(icon, "/base64data").to_owned(),
            )
        }),
    })
}

fn deprecated(value: &mut Value, deprecation: Option<&DeprecationMessage>) {
    if let (Some(deprecation), Some(value)) = (deprecation, value.as_object_mut()) {
        value.insert("deprecation".to_owned(), json!(deprecation));
    }
}

/// The labels of the catalog, overlaid by what it and the provider are called, and by those of the ClusterServiceVersion.
fn labels(source: &Value, csv: &Value) -> Map<String, Value> {
    let of = |object: &Value| {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        labels.cloned().unwrap_or_default()
    };
    let mut labels = of(source);
    for (key, value) in [
        ("catalog", text(source, "/metadata/name")),
        ("catalog-namespace", text(source, "/metadata/namespace")),
        ("provider", text(csv, "/spec/provider/name")),
        ("provider-url", text(csv, "/spec/provider/url")),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    labels.extend(of(csv));
    for (prefix, usual) in PLATFORMS {
        if !labels.keys().any(|key| key.starts_with(prefix)) {
            labels.insert(format!("{prefix}.{usual}"), "supported".into());
        }
    }
    labels
}

/// The bundles of a channel, newest first; null where there is none.
fn entries(bundles: &[BundleMessage], channel: &str) -> Value {
    let shown = |bundle: &&BundleMessage| {
        bundle.channel_name == channel && bundle.properties.iter().all(|found| found.kind != DEPRECATED)
    };
    let mut shown: Vec<&BundleMessage> = bundles.iter().filter(shown).collect();
    shown.sort_by_cached_key(|bundle| std::cmp::Reverse(semver::Version::parse(&bundle.version).ok()));
    let entries: Vec<Value> = shown
        .into_iter()
        .map(|bundle| {
            let mut entry = json!({"name": bundle.csv_name});
            if let (false, Some(entry)) = (bundle.version.is_empty(), entry.as_object_mut()) {
                entry.insert("version".to_owned(), bundle.version.as_str().into());
            }
            deprecated(&mut entry, bundle.deprecation.as_ref());
            entry
        })
        .collect();
    if entries.is_empty() {
        Value::Null
    } else {
        json!(entries)
    }
}

/// What a channel says of its head.
fn description(csv: &Value) -> Value {
    let no_spec = Value::Null;
    let spec = csv.get("spec").unwrap_or(&no_spec);
    let mut found = Map::new();
    for key in SAME {
        if let Some(value) = spec.get(key).filter(|value| !value.is_null()) {
            found.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(annotations) = csv.pointer("/metadata/annotations") {
        found.insert("annotations".to_owned(), annotations.clone());
    }
    let mut definitions = Map::new();
    for list in ["owned", "required"] {
        let pointer = format!("/customresourcedefinitions/{list}");
        let described: Vec<Value> = items(spec, &pointer).map(definition).collect();
        if !described.is_empty() {
            definitions.insert(list.to_owned(), json!(described));
        }
    }
    found.insert("customresourcedefinitions".to_owned(), Value::Object(definitions));
    let services = spec
        .get("apiservicedefinitions")
        .filter(|found| found.is_object());
    found.insert(
        "apiservicedefinitions".to_owned(),
        services.cloned().unwrap_or_else(|| json!({})),
    );
    if let Some(native) = spec.get("nativeAPIs").filter(|found| !found.is_null()) {
        found.insert("nativeApis".to_owned(), native.clone());
    }
    let images = images(spec);
    if !images.is_empty() {
        found.insert("relatedImages".to_owned(), json!(images));
    }
    Value::Object(found)
}

/// The images that a ClusterServiceVersion names, and those of its containers.
fn images(spec: &Value) -> BTreeSet<&str> {
    let pods = items(spec, "/install/spec/deployments");
    let containers = pods.flat_map(|pod| {
        let own = items(pod, "/spec/template/spec/containers");
        own.chain(items(pod, "/spec/template/spec/initContainers"))
    });
    items(spec, "/relatedImages")
        .chain(containers)
        .map(|holder| text(holder, "/image"))
        .filter(|image| !image.is_empty())
        .collect()
}

fn definition(described: &Value) -> Value {
    let keys = ["name", "version", "kind", "displayName", "description"];
    let fields = keys.iter().filter_map(|key| {
        let value = described.get(*key).filter(|value| !value.is_null())?;
        Some(((*key).to_owned(), value.clone()))
    });
    Value::Object(fields.collect())
}
