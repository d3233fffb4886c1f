//! The files of a bundle and their paths.

use std::collections::BTreeMap;

/// The files of a bundle: path relative to the bundle's root, with `/` between the parts, to content.
pub type BundleFiles = BTreeMap<String, Vec<u8>>;

/// The directories of a bundle image.
pub const DIRECTORIES: [&str; 2] = ["manifests", "metadata"];

/// The file with the annotations.
pub(crate) const ANNOTATIONS: &str = "metadata/annotations.yaml";
/// The file with the properties.
pub(crate) const PROPERTIES: &str = "metadata/properties.yaml";
/// The file with the dependencies.
pub(crate) const DEPENDENCIES: &str = "metadata/dependencies.yaml";
/// The directory with the manifests.
pub(crate) const MANIFESTS: &str = "manifests/";
