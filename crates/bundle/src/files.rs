//! The files of a bundle, and where in it they are.

use std::collections::BTreeMap;

/// The files of a bundle: path relative to the bundle's root, with `/` between the parts, to content.
pub type BundleFiles = BTreeMap<String, Vec<u8>>;

/// The directories of a bundle image that mean something.
pub const DIRECTORIES: [&str; 2] = ["manifests", "metadata"];

/// What the bundle says about itself.
pub(crate) const ANNOTATIONS: &str = "metadata/annotations.yaml";
/// Facts about the bundle.
pub(crate) const PROPERTIES: &str = "metadata/properties.yaml";
/// What the bundle needs from others.
pub(crate) const DEPENDENCIES: &str = "metadata/dependencies.yaml";
/// The directory of the objects.
pub(crate) const MANIFESTS: &str = "manifests/";
