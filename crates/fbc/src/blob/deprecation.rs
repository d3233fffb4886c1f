//! `olm.deprecations`: the deprecated parts of a package.

use crate::decode::{List, ShapeError, decode, decode_object};

/// An `olm.deprecations` blob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deprecations {
    /// The package that the entries are about.
    pub package: String,
    /// A name, which the blob must not have.
    pub name: Option<String>,
    /// The deprecations with their messages.
    pub entries: List<DeprecationEntry>,
}
decode_object!(Deprecations { "package" => package, "name" => name, "entries" => entries });

impl Deprecations {
    /// Reads deprecations from the JSON text of their blob.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        decode(text)
    }
}

/// One deprecation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeprecationEntry {
    /// The deprecated package, channel or bundle.
    pub reference: Reference,
    /// The reason and the alternative; opaque text for users.
    pub message: String,
}
decode_object!(DeprecationEntry { "reference" => reference, "message" => message });

/// A package, channel or bundle, seen from within its package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// `olm.package`, `olm.channel` or `olm.bundle`.
    pub schema: String,
    /// The name of the channel or bundle; empty for the package.
    pub name: String,
}
decode_object!(Reference { "schema" => schema, "name" => name });
