//! `olm.package`: the unit that users choose from a catalog.

use olm_version::quoted;

use crate::base64_text;
use crate::blob::property::Property;
use crate::decode::{List, ShapeError, decode, decode_object};

/// An `olm.package` blob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    /// The name, an RFC 1123 label that is unique in the catalog.
    pub name: String,
    /// The channel that is meant when none is named.
    pub default_channel: String,
    /// The icon, if there is one.
    pub icon: Option<Icon>,
    /// The publisher's description of the package.
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
    /// The bytes of the image as base64, see [`Icon::data`]; `None` if the catalog has none, which is written as null.
    pub base64_data: Option<String>,
    /// The media type, such as `image/svg+xml`; empty when it was not given.
    pub media_type: String,
}
decode_object!(Icon { "base64data" => base64_data, "mediatype" => media_type });

impl Icon {
    /// The icon of these bytes.
    pub fn of(bytes: &[u8], media_type: &str) -> Self {
        Self {
            base64_data: Some(base64_text::encode(bytes)),
            media_type: media_type.to_owned(),
        }
    }

    /// The media type of an image by its first bytes; `None` if browsers do not show such an image.
    pub fn media_type_of(bytes: &[u8]) -> Option<&'static str> {
        let start = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
            [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
            [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
            _ if String::from_utf8_lossy(start).contains("<svg") => Some("image/svg+xml"),
            _ => None,
        }
    }

    /// The reason why clients cannot show the picture: it has no data, is not an image, or has another media type.
    /// [`Icon::data`] checks the base64 encoding.
    pub fn fault(&self) -> Option<String> {
        let data = self.data().ok()?;
        if data.is_empty() {
            return Some("the icon has no data".to_owned());
        }
        let found = Self::media_type_of(&data);
        match (found, self.media_type.as_str()) {
            (None, _) => Some("the icon data is not an image".to_owned()),
            (Some(found), "") => Some(format!("the icon has no media type; its data is {found}")),
            (Some(found), given) if found != given => Some(format!(
                "the media type of the icon is {}, but its data is {found}",
                quoted(given)
            )),
            _ => None,
        }
    }

    /// The bytes of the image.
    ///
    /// # Errors
    /// When they are not base64.
    pub fn data(&self) -> Result<Vec<u8>, ShapeError> {
        base64_text::decode(self.base64_data.as_deref().unwrap_or_default())
            .map_err(|error| ShapeError::new(format!("must be base64: {error}")).within("base64data"))
    }
}
