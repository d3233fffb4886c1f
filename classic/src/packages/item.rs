//! A PackageManifest as it is kept: as bytes, so that sending it costs little, compressed, so that keeping it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use olm_classic::cluster::text;
use olm_classic::names;
use olm_classic::package_manifest::{Icon, PackageManifest};
use serde_json::{Value, json};

/// Texts below this size are kept as they are.
const WORTH_PACKING: usize = 512;
/// The compression level: higher ones gain little here.
const LEVEL: i32 = 3;

/// Data that the PackageManifests of a CatalogSource share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its display name.
    pub(super) display_name: String,
    /// Its creation time, as on the wire; JSON.
    created: String,
}

impl Source {
    /// The fields of a CatalogSource that PackageManifests need.
    pub(super) fn new(object: &Value) -> Self {
        let created = object.pointer("/metadata/creationTimestamp");
        Self {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            display_name: text(object, "/spec/displayName").to_owned(),
            created: created.map_or_else(|| "null".to_owned(), Value::to_string),
        }
    }

    /// Its creation time.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.created.trim_matches('"').parse().ok()
    }
}

/// Bytes that are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PackedBytes {
    Plain(Box<[u8]>),
    Zstd { bytes: Box<[u8]>, size: usize },
}

impl PackedBytes {
    fn new(bytes: Vec<u8>) -> Self {
        let size = bytes.len();
        let packed = (size >= WORTH_PACKING).then(|| zstd::bulk::compress(&bytes, LEVEL).ok());
        match packed.flatten().filter(|packed| packed.len() < size) {
            Some(packed) => Self::Zstd {
                bytes: packed.into_boxed_slice(),
                size,
            },
            None => Self::Plain(bytes.into_boxed_slice()),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Zstd { size, .. } => *size,
        }
    }

    fn kept(&self) -> usize {
        match self {
            Self::Plain(bytes) | Self::Zstd { bytes, .. } => bytes.len(),
        }
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        match self {
            Self::Plain(bytes) => text.extend_from_slice(bytes),
            Self::Zstd { bytes, size } => match zstd::bulk::decompress(bytes, *size) {
                Ok(unpacked) => text.extend_from_slice(&unpacked),
                // Data that this process compressed is never malformed.
                Err(error) => tracing::error!(%error, "cannot unpack a package"),
            },
        }
    }
}

/// The picture of a package, as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredIcon {
    /// Its media type.
    pub(super) media_type: String,
    /// Its entity tag.
    pub(super) tag: String,
    body: PackedBytes,
}

impl StoredIcon {
    fn new(picture: Icon) -> Self {
        Self {
            media_type: picture.media_type,
            tag: picture.tag,
            body: PackedBytes::new(picture.body),
        }
    }

    /// Its bytes.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body.size());
        self.body.append_to(&mut body);
        body
    }
}

/// A PackageManifest.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// The CatalogSource that it comes from.
    pub(super) source: Arc<Source>,
    /// Its name.
    pub(super) name: Box<str>,
    /// Its resourceVersion: when it changed last.
    pub(super) version: u64,
    /// Its resourceVersion when it was new.
    pub(super) since: u64,
    /// The picture of the package.
    pub(super) picture: Option<Arc<StoredIcon>>,
    /// JSON.
    labels: Box<[u8]>,
    /// JSON.
    status: PackedBytes,
}

impl Item {
    /// Takes a PackageManifest apart. It has no resourceVersion yet.
    pub(super) fn new(source: &Arc<Source>, manifest: PackageManifest) -> Self {
        let field = |pointer: &str| {
            let value = manifest.object.pointer(pointer);
            value
                .map_or_else(|| "{}".to_owned(), Value::to_string)
                .into_bytes()
        };
        Self {
            source: Arc::clone(source),
            name: text(&manifest.object, "/metadata/name").into(),
            version: 0,
            since: 0,
            labels: field("/metadata/labels").into_boxed_slice(),
            status: PackedBytes::new(field("/status")),
            picture: manifest.picture.map(|picture| Arc::new(StoredIcon::new(picture))),
        }
    }

    /// Whether clients see no difference.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.status == other.status
            && self.picture == other.picture
            && self.source == other.source
    }

    /// The item after its deletion.
    pub(super) fn gone(&self, version: u64) -> Self {
        let source = &self.source;
        let status = json!({
            "catalogSource": source.name, "catalogSourceNamespace": source.namespace, "packageName": self.name,
        });
        Self {
            version,
            status: PackedBytes::new(status.to_string().into_bytes()),
            picture: None,
            ..self.clone()
        }
    }

    /// The bytes that it takes, roughly.
    pub(super) fn size(&self) -> usize {
        let picture = self.picture.as_ref().map_or(0, |picture| picture.body.kept());
        size_of::<Self>() + self.labels.len() + self.status.kept() + picture
    }

    /// Its labels.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        serde_json::from_slice(&self.labels).unwrap_or_default()
    }

    /// Appends its metadata (JSON) as it is shown in a namespace.
    fn append_metadata(&self, namespace: &str, json: &mut Vec<u8>) {
        let name = Value::from(self.name.as_ref());
        let namespace = Value::from(namespace);
        let (version, created) = (self.version, &self.source.created);
        let begin = format!(
            r#"{{"name":{name},"namespace":{namespace},"resourceVersion":"{version}","creationTimestamp":{created},"labels":"#
        );
        json.extend_from_slice(begin.as_bytes());
        json.extend_from_slice(&self.labels);
        json.push(b'}');
    }

    /// The object (JSON) as it is shown in a namespace. Items of a list do not name their type.
    pub(super) fn object(&self, namespace: &str, is_in_list: bool) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.status.size() + self.labels.len() + 512);
        json.push(b'{');
        if !is_in_list {
            let (version, kind) = (names::PACKAGE_API_VERSION, names::PACKAGE_MANIFEST_KIND);
            json.extend_from_slice(format!(r#""kind":"{kind}","apiVersion":"{version}","#).as_bytes());
        }
        json.extend_from_slice(br#""metadata":"#);
        self.append_metadata(namespace, &mut json);
        json.extend_from_slice(br#","spec":{},"status":"#);
        self.status.append_to(&mut json);
        json.push(b'}');
        json
    }

    /// Its metadata alone (JSON) as it is shown in a namespace.
    pub(super) fn partial(&self, namespace: &str) -> Vec<u8> {
        let mut json =
            br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#.to_vec();
        self.append_metadata(namespace, &mut json);
        json.push(b'}');
        json
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The source of a namespace and name.
    pub(crate) fn source(namespace: &str, name: &str) -> Arc<Source> {
        Arc::new(Source::new(&json!({
            "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"displayName": "A catalog"},
        })))
    }

    /// An item with these labels and this text in its status.
    pub(crate) fn item(source: &Arc<Source>, name: &str, labels: &Value, text: &str) -> Item {
        let object = json!({
            "metadata": {"name": name, "labels": labels}, "status": {"packageName": name, "text": text},
        });
        Item::new(
            source,
            PackageManifest {
                object,
                picture: None,
            },
        )
    }

    #[test]
    fn an_item_is_shown_in_the_namespace_that_asks() {
        let long = "description ".repeat(1000);
        let item = item(&source("olm", "c"), "p\"", &json!({"catalog": "c"}), &long);
        assert!(matches!(item.status, PackedBytes::Zstd { .. }));
        let object: Value = serde_json::from_slice(&item.object("n", false)).unwrap();
        let metadata = json!({
            "name": "p\"", "namespace": "n", "resourceVersion": "0", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"catalog": "c"},
        });
        assert_eq!(
            object,
            json!({
                "kind": "PackageManifest", "apiVersion": "packages.operators.coreos.com/v1", "metadata": metadata,
                "spec": {}, "status": {"packageName": "p\"", "text": long},
            })
        );
        let partial: Value = serde_json::from_slice(&item.partial("n")).unwrap();
        assert_eq!(partial["metadata"], metadata);
        let listed: Value = serde_json::from_slice(&item.object("n", true)).unwrap();
        assert_eq!(listed.get("kind"), None);
        assert_eq!(item.labels()["catalog"], "c");
    }

    #[test]
    fn an_item_that_is_gone_keeps_no_content() {
        let found = item(&source("olm", "c"), "p", &json!({}), &"x".repeat(4096));
        let gone: Value = serde_json::from_slice(&found.gone(9).object("olm", false)).unwrap();
        assert_eq!(gone["metadata"]["resourceVersion"], "9");
        assert_eq!(
            gone["status"],
            json!({"catalogSource": "c", "catalogSourceNamespace": "olm", "packageName": "p"})
        );
        assert!(found.is_same(&found.clone()) && !found.is_same(&found.gone(9)));
    }
}
