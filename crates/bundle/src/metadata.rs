//! Metadata of a bundle besides its manifests: the files in `metadata`, and the labels of its image.

mod annotations;
pub(crate) mod dependencies;
pub mod media_type;
mod members;
mod properties;

pub use annotations::{Annotations, REGISTRY_V1, annotation_keys};
pub use dependencies::{
    DEPENDENCY_PROPERTIES, DeclaredIn, Dependency, DependencyError, from_file as read_dependencies,
};
pub use members::member;
pub use properties::{Property, PropertyError, read_list as read_properties};
