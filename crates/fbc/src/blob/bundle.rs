//! `olm.bundle`: one installable version.

use crate::blob::property::{Property, TYPE_BUNDLE_OBJECT};
use crate::decode::{List, ShapeError, decode, decode_object};

/// An `olm.bundle` blob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The name, unique in the package.
    pub name: String,
    /// The package that the bundle belongs to.
    pub package: String,
    /// The reference of the bundle image.
    pub image: String,
    /// The identity of the bundle, its APIs and its requirements.
    pub properties: List<Property>,
    /// The images that the bundle's workloads use.
    pub related_images: List<RelatedImage>,
}
decode_object!(Bundle {
    "name" => name,
    "package" => package,
    "image" => image,
    "properties" => properties,
    "relatedimages" => related_images,
});

impl Bundle {
    /// Reads a bundle from the JSON text of its blob. The values of properties stay text.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        decode(text)
    }

    /// The manifests in the properties of the bundle, in order.
    ///
    /// # Errors
    /// When one of them is not base64; the path is then that of the property.
    pub fn objects(&self) -> Result<Vec<Vec<u8>>, ShapeError> {
        self.properties
            .iter()
            .enumerate()
            .filter(|(_, property)| property.kind == TYPE_BUNDLE_OBJECT)
            .map(|(index, property)| {
                property
                    .bundle_object()
                    .map_err(|error| error.within("value").within(&format!("properties[{index}]")))
            })
            .collect()
    }
}

/// An image that a bundle's workloads use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelatedImage {
    /// The purpose of the image.
    pub name: String,
    /// The reference of the image.
    pub image: String,
}
decode_object!(RelatedImage { "name" => name, "image" => image });
