//! `olm.package`: what users choose from a catalog.

use crate::base64_text;
use crate::decode::{Decode, List, ShapeError, decode, decode_object};
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
    /// When a field has the wrong type or the icon is not base64.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        decode(text)
    }
}

/// A picture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Icon {
    /// The bytes of the image.
    pub data: Vec<u8>,
    /// The media type, such as `image/svg+xml`; empty when it was not given.
    pub media_type: String,
}

impl Decode for Icon {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut icon = Self::default();
        crate::decode::members(raw, |key, value| {
            match key {
                "base64data" => {
                    icon.data = base64_text::decode(&decode::<String>(value)?)
                        .map_err(|error| ShapeError::new(format!("must be base64: {error}")))?;
                }
                "mediatype" => icon.media_type = decode(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(icon)
    }
}
