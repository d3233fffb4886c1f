//! From files to a [`Bundle`] (requirements 3.02, 3.05, 3.10).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::annotations::{Annotations, REGISTRY_V1};
use crate::bundle::Bundle;
use crate::dependencies::{self, DependencyError};
use crate::media_type::Format;
use crate::members::member;
use crate::properties::{self, PropertyError};

/// The files of a bundle: path relative to the bundle's root, with `/` between the parts, to content.
pub type BundleFiles = BTreeMap<String, Vec<u8>>;

pub(crate) const ANNOTATIONS: &str = "metadata/annotations.yaml";
const PROPERTIES: &str = "metadata/properties.yaml";
const DEPENDENCIES: &str = "metadata/dependencies.yaml";
const MANIFESTS: &str = "manifests/";

/// Objects of one bundle beyond which it is refused.
const MAX_OBJECTS: usize = 10_000;

/// A bundle cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A file or directory that every bundle has is absent.
    #[error("open {0}: file does not exist")]
    Missing(&'static str),
    /// `metadata/annotations.yaml` is not YAML.
    #[error("{ANNOTATIONS} cannot be read")]
    Annotations(#[source] olm_yaml::Error),
    /// `metadata/annotations.yaml` is not a mapping of annotations.
    #[error("{ANNOTATIONS} is not a mapping of annotations")]
    NoAnnotations,
    /// The bundle is of another format (T-3B-03).
    #[error("{0} are not supported, only bundles of media type {REGISTRY_V1:?} are")]
    MediaType(Format),
    /// `manifests` has directories.
    #[error(
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: \
         found {0:?}"
    )]
    Subdirectory(String),
    /// A manifest is neither YAML nor JSON.
    #[error("error parsing objects in {path:?}: {source}")]
    Manifest {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: olm_yaml::Error,
    },
    /// A manifest holds something that is no Kubernetes object.
    #[error("error parsing objects in {path:?}: {fault}")]
    Object {
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: String,
    },
    /// There are more objects than any operator has.
    #[error("the bundle has more than {MAX_OBJECTS} objects")]
    TooManyObjects,
    /// There is no ClusterServiceVersion (T-3A-01).
    #[error("no ClusterServiceVersion found in \"manifests\"")]
    NoClusterServiceVersion,
    /// There are several, and which one counts would be a guess (requirement 3.05).
    #[error("a bundle has exactly one ClusterServiceVersion, found {}: {}", .0.len(), .0.join(", ").replace(char::is_control, " "))]
    SeveralClusterServiceVersions(Vec<String>),
    /// Fields of the ClusterServiceVersion have values that they cannot have: which, and what is wrong.
    #[error("the ClusterServiceVersion cannot be read: {}", .0.join("; ").replace(char::is_control, " "))]
    ClusterServiceVersion(Vec<String>),
    /// The annotation `olm.properties` is not JSON.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotation(serde_json::Error),
    /// The annotation `olm.properties` is no list of properties.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotationContent(PropertyError),
    /// `metadata/properties.yaml` is not YAML.
    #[error("failed to unmarshal {PROPERTIES}: {0}")]
    Properties(olm_yaml::Error),
    /// `metadata/properties.yaml` is no list of properties.
    #[error("failed to unmarshal {PROPERTIES}: {0}")]
    PropertiesContent(PropertyError),
    /// `metadata/dependencies.yaml` is not YAML, so that what the bundle needs is unknown.
    #[error("{DEPENDENCIES} cannot be read: {0}")]
    Dependencies(olm_yaml::Error),
    /// `metadata/dependencies.yaml` is no list of dependencies.
    #[error("{DEPENDENCIES} cannot be read: {0}")]
    DependenciesContent(DependencyError),
}

impl ParseError {
    /// A stable name of the reason, for counting.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing(_) => "file-missing",
            Self::Annotations(_) | Self::NoAnnotations => "annotations-unreadable",
            Self::MediaType(_) => "media-type",
            Self::Subdirectory(_) => "subdirectory",
            Self::Manifest { .. } | Self::Object { .. } => "manifest-unreadable",
            Self::TooManyObjects => "too-many-objects",
            Self::NoClusterServiceVersion => "no-csv",
            Self::SeveralClusterServiceVersions(_) => "several-csvs",
            Self::ClusterServiceVersion(_) => "csv-unreadable",
            Self::PropertiesAnnotation(_)
            | Self::PropertiesAnnotationContent(_)
            | Self::Properties(_)
            | Self::PropertiesContent(_) => "properties-unreadable",
            Self::Dependencies(_) | Self::DependenciesContent(_) => "dependencies-unreadable",
        }
    }
}

/// Reads the files of a bundle. `labels` are those of the image; they fill in what `metadata/annotations.yaml` leaves
/// out (requirement 3.11).
///
/// # Errors
/// When the files are not one registry+v1 bundle.
pub fn parse(files: &BundleFiles, labels: &BTreeMap<String, String>) -> Result<Bundle, ParseError> {
    let annotations = read_annotations(files, labels)?;
    let Objects {
        csvs,
        definitions,
        others,
    } = read_manifests(files)?;
    let csv = match csvs.as_slice() {
        [] => return Err(ParseError::NoClusterServiceVersion),
        [csv] => csv,
        several => {
            let names = several.iter().map(|csv| object_name(csv).to_owned()).collect();
            return Err(ParseError::SeveralClusterServiceVersions(names));
        }
    };
    let is_given = files.get(PROPERTIES).is_some_and(|content| !content.is_empty());
    let from_file = match read_optional(files, PROPERTIES).map_err(ParseError::Properties)? {
        Some(document) if is_given => {
            let list = match &document {
                Value::Object(fields) => member(fields, "properties").unwrap_or(&Value::Null),
                Value::Null => &Value::Null,
                // A list that is not called `properties` must not be lost.
                _ => return Err(ParseError::PropertiesContent(PropertyError::NotAList)),
            };
            Some(properties::read_list(list).map_err(ParseError::PropertiesContent)?)
        }
        _ => None,
    };
    let needed = match read_optional(files, DEPENDENCIES).map_err(ParseError::Dependencies)? {
        None => Vec::new(),
        Some(document) => dependencies::from_file(&document).map_err(ParseError::DependenciesContent)?,
    };
    Bundle::assemble(annotations, csv, definitions, others, from_file, needed)
}

fn read_optional(files: &BundleFiles, path: &str) -> Result<Option<Value>, olm_yaml::Error> {
    files.get(path).map(olm_yaml::to_json).transpose()
}

fn read_annotations(
    files: &BundleFiles,
    labels: &BTreeMap<String, String>,
) -> Result<Annotations, ParseError> {
    let document = read_optional(files, ANNOTATIONS).map_err(ParseError::Annotations)?;
    let absent = document.is_none();
    let annotations =
        Annotations::new(&document.unwrap_or_default(), labels).ok_or(ParseError::NoAnnotations)?;
    match Format::of(annotations.media_type()) {
        Format::RegistryV1 if absent => Err(ParseError::Missing(ANNOTATIONS)),
        Format::RegistryV1 => Ok(annotations),
        other => Err(ParseError::MediaType(other)),
    }
}

#[derive(Default)]
struct Objects {
    csvs: Vec<Value>,
    definitions: Vec<Value>,
    others: Vec<Value>,
}

impl Objects {
    fn len(&self) -> usize {
        self.csvs.len() + self.definitions.len() + self.others.len()
    }
}

fn read_manifests(files: &BundleFiles) -> Result<Objects, ParseError> {
    let mut objects = Objects::default();
    let mut found = false;
    for (path, content) in files {
        let Some(name) = path.strip_prefix(MANIFESTS) else {
            continue;
        };
        found = true;
        if let Some((directory, _)) = name.split_once('/') {
            return Err(ParseError::Subdirectory(format!("{MANIFESTS}{directory}")));
        }
        read_manifest(path, content, &mut objects)?;
    }
    if found {
        Ok(objects)
    } else {
        Err(ParseError::Missing("manifests"))
    }
}

fn read_manifest(path: &str, content: &[u8], objects: &mut Objects) -> Result<(), ParseError> {
    let unreadable = |source| ParseError::Manifest {
        path: path.to_owned(),
        source,
    };
    for document in olm_yaml::documents(content, &olm_yaml::Limits::default()) {
        let document = document.map_err(unreadable)?;
        let line = document.line;
        let value = document.into_value().map_err(unreadable)?;
        // Text between two separators may be nothing but comments.
        if value.is_null() {
            continue;
        }
        for object in flatten(value) {
            if let Some(fault) = object_fault(&object) {
                let fault = format!("the object of line {line} {fault}");
                return Err(ParseError::Object {
                    path: path.to_owned(),
                    fault,
                });
            }
            match object.get("kind").and_then(Value::as_str) {
                Some("ClusterServiceVersion") => objects.csvs.push(object),
                Some("CustomResourceDefinition") => objects.definitions.push(object),
                _ => objects.others.push(object),
            }
            if objects.len() > MAX_OBJECTS {
                return Err(ParseError::TooManyObjects);
            }
        }
    }
    Ok(())
}

/// The items of a list, which lend their kind and version from it where they have none; otherwise the object.
pub(crate) fn flatten(mut value: Value) -> Vec<Value> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some(Value::Array(_)) = value.get("items") else {
        return vec![value];
    };
    let kind = text(&value, "kind").and_then(|kind| kind.strip_suffix("List").map(str::to_owned));
    let version = text(&value, "apiVersion");
    let Some(Value::Array(mut items)) = value.get_mut("items").map(Value::take) else {
        return vec![value];
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let inherited = [
            ("kind", kind.as_deref().filter(|kind| !kind.is_empty())),
            ("apiVersion", version.as_deref()),
        ];
        for (field, inherited) in inherited {
            if let Some(inherited) = inherited
                && !item.contains_key(field)
            {
                item.insert(field.to_owned(), inherited.into());
            }
        }
    }
    items
}

/// What keeps a document from being an object that could be applied.
fn object_fault(object: &Value) -> Option<String> {
    let field = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = field("kind");
    if !object.is_object() {
        return Some("is not a mapping".to_owned());
    }
    if kind.is_empty() {
        return Some("has no kind".to_owned());
    }
    if field("apiVersion").is_empty() {
        return Some(format!("({kind} {:?}) has no apiVersion", object_name(object)));
    }
    if object_name(object).is_empty() {
        return Some(format!("({kind}) has no name"));
    }
    None
}

/// The object's `metadata.name`, or the empty text.
pub(crate) fn object_name(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
