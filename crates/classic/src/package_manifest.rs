//! The PackageManifests that the catalogs of a cluster give.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Catalog;
use olm_version::Version;
use olm_version::blang::{parse_tolerant, parse_version};
use serde_json::{Map, Value, json};

use crate::cluster::{items, text};
use crate::names;
use crate::registry::{BundleMessage, DeprecationMessage, PackageMessage, Registry};

mod icon;
mod selectors;

pub use icon::{DEFAULT_ICON, Icon, IconAnswer, SVG, icon};
pub use selectors::{FieldSelectorError, LabelSelectorError, label_selector, name_of_field_selector};

/// The property that hides a bundle from the entries of its channels.
const DEPRECATED: &str = "olm.deprecated";
/// Platform labels of a package that has none.
const PLATFORMS: [(&str, &str); 2] = [
    ("operatorframework.io/os", "linux"),
    ("operatorframework.io/arch", "amd64"),
];
/// Fields that descriptions have as ClusterServiceVersions have them.
const SAME: [&str; 5] = [
    "displayName",
    "keywords",
    "maturity",
    "description",
    "minKubeVersion",
];

/// A CatalogSource as it is on the wire, and its content.
#[derive(Debug, Clone, Copy)]
pub struct ServedCatalog<'a> {
    /// The CatalogSource.
    pub object: &'a Value,
    /// The content that its registry serves.
    pub catalog: &'a Catalog,
}

/// A PackageManifest with the icon that `get` and `list` leave out.
#[derive(Debug, Clone, PartialEq)]
pub struct PackageManifest {
    /// The object.
    pub object: Value,
    /// The first icon of the head of the channel that it describes the package by.
    pub picture: Option<Icon>,
}

/// A bundle as the entry of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageChannelEntry {
    channel: String,
    name: String,
    version: String,
    deprecation: Option<DeprecationMessage>,
}

impl PackageChannelEntry {
    /// The entry of a bundle in its channel; nothing for a bundle that says that it must not be shown.
    pub fn new(bundle: &BundleMessage) -> Option<Self> {
        let is_shown = bundle.properties.iter().all(|found| found.kind != DEPRECATED);
        is_shown.then(|| Self {
            channel: bundle.channel_name.clone(),
            name: bundle.csv_name.clone(),
            version: bundle.version.clone(),
            deprecation: bundle.deprecation.clone(),
        })
    }

    /// The bytes that it takes, roughly.
    pub fn size(&self) -> usize {
        let deprecation = self.deprecation.as_ref().map_or(0, |found| found.message.len());
        size_of::<Self>() + self.channel.len() + self.name.len() + self.version.len() + deprecation
    }
}

/// The order of CatalogSources where several have a package: those of the namespace that is asked, the highest
/// priority, the name.
pub fn rank<'a>(source: &'a Value, namespace: &str) -> impl Ord + use<'a> {
    let priority = source.pointer("/spec/priority").and_then(Value::as_i64);
    (
        text(source, "/metadata/namespace") != namespace,
        Reverse(priority.unwrap_or_default()),
        text(source, "/metadata/namespace"),
        text(source, "/metadata/name"),
    )
}

/// Those that a namespace sees, of its own catalogs first, then of the global ones; all, for an empty namespace.
/// `global` is the namespace of global catalogs.
pub fn manifests(sources: &[ServedCatalog<'_>], namespace: &str, global: &str) -> Vec<PackageManifest> {
    let place = |source: &&ServedCatalog<'_>| text(source.object, "/metadata/namespace").to_owned();
    let mut seen: Vec<&ServedCatalog<'_>> = sources
        .iter()
        .filter(|source| {
            let place = place(source);
            namespace.is_empty() || place == namespace || place == global
        })
        .collect();
    seen.sort_by_key(|source| rank(source.object, namespace));
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
        let mut entries: BTreeMap<String, Vec<PackageChannelEntry>> = BTreeMap::new();
        for bundle in registry.list_bundles() {
            let entry = PackageChannelEntry::new(&bundle);
            entries.entry(bundle.package_name).or_default().extend(entry);
        }
        for name in registry.list_packages() {
            let entries = entries.remove(name).unwrap_or_default();
            let Ok(package) = registry.get_package(name) else {
                continue;
            };
            let heads = package.channels.iter().filter_map(|channel| {
                let head = registry.get_bundle_for_channel(name, &channel.name).ok()?;
                Some((channel.name.clone(), head.csv_json))
            });
            let heads: BTreeMap<String, String> = heads.collect();
            found.extend(manifest(source.object, &package, &heads, &entries, shown));
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

/// The PackageManifest of a package as a registry describes it: `heads` has the ClusterServiceVersions (JSON) of the
/// heads that can be read, by channel, `entries` the entries of all channels. `namespace` is the one that the object is
/// shown in. Nothing where no head can be read.
pub fn manifest(
    source: &Value,
    package: &PackageMessage,
    heads: &BTreeMap<String, String>,
    entries: &[PackageChannelEntry],
    namespace: &str,
) -> Option<PackageManifest> {
    let name = package.name.as_str();
    let mut channels = Vec::new();
    for channel in &package.channels {
        let head = heads.get(&channel.name);
        let Some(csv) = head.and_then(|head| csv_of(head)) else {
            continue;
        };
        let mut value = json!({
            "name": channel.name,
            "currentCSV": text(&csv, "/metadata/name"),
            "currentCSVDesc": description(&csv),
            "entries": shown_entries(entries, &channel.name),
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
    // A package without a default channel has none, but its first channel describes it.
    let described = default.or_else(|| channels.first())?;
    let default_name = if package.default_channel_name.is_empty() {
        ""
    } else {
        described.name.as_str()
    };
    let provider = described.csv.pointer("/spec/provider");
    let provider = written(provider.unwrap_or(&Value::Null), &[], &["name", "url"]);
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
    let tag = format!(
        "\"{name}.{}.{}\"",
        described.name,
        text(&described.value, "/currentCSV")
    );
    let icon = items(&described.csv, "/spec/icon").next();
    Some(PackageManifest {
        object: json!({
            "apiVersion": names::PACKAGE_API_VERSION,
            "kind": names::PACKAGE_MANIFEST_KIND,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels(source, &described.csv),
                "creationTimestamp": source.pointer("/metadata/creationTimestamp"),
            },
            "spec": {},
            "status": status,
        }),
        picture: icon.map(|icon| Icon::new(text(icon, "/mediatype"), text(icon, "/base64data"), tag)),
    })
}

fn deprecated(value: &mut Value, deprecation: Option<&DeprecationMessage>) {
    if let (Some(deprecation), Some(value)) = (deprecation, value.as_object_mut()) {
        value.insert("deprecation".to_owned(), json!(deprecation));
    }
}

/// The labels of the catalog, overlaid by the names of catalog and provider, and by those of the ClusterServiceVersion.
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
fn shown_entries(entries: &[PackageChannelEntry], channel: &str) -> Value {
    let mut shown: Vec<&PackageChannelEntry> =
        entries.iter().filter(|entry| entry.channel == channel).collect();
    let version =
        |entry: &&PackageChannelEntry| parse_version(&entry.version).unwrap_or(Version::new(0, 0, 0));
    // Build metadata does not count.
    shown.sort_by(|left, right| version(right).cmp_precedence(&version(left)));
    let entries: Vec<Value> = shown
        .into_iter()
        .map(|entry| {
            let mut value = json!({"name": entry.name});
            if let (false, Some(value)) = (entry.version.is_empty(), value.as_object_mut()) {
                value.insert("version".to_owned(), entry.version.as_str().into());
            }
            deprecated(&mut value, entry.deprecation.as_ref());
            value
        })
        .collect();
    if entries.is_empty() {
        Value::Null
    } else {
        json!(entries)
    }
}

/// Description of a channel, from its head.
fn description(csv: &Value) -> Value {
    let no_spec = Value::Null;
    let spec = csv.get("spec").unwrap_or(&no_spec);
    let mut found = Map::new();
    for key in SAME {
        let is_set = |value: &&Value| !value.is_null() && **value != "";
        if let Some(value) = spec.get(key).filter(is_set) {
            found.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(version) = spec.get("version").and_then(Value::as_str) {
        let version = parse_tolerant(version).map(|version| version.to_string());
        found.extend(version.map(|version| ("version".to_owned(), version.into())));
    }
    let provider = spec.get("provider").unwrap_or(&no_spec);
    found.insert("provider".to_owned(), written(provider, &[], &["name", "url"]));
    for (key, required, optional) in [
        ("links", &[][..], &["name", "url"][..]),
        ("maintainers", &[], &["name", "email"]),
        ("installModes", &["type", "supported"], &[]),
    ] {
        let pointer = format!("/{key}");
        let described = items(spec, &pointer).map(|item| written(item, required, optional));
        let described: Vec<Value> = described.collect();
        if !described.is_empty() {
            found.insert(key.to_owned(), json!(described));
        }
    }
    if let Some(annotations) = csv.pointer("/metadata/annotations") {
        found.insert("annotations".to_owned(), annotations.clone());
    }
    for (key, required) in [
        ("customresourcedefinitions", &["name", "version", "kind"][..]),
        ("apiservicedefinitions", &["name", "group", "version", "kind"]),
    ] {
        let mut definitions = Map::new();
        for list in ["owned", "required"] {
            let pointer = format!("/{key}/{list}");
            let described: Vec<Value> = items(spec, &pointer)
                .map(|item| written(item, required, &["displayName", "description"]))
                .collect();
            if !described.is_empty() {
                definitions.insert(list.to_owned(), json!(described));
            }
        }
        found.insert(key.to_owned(), Value::Object(definitions));
    }
    let native = items(spec, "/nativeAPIs").map(|item| written(item, &["group", "version", "kind"], &[]));
    let native: Vec<Value> = native.collect();
    if !native.is_empty() {
        found.insert("nativeApis".to_owned(), json!(native));
    }
    let images = images(spec);
    if !images.is_empty() {
        found.insert("relatedImages".to_owned(), json!(images));
    }
    Value::Object(found)
}

/// The images that a ClusterServiceVersion names, and those of its containers where it has Deployments.
fn images(spec: &Value) -> BTreeSet<&str> {
    let has_pods = text(spec, "/install/strategy") == "deployment";
    let pods = items(spec, "/install/spec/deployments").filter(|_| has_pods);
    let containers = pods.flat_map(|pod| {
        let own = items(pod, "/spec/template/spec/containers");
        own.chain(items(pod, "/spec/template/spec/initContainers"))
    });
    items(spec, "/relatedImages")
        .chain(containers)
        .map(|holder| text(holder, "/image"))
        .collect()
}

/// A ClusterServiceVersion in JSON, where it can be read.
fn csv_of(json: &str) -> Option<Value> {
    let csv: Value = serde_json::from_str(json).ok()?;
    let version = csv.pointer("/spec/version").filter(|version| !version.is_null());
    let is_readable = csv.is_object()
        && version.is_none_or(|version| version.as_str().is_some_and(|text| parse_tolerant(text).is_ok()));
    is_readable.then_some(csv)
}

/// An object with these fields. Those that are required are written even where they are empty.
fn written(object: &Value, required: &[&str], optional: &[&str]) -> Value {
    let mut fields = Map::new();
    for key in required {
        let value = object.get(*key).filter(|value| !value.is_null());
        let nothing = || {
            if *key == "supported" {
                json!(false)
            } else {
                json!("")
            }
        };
        fields.insert((*key).to_owned(), value.cloned().unwrap_or_else(nothing));
    }
    for key in optional {
        let value = object.get(*key).filter(|value| !value.is_null() && **value != "");
        fields.extend(value.map(|value| ((*key).to_owned(), value.clone())));
    }
    Value::Object(fields)
}
