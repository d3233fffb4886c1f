//! Steps that name the unpacked bundle that holds their object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::PassInput;
use super::step_error::StepError;
use super::steps::{BundleContent, Origin, Step, StepsError, bundle_steps};
use crate::cluster::{Cluster, put, text};
use crate::names;
use crate::properties::read_annotation;

/// The largest file of an unpacked bundle, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The manifest of a step whose object stands in a ConfigMap.
#[derive(Debug, Default, Serialize, Deserialize)]
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

/// Unpacked bundles by the namespace and the name that references to them give. Their properties do not count: each
/// reference has its own.
pub type UnpackedBundles = BTreeMap<(String, String), BundleContent>;

/// A reference to an unpacked bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleReference {
    /// The namespace of its ConfigMap.
    pub namespace: String,
    /// The name of its ConfigMap.
    pub name: String,
    /// The name of the CatalogSource.
    pub catalog: String,
    /// The namespace of the CatalogSource.
    pub catalog_namespace: String,
}

/// The unpacked bundles that steps refer to.
pub fn references<'a>(steps: impl IntoIterator<Item = &'a Value>) -> BTreeSet<BundleReference> {
    let manifests: BTreeSet<&str> = steps
        .into_iter()
        .map(|step| text(step, "/resource/manifest"))
        .collect();
    let references = manifests.into_iter().filter_map(Reference::read);
    references
        .map(|reference| BundleReference {
            namespace: reference.namespace,
            name: reference.name,
            catalog: reference.catalog_source_name,
            catalog_namespace: reference.catalog_source_namespace,
        })
        .collect()
}

/// The name of the ConfigMap for the bundle with this image.
pub fn bundle_name(image: &str) -> String {
    let mut name = hex::encode(Sha256::digest(image));
    name.pop();
    name
}

/// The steps of the bundle of a lookup. In place of the objects they hold a reference to the unpacked bundle.
///
/// # Errors
/// When an object or a property cannot be read, or the ClusterServiceVersion lacks what a plan needs.
pub fn referring_steps(
    bundle: &BundleContent,
    lookup: &Value,
    namespace: &str,
) -> Result<Vec<Value>, StepsError> {
    let of = |pointer: &str| text(lookup, pointer).to_owned();
    let reference = Reference {
        kind: CONFIG_MAP.to_owned(),
        name: bundle_name(text(lookup, "/path")),
        namespace: of("/catalogSourceRef/namespace"),
        catalog_source_name: of("/catalogSourceRef/name"),
        catalog_source_namespace: of("/catalogSourceRef/namespace"),
        replaces: of("/replaces"),
        properties: of("/properties"),
    };
    let origin = reference.origin(namespace);
    let steps = bundle_steps(bundle, &origin)?;
    let reference = serde_json::to_string(&reference).unwrap_or_default();
    let steps = steps.iter().map(|step| {
        let mut step = step.to_value();
        put(&mut step, &["resource"], "manifest", reference.as_str());
        step
    });
    Ok(steps.collect())
}

const CONFIG_MAP: &str = "ConfigMap";

/// The unpacked bundles that steps refer to, each read once.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    /// The steps of a bundle by the reference to it.
    steps: BTreeMap<String, Vec<Step>>,
}

impl Bundles {
    /// The object of a step as JSON or YAML: its manifest, or the object that the manifest refers to.
    ///
    /// # Errors
    /// When the unpacked bundle does not exist, cannot be read, or does not hold the object.
    pub(super) fn manifest(
        &mut self,
        step: &Value,
        namespace: &str,
        facts: &PassInput<'_>,
    ) -> Result<String, StepError> {
        let manifest = text(step, "/resource/manifest");
        let Some(reference) = Reference::read(manifest) else {
            return Ok(manifest.to_owned());
        };
        let csv = text(step, "/resolving");
        if !self.steps.contains_key(manifest) {
            let steps = unpacked(&reference, csv, namespace, facts)?;
            self.steps.insert(manifest.to_owned(), steps);
        }
        let field = |name: &str| text(step, &format!("/resource/{name}"));
        let mut steps = self.steps.get(manifest).into_iter().flatten();
        let found = steps.find(|found| {
            [&found.group, &found.version, &found.kind, &found.name]
                == [field("group"), field("version"), field("kind"), field("name")]
        });
        let found = found.map(|found| found.manifest.to_string());
        found.ok_or_else(|| {
            StepError::Other(format!(
                "couldn't find unpacked step for {csv}: {}[{}/{}/{} ({}/{})] ({})",
                field("name"),
                field("group"),
                field("version"),
                field("kind"),
                field("sourceName"),
                field("sourceNamespace"),
                text(step, "/status"),
            ))
        })
    }
}

impl Reference {
    /// The reference in a manifest; nothing where it is an object.
    fn read(manifest: &str) -> Option<Self> {
        let reference: Self = serde_json::from_str(manifest).ok()?;
        reference.is_complete().then_some(reference)
    }

    fn is_complete(&self) -> bool {
        let parts = [
            &self.name,
            &self.namespace,
            &self.catalog_source_name,
            &self.catalog_source_namespace,
        ];
        self.kind == CONFIG_MAP && parts.iter().all(|part| !part.is_empty())
    }

    fn origin(&self, namespace: &str) -> Origin {
        Origin {
            namespace: namespace.to_owned(),
            replaces: self.replaces.clone(),
            catalog: self.catalog_source_name.clone(),
            catalog_namespace: self.catalog_source_namespace.clone(),
        }
    }
}

impl Display for Reference {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let parts = [
            &self.kind,
            &self.name,
            &self.namespace,
            &self.catalog_source_name,
            &self.catalog_source_namespace,
            &self.replaces,
            &self.properties,
        ];
        write!(formatter, "{{{}}}", parts.map(String::as_str).join(" "))
    }
}

/// The steps of the bundle that a reference names.
fn unpacked(
    reference: &Reference,
    csv: &str,
    namespace: &str,
    facts: &PassInput<'_>,
) -> Result<Vec<Step>, StepError> {
    let key = (reference.namespace.clone(), reference.name.clone());
    let content = match facts.bundles.get(&key) {
        Some(bundle) => bundle.clone(),
        None => in_config_map(reference, facts.cluster)?,
    };
    let properties = match reference.properties.as_str() {
        "" => Vec::new(),
        properties => read_annotation(properties)
            .map_err(|error| format!("failed to load bundle properties for \"{csv}\": {error}"))?,
    };
    let bundle = BundleContent {
        properties,
        ..content
    };
    let wrong =
        |error: StepsError| StepError::Other(format!("error calculating steps for ref {reference}: {error}"));
    let origin = reference.origin(namespace);
    bundle_steps(&bundle, &origin).map_err(wrong)
}

fn in_config_map(reference: &Reference, cluster: &Cluster) -> Result<BundleContent, StepError> {
    let map = cluster.get(CONFIG_MAP, &reference.namespace, &reference.name);
    let map = map.ok_or_else(|| {
        StepError::NotFound(format!(
            "error finding unpacked bundle configmap for ref {reference}: configmap \"{}\" not found",
            reference.name
        ))
    })?;
    Ok(content(map)?)
}

/// The objects of an unpacked bundle: the files in `data` and `binaryData`.
fn content(map: &Value) -> Result<BundleContent, String> {
    let name = text(map, "/metadata/name");
    let fail = |key: &str, error: &dyn Display| {
        format!("error converting bundle to json: configmap {name}, key {key}: {error}")
    };
    let is_packed = map
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(names::CONTENT_ENCODING_ANNOTATION))
        .is_some_and(|encoding| encoding == "gzip+base64");
    let mut files: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for (key, file) in entries(map, "data") {
        files.insert(key, file.as_bytes().to_vec());
    }
    for (key, file) in entries(map, "binaryData") {
        let mut bytes = STANDARD.decode(file).map_err(|error| fail(key, &error))?;
        if is_packed {
            let packed = STANDARD.decode(bytes).map_err(|error| fail(key, &error))?;
            bytes = inflated(&packed).map_err(|error| fail(key, &error))?;
        }
        files.insert(key, bytes);
    }
    let mut content = BundleContent::default();
    for (key, file) in files {
        let object = olm_yaml::to_json(file).map_err(|error| fail(key, &error))?;
        let json = object.to_string();
        if text(&object, "/kind") == names::CSV_KIND {
            content.csv.clone_from(&json);
        }
        content.objects.push(json);
    }
    Ok(content)
}

fn entries<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let files = map.get(field).and_then(Value::as_object).into_iter().flatten();
    files.map(|(key, file)| (key.as_str(), file.as_str().unwrap_or_default()))
}

/// The content of a gzip stream of at most [`MAX_FILE`] bytes.
fn inflated(packed: &[u8]) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed)
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_FILE) {
        Ok(bytes)
    } else {
        Err(std::io::Error::other(format!(
            "the file is larger than {MAX_FILE} bytes"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    fn packed(file: &[u8]) -> String {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(file).unwrap();
        STANDARD.encode(STANDARD.encode(encoder.finish().unwrap()))
    }

    fn map(file: &[u8]) -> Value {
        json!({
            "metadata": {"name": "m", "annotations": {"olm.contentEncoding": "gzip+base64"}},
            "binaryData": {"csv.yaml": packed(file)},
        })
    }

    #[test]
    fn packed_files_are_read() {
        let csv = b"kind: ClusterServiceVersion\nmetadata: {name: a}\n";
        let content = content(&map(csv)).unwrap();
        assert_eq!(
            content.csv,
            r#"{"kind":"ClusterServiceVersion","metadata":{"name":"a"}}"#
        );
        assert_eq!(content.objects, [content.csv]);
    }

    #[test]
    fn a_file_that_grows_too_large_is_refused() {
        let zeros = vec![b' '; usize::try_from(MAX_FILE).unwrap() + 1];
        let error = content(&map(&zeros)).unwrap_err();
        assert!(error.contains("key csv.yaml: the file is larger than"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_packed_as_announced_names_its_key() {
        let mut map = map(b"");
        map["binaryData"]["csv.yaml"] = json!(STANDARD.encode("plain"));
        let error = content(&map).unwrap_err();
        assert!(error.contains("configmap m, key csv.yaml"), "{error}");
    }
}
