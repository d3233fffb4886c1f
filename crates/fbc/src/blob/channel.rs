//! `olm.channel`: a stream of bundles and the updates between them.

use crate::blob::property::Property;
use crate::decode::{List, ShapeError, decode, decode_object};

/// An `olm.channel` blob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    /// The name, unique in the package.
    pub name: String,
    /// The package that the channel belongs to.
    pub package: String,
    /// The bundles of the channel and their edges.
    pub entries: List<ChannelEntry>,
    /// Further facts.
    pub properties: List<Property>,
}
decode_object!(Channel {
    "name" => name,
    "package" => package,
    "entries" => entries,
    "properties" => properties,
});

impl Channel {
    /// Reads a channel from the JSON text of its blob.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        decode(text)
    }
}

/// One bundle in a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelEntry {
    /// The bundle.
    pub name: String,
    /// The bundle that this one replaces, as written; see [`ChannelEntry::replaces`].
    pub replaces: Option<String>,
    /// Bundles that this one replaces and that updates skip.
    pub skips: List<String>,
    /// Versions that this bundle replaces, as written; see [`ChannelEntry::skip_range`].
    pub skip_range: Option<String>,
}
decode_object!(ChannelEntry {
    "name" => name,
    "replaces" => replaces,
    "skips" => skips,
    "skiprange" => skip_range,
});

impl ChannelEntry {
    /// The bundle that this one replaces; `None` for an empty name.
    pub fn replaces(&self) -> Option<&str> {
        self.replaces.as_deref().filter(|name| !name.is_empty())
    }

    /// The range of versions that this bundle replaces, in the grammar of `skipRange`; `None` if it is empty.
    pub fn skip_range(&self) -> Option<&str> {
        self.skip_range.as_deref().filter(|range| !range.is_empty())
    }
}
