//! `olm.package`: what users choose from a catalog.

use crate::base64_text;
use crate::decode::{List, ShapeError, decode, decode_object};
use crate::property::Property;

/// An `olm.package` blob (requirement 2.21).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    /// The name, an RFC 1123 label that is unique in the catalog.
    pub name: String,
    /// The channel that is meant when none is named.
    pub default_channel: String,
    /// The icon, if there is one.
    pub icon: Option<Icon>,
    /// What the package is, in the words of its publisher.
    pub description: String,
    /// Further facts.
    pub properties: List<Property>,
}
decode_object!(Package {
    "name" => name,
    "defaultchannel" => default_channel,
    "icon" => icon,
    "description" => description,
    "properties" => properties,
});

impl Package {
    /// Reads a package from the JSON text of its blob.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        decode(text)
    }
}

/// A picture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Icon {
    /// The bytes of the image as base64; see [`Icon::data`].
    pub base64_data: String,
    /// The media type, such as `image/svg+xml`; empty when it was not given.
    pub media_type: String,
}
decode_object!(Icon { "base64data" => base64_data, "mediatype" => media_type });

impl Icon {
    /// The icon of these bytes.
    pub fn of(bytes: &[u8], media_type: &str) -> Self {
        Self {
            base64_data: base64_text::encode(bytes),
            media_type: media_type.to_owned(),
        }
    }

    /// The bytes of the image.
    ///
    /// # Errors
    /// When they are not base64.
    pub fn data(&self) -> Result<Vec<u8>, ShapeError> {
        base64_text::decode(&self.base64_data)
            .map_err(|error| ShapeError::new(format!("must be base64: {error}")).within("base64data"))
    }
}
