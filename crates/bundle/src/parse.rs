//! Parses files into a [`Bundle`].

use std::collections::BTreeMap;

use olm_api::names::annotation::PROPERTIES as PROPERTIES_ANNOTATION;
use olm_api::text::escape;
use serde_json::Value;

use crate::bundle::Bundle;
use crate::csv::ClusterServiceVersion;
use crate::files::{ANNOTATIONS, BundleFiles, DEPENDENCIES, MANIFESTS, PROPERTIES};
use crate::metadata::media_type::Format;
use crate::metadata::{
    Annotations, Dependency, DependencyError, Property, PropertyError, REGISTRY_V1, dependencies, member,
    read_dependencies, read_properties,
};
use crate::names::go_json;
use crate::object::{flatten, object_name, text};
use crate::reader;

/// The most objects of one bundle.
const MAX_OBJECTS: usize = 10_000;

/// The reason why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A required file or directory is absent.
    #[error("open {0}: file does not exist")]
    Missing(&'static str),
    /// `metadata/annotations.yaml` is not YAML.
    #[error("{ANNOTATIONS} cannot be read")]
    Annotations(#[source] olm_yaml::Error),
    /// `metadata/annotations.yaml` has no mapping of annotations.
    #[error("{ANNOTATIONS} is not a mapping of annotations")]
    NoAnnotations,
    /// The bundle has another format.
    #[error("{0} are not supported, only bundles of media type {REGISTRY_V1:?} are")]
    MediaType(Format),
    /// `manifests` has subdirectories.
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
        /// The error.
        source: olm_yaml::Error,
    },
    /// A manifest is not a Kubernetes object.
    #[error("error parsing objects in {path:?}: {fault}")]
    Object {
        /// The file.
        path: String,
        /// The fault.
        fault: String,
    },
    /// There are too many objects.
    #[error("the bundle has more than {MAX_OBJECTS} objects")]
    TooManyObjects,
    /// There is no ClusterServiceVersion.
    #[error("no ClusterServiceVersion found in \"manifests\"")]
    NoClusterServiceVersion,
    /// There are several ClusterServiceVersions.
    #[error("a bundle has exactly one ClusterServiceVersion, found {}: {}", .0.len(), escape(&.0.join(", ")))]
    SeveralClusterServiceVersions(Vec<String>),
    /// Fields of the ClusterServiceVersion have invalid values, with all faults.
    #[error("the ClusterServiceVersion cannot be read: {}", escape(&.0.join("; ")))]
    ClusterServiceVersion(Vec<String>),
    /// The annotation `olm.properties` is not JSON.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotation(serde_json::Error),
    /// The annotation `olm.properties` is not a list of properties.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotationContent(PropertyError),
    /// `metadata/properties.yaml` is not YAML.
    #[error("failed to unmarshal {PROPERTIES}: {0}")]
    Properties(olm_yaml::Error),
    /// `metadata/properties.yaml` is not a list of properties.
    #[error("failed to unmarshal {PROPERTIES}: {0}")]
    PropertiesContent(PropertyError),
    /// `metadata/dependencies.yaml` is not YAML, so the dependencies are unknown.
    #[error("{DEPENDENCIES} cannot be read: {0}")]
    Dependencies(olm_yaml::Error),
    /// `metadata/dependencies.yaml` is not a list of dependencies.
    #[error("{DEPENDENCIES} cannot be read: {0}")]
    DependenciesContent(DependencyError),
}

impl ParseError {
    /// The metadata file that is not YAML, with the error.
    #[must_use]
    pub fn unreadable(&self) -> Option<(&'static str, &olm_yaml::Error)> {
        match self {
            Self::Annotations(error) => Some((ANNOTATIONS, error)),
            Self::Properties(error) => Some((PROPERTIES, error)),
            Self::Dependencies(error) => Some((DEPENDENCIES, error)),
            _ => None,
        }
    }

    /// The name of the reason in metrics.
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

/// Reads the files of a bundle. `labels` are those of the image, which complete `metadata/annotations.yaml`.
///
/// # Errors
/// The files are not exactly one registry+v1 bundle.
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
                // A list under another name than `properties` must not be ignored.
                _ => return Err(ParseError::PropertiesContent(PropertyError::NotAList)),
            };
            Some(read_properties(list).map_err(ParseError::PropertiesContent)?)
        }
        _ => None,
    };
    let needed = match read_optional(files, DEPENDENCIES).map_err(ParseError::Dependencies)? {
        None => Vec::new(),
        Some(document) => read_dependencies(&document).map_err(ParseError::DependenciesContent)?,
    };
    Bundle::assemble(annotations, csv, definitions, others, from_file, needed)
}

impl Bundle {
    /// A bundle from parsed objects. The runner of the recorded cases calls it.
    ///
    /// # Errors
    /// The ClusterServiceVersion has fields of wrong types or an unreadable `olm.properties` annotation.
    pub fn from_objects(
        annotations: Annotations,
        csv: &Value,
        definitions: Vec<Value>,
        others: Vec<Value>,
    ) -> Result<Self, ParseError> {
        Self::assemble(annotations, csv, definitions, others, None, Vec::new())
    }

    fn assemble(
        annotations: Annotations,
        csv: &Value,
        definitions: Vec<Value>,
        others: Vec<Value>,
        file_properties: Option<Vec<Property>>,
        file_dependencies: Vec<Dependency>,
    ) -> Result<Self, ParseError> {
        let mut csv = reader::csv::read(csv).map_err(ParseError::ClusterServiceVersion)?;
        let properties = merge_properties(&mut csv, file_properties)?;
        let mut found = file_dependencies;
        found.extend(dependencies::from_properties(&properties));
        found.extend(dependencies::from_required_apis(
            &csv.spec.custom_resource_definitions.required,
        ));
        found.extend(dependencies::from_required_apis(
            &csv.spec.api_service_definitions.required,
        ));
        Ok(Self {
            annotations,
            csv,
            definitions,
            others,
            properties,
            dependencies: found,
        })
    }
}

/// Appends the file's properties to those of the annotation and writes all into the annotation. Without a file the
/// annotation stays; without a property it becomes `null`, exactly as in the operators that the reference
/// implementation has installed. Another annotation would restart their Pods when they are taken over.
fn merge_properties(
    csv: &mut ClusterServiceVersion,
    from_file: Option<Vec<Property>>,
) -> Result<Vec<Property>, ParseError> {
    let mut properties = match csv.metadata.annotations.get(PROPERTIES_ANNOTATION) {
        None => Vec::new(),
        Some(text) => {
            let list: Value = serde_json::from_str(text).map_err(ParseError::PropertiesAnnotation)?;
            read_properties(&list).map_err(ParseError::PropertiesAnnotationContent)?
        }
    };
    if let Some(from_file) = from_file {
        properties.extend(from_file);
        let text = match properties.as_slice() {
            [] => "null".to_owned(),
            properties => go_json(&properties),
        };
        csv.metadata
            .annotations
            .insert(PROPERTIES_ANNOTATION.to_owned(), text);
    }
    Ok(properties)
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
        // A document between two separators may consist of comments.
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

/// The reason why a document is not an object that can be applied.
fn object_fault(object: &Value) -> Option<String> {
    let kind = text(object, "/kind");
    if !object.is_object() {
        return Some("is not a mapping".to_owned());
    }
    if kind.is_empty() {
        return Some("has no kind".to_owned());
    }
    if text(object, "/apiVersion").is_empty() {
        return Some(format!("({kind} {:?}) has no apiVersion", object_name(object)));
    }
    if object_name(object).is_empty() {
        return Some(format!("({kind}) has no name"));
    }
    None
}
