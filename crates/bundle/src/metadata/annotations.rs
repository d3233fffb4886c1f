//! `metadata/annotations.yaml` and the image labels with the same keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::members::{member, plain_text};

/// The supported bundle format.
pub const REGISTRY_V1: &str = "registry+v1";

/// The keys of `metadata/annotations.yaml`, which are also image labels.
pub mod annotation_keys {
    /// The bundle's format.
    pub const MEDIA_TYPE: &str = "operators.operatorframework.io.bundle.mediatype.v1";
    /// The package's name.
    pub const PACKAGE: &str = "operators.operatorframework.io.bundle.package.v1";
    /// The channels, separated by commas.
    pub const CHANNELS: &str = "operators.operatorframework.io.bundle.channels.v1";
    /// The default channel.
    pub const DEFAULT_CHANNEL: &str = "operators.operatorframework.io.bundle.channel.default.v1";
    /// The directory of manifests; reserved, always `manifests/`.
    pub const MANIFESTS: &str = "operators.operatorframework.io.bundle.manifests.v1";
    /// The directory of metadata; reserved, always `metadata/`.
    pub const METADATA: &str = "operators.operatorframework.io.bundle.metadata.v1";

    pub(super) const ALL: [&str; 6] = [
        MEDIA_TYPE,
        PACKAGE,
        CHANNELS,
        DEFAULT_CHANNEL,
        MANIFESTS,
        METADATA,
    ];
}

/// The annotations of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, String>);

impl Annotations {
    /// The annotations of a parsed `annotations.yaml`, completed by image labels. The file has precedence.
    ///
    /// `None` if the document, or `annotations` in it, is not a mapping. An absent value is allowed.
    #[must_use]
    pub fn new(document: &Value, labels: &BTreeMap<String, String>) -> Option<Self> {
        let file = match document {
            Value::Null => None,
            Value::Object(document) => match member(document, "annotations") {
                None | Some(Value::Null) => None,
                Some(Value::Object(annotations)) => Some(annotations),
                Some(_) => return None,
            },
            _ => return None,
        };
        let mut annotations = labels.clone();
        for (key, value) in file.into_iter().flatten() {
            if let (false, Some(text)) = (value.is_null(), plain_text(Some(value))) {
                annotations.insert(key.clone(), text);
            }
        }
        // Keys match in any case.
        for known in annotation_keys::ALL {
            let written = file.filter(|file| !file.contains_key(known));
            if let Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) =
                written.and_then(|file| member(file, known))
            {
                annotations.extend(plain_text(Some(value)).map(|text| (known.to_owned(), text)));
            }
        }
        Some(Self(annotations))
    }

    /// One annotation.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The package's name; empty if absent.
    #[must_use]
    pub fn package(&self) -> &str {
        self.get(annotation_keys::PACKAGE).unwrap_or_default()
    }

    /// The channels, without blanks around them and without empty ones.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        let list = self.get(annotation_keys::CHANNELS).unwrap_or_default();
        list.split(',')
            .map(str::trim)
            .filter(|channel| !channel.is_empty())
    }

    /// The default channel, if present.
    #[must_use]
    pub fn default_channel(&self) -> Option<&str> {
        self.get(annotation_keys::DEFAULT_CHANNEL)
            .map(str::trim)
            .filter(|channel| !channel.is_empty())
    }

    /// The bundle's format, if present.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        self.get(annotation_keys::MEDIA_TYPE)
    }

    /// Annotations with a package name alone.
    #[must_use]
    pub fn for_package(package: &str) -> Self {
        Self(BTreeMap::from([(
            annotation_keys::PACKAGE.to_owned(),
            package.to_owned(),
        )]))
    }
}
