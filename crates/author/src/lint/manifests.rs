//! Parses files into manifests for the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use olm_bundle::Annotations;
use olm_bundle::BundleFiles;
use olm_bundle::object::object_name;
use olm_bundle::object::text;
use olm_bundle::reader::csv::{self, Reader};
use serde_json::Value;

/// One manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The file; empty if there is none.
    pub file: String,
    /// The line of the file at which the object begins, counted from 1.
    pub line: usize,
    /// The object.
    pub value: Value,
}

/// A bundle as rules see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    /// The name of the ClusterServiceVersion.
    pub name: String,
    /// The package; empty if there are no annotations.
    pub package: String,
    /// The channels; one empty name if there are no annotations.
    pub channels: Vec<String>,
    /// The default channel; empty if it is not set.
    pub default_channel: String,
    /// The objects, file by file.
    pub objects: Vec<Object>,
    /// The bytes of all files.
    pub size: usize,
    /// The bytes of all files when each is compressed and written as text.
    pub compressed_size: usize,
}

/// The reason why files are not a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFault {
    /// There is no ClusterServiceVersion.
    #[error("unable to find a csv in bundle directory")]
    NoClusterServiceVersion,
    /// There are several in one directory.
    #[error("invalid bundle: contains multiple CSVs: {}", .0.join(", "))]
    SeveralClusterServiceVersions(Vec<String>),
    /// The manifests have a directory among them.
    #[error("bundle manifests dir contains directory: {0}")]
    Directory(String),
    /// The manifests have a hidden file among them.
    #[error("bundle manifests dir has hidden file: {0}")]
    Hidden(String),
    /// A manifest is not an object.
    #[error("unable to decode object: {file}: {fault}")]
    Manifest {
        /// The file.
        file: String,
        /// The fault.
        fault: String,
    },
    /// A field has the wrong type.
    #[error("unable to parse {kind} {file}: {fault}")]
    Field {
        /// `CSV` or `CRD`.
        kind: &'static str,
        /// The file.
        file: String,
        /// The field and its fault.
        fault: String,
    },
    /// A custom resource definition of an unknown version.
    #[error("unsupported CRD version {version} for {file}")]
    DefinitionVersion {
        /// The version.
        version: String,
        /// The file.
        file: String,
    },
}

impl LoadFault {
    /// The faulty file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Directory(file)
            | Self::Hidden(file)
            | Self::Manifest { file, .. }
            | Self::Field { file, .. }
            | Self::DefinitionVersion { file, .. } => Some(file),
            Self::NoClusterServiceVersion | Self::SeveralClusterServiceVersions(_) => None,
        }
    }

    /// The fault in that file, without further text.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Self::Manifest { fault, .. } | Self::Field { fault, .. } => Some(fault),
            _ => None,
        }
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}

/// Reads a bundle. The manifests are the files in the directory of the ClusterServiceVersion, and the annotations are
/// in a file whose name begins with `annotations`.
///
/// # Errors
/// All faults of the files.
pub fn load(files: &BundleFiles) -> Result<Manifests, Vec<LoadFault>> {
    let first = |content: &[u8]| olm_yaml::to_json(content).ok();
    let directories: BTreeSet<&str> = files
        .iter()
        .filter(|(path, _)| !is_hidden(path))
        .filter(|(_, content)| {
            first(content).is_some_and(|value| text(&value, "/kind") == "ClusterServiceVersion")
        })
        .map(|(path, _)| directory(path))
        .collect();
    let Some(root) = directories.last().copied() else {
        return Err(vec![LoadFault::NoClusterServiceVersion]);
    };
    let mut faults = Vec::new();
    let mut objects = Vec::new();
    for (path, content) in files {
        let inside = match path.strip_prefix(root) {
            Some(rest) if root.is_empty() => rest,
            Some(rest) => match rest.strip_prefix('/') {
                Some(rest) => rest,
                None => continue,
            },
            None => continue,
        };
        // The metadata of a bundle may be in the directory of its manifests.
        if root.is_empty() && inside.starts_with("metadata/") {
            continue;
        }
        if let Some((directory, _)) = inside.split_once('/') {
            faults.push(LoadFault::Directory(directory.to_owned()));
        } else if inside.starts_with('.') {
            faults.push(LoadFault::Hidden(path.clone()));
        } else {
            read(path, content, &mut objects, &mut faults);
        }
    }
    let csvs: Vec<String> = objects
        .iter()
        .filter(|object: &&Object| text(&object.value, "/kind") == "ClusterServiceVersion")
        .map(|object| object.file.clone())
        .collect();
    if csvs.len() > 1 {
        faults.push(LoadFault::SeveralClusterServiceVersions(csvs));
    }
    faults.extend(objects.iter().flat_map(type_faults));
    faults.sort();
    faults.dedup();
    if !faults.is_empty() {
        return Err(faults);
    }
    let annotations = files
        .iter()
        .filter(|(path, _)| {
            path.rsplit('/')
                .next()
                .is_some_and(|name| name.starts_with("annotations"))
        })
        .filter_map(|(_, content)| Annotations::new(&first(content)?, &BTreeMap::new()))
        .next_back()
        .unwrap_or_default();
    let channels = annotations
        .get(olm_bundle::annotation_keys::CHANNELS)
        .unwrap_or_default();
    let name = objects
        .iter()
        .find(|object| text(&object.value, "/kind") == "ClusterServiceVersion")
        .map(|object| object_name(&object.value).to_owned());
    Ok(Manifests {
        name: name.unwrap_or_default(),
        package: annotations.package().to_owned(),
        channels: channels.split(',').map(str::to_owned).collect(),
        default_channel: annotations.default_channel().unwrap_or_default().to_owned(),
        size: files.values().map(Vec::len).sum(),
        compressed_size: files.values().map(|content| compressed(content)).sum(),
        objects,
    })
}

/// The ClusterServiceVersions among the objects, with their positions.
pub(super) fn csvs(manifests: &Manifests) -> impl Iterator<Item = (usize, &Value)> {
    of_kind(manifests, "ClusterServiceVersion")
}

pub(super) fn of_kind<'a>(
    manifests: &'a Manifests,
    kind: &'static str,
) -> impl Iterator<Item = (usize, &'a Value)> {
    manifests
        .objects
        .iter()
        .enumerate()
        .map(|(at, object)| (at, &object.value))
        .filter(move |(_, value)| text(value, "/kind") == kind)
}

/// The objects of the manifests that can be read.
pub(super) fn objects(files: &BundleFiles) -> Vec<Object> {
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    for (path, content) in files {
        if path
            .strip_prefix("manifests/")
            .is_some_and(|name| !name.contains('/'))
        {
            read(path, content, &mut objects, &mut faults);
        }
    }
    objects
}

/// Reads one manifest alone.
///
/// # Errors
/// When it is not an object, or has fields of wrong types.
pub fn load_object(content: &[u8]) -> Result<Manifests, Vec<LoadFault>> {
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    read("", content, &mut objects, &mut faults);
    faults.extend(objects.iter().flat_map(type_faults));
    let name = objects
        .first()
        .map(|object| object_name(&object.value).to_owned());
    if faults.is_empty() {
        Ok(Manifests {
            name: name.unwrap_or_default(),
            objects,
            ..Manifests::default()
        })
    } else {
        Err(faults)
    }
}

/// The objects of a file. Plain values of a ClusterServiceVersion become texts if their fields require it.
fn read(path: &str, content: &[u8], objects: &mut Vec<Object>, faults: &mut Vec<LoadFault>) {
    let mut fault = |fault: String| {
        faults.push(LoadFault::Manifest {
            file: path.to_owned(),
            fault,
        });
    };
    let before = objects.len();
    for document in olm_yaml::documents(content, &olm_yaml::Limits::default()) {
        let (line, value) = match document {
            Ok(document) => (document.line, document.into_value()),
            Err(error) => return fault(error.to_string()),
        };
        match value {
            Err(error) => return fault(error.to_string()),
            Ok(Value::Null) => {}
            Ok(value) if text(&value, "/kind").is_empty() => {
                fault(format!("the object of line {line} has no kind"));
            }
            Ok(value) => objects.push(Object {
                file: path.to_owned(),
                line,
                value,
            }),
        }
    }
    if objects.len() == before && content.iter().all(u8::is_ascii_whitespace) {
        fault("the file is empty".to_owned());
    }
}

fn type_faults(object: &Object) -> Vec<LoadFault> {
    let file = object.file.clone();
    let kind = text(&object.value, "/kind");
    let version = text(&object.value, "/apiVersion");
    match kind {
        "ClusterServiceVersion" => csv::faults(&object.value, Reader::Author)
            .into_iter()
            .map(|fault| LoadFault::Field {
                kind: "CSV",
                file: file.clone(),
                fault: fault.to_string(),
            })
            .collect(),
        "CustomResourceDefinition"
            if !matches!(
                version,
                "apiextensions.k8s.io/v1" | "apiextensions.k8s.io/v1beta1"
            ) =>
        {
            vec![LoadFault::DefinitionVersion {
                version: version.to_owned(),
                file,
            }]
        }
        _ => Vec::new(),
    }
}

/// The length of the content after compression and base64 encoding.
fn compressed(content: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.map_or(0, |bytes| bytes.len().div_ceil(3) * 4)
}
