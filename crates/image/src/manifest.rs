//! Parts of manifests, indexes and configurations that are read.

use std::collections::BTreeMap;

use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE, ImageIndexEntry, OciDescriptor,
    OciImageManifest, OciManifest,
};
use serde::Deserialize;

use crate::digest::Digest;
use crate::platform::Platform;

/// A blob that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The digest.
    pub digest: Digest,
    /// The number of bytes.
    pub size: u64,
    /// The media type the manifest gives it.
    pub media_type: String,
}

/// Media types of the configuration of a container image.
const CONFIG_TYPES: [&str; 2] = [IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE];
/// Media type that stands for a missing configuration.
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

#[derive(Deserialize, Default)]
pub(crate) struct ConfigFile {
    #[serde(default)]
    config: Option<ConfigSection>,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
}

impl ConfigFile {
    /// The labels; one without a value has an empty one.
    pub(crate) fn into_labels(self) -> BTreeMap<String, String> {
        let labels = self.config.unwrap_or_default().labels.unwrap_or_default();
        labels
            .into_iter()
            .map(|(key, value)| (key, value.unwrap_or_default()))
            .collect()
    }
}

#[derive(Deserialize, Default)]
struct ConfigSection {
    #[serde(default, rename = "Labels")]
    labels: Option<BTreeMap<String, Option<String>>>,
}

/// Artifact type in a manifest; `None` for a container image.
pub(crate) fn artifact_type(manifest: &OciImageManifest) -> Option<String> {
    let config = manifest.config.media_type.as_str();
    let named = manifest
        .artifact_type
        .as_deref()
        .filter(|named| !named.is_empty());
    let by_config = (config != EMPTY_TYPE).then_some(config);
    let is_image = config.is_empty() || CONFIG_TYPES.contains(&config);
    (!is_image).then(|| named.or(by_config).unwrap_or(EMPTY_TYPE).to_owned())
}

pub(crate) fn parse_manifest(text: &[u8]) -> Result<OciManifest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        schema_version: u32,
    }
    serde_json::from_slice(text).map_err(|_| match serde_json::from_slice(text) {
        Ok(Version { schema_version: 1 }) => {
            "it has Docker's old format, schema 1, which is not supported: push the image again with a current tool"
                .to_owned()
        }
        _ => "it is neither an image manifest nor an index of version 2".to_owned(),
    })
}

/// The entry for the platform, the one that any machine of that kind runs before more particular ones; else one without
/// a platform.
pub(crate) fn choose_platform<'index>(
    entries: &'index [ImageIndexEntry],
    wanted: &Platform,
) -> Option<&'index ImageIndexEntry> {
    let fits = |entry: &&ImageIndexEntry| {
        entry.platform.as_ref().is_some_and(|platform| {
            platform.os.to_string() == wanted.os && platform.architecture.to_string() == wanted.architecture
        })
    };
    let particular = |entry: &&ImageIndexEntry| {
        let variant = entry
            .platform
            .as_ref()
            .and_then(|platform| platform.variant.as_deref());
        match (variant.unwrap_or_default(), wanted.architecture.as_str()) {
            ("", _) | ("v1", "amd64") | ("v8", "arm64") => String::new(),
            (variant, _) => variant.to_owned(),
        }
    };
    entries
        .iter()
        .filter(fits)
        .min_by_key(particular)
        .or_else(|| entries.iter().find(|entry| entry.platform.is_none()))
}

pub(crate) fn layers(manifest: &OciImageManifest) -> Result<Vec<Blob>, String> {
    manifest.layers.iter().map(blob).collect()
}

pub(crate) fn blob(descriptor: &OciDescriptor) -> Result<Blob, String> {
    Ok(Blob {
        digest: Digest::parse(&descriptor.digest).map_err(|error| error.to_string())?,
        size: u64::try_from(descriptor.size).map_err(|_| "a size is negative".to_owned())?,
        media_type: descriptor.media_type.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_particular_image_of_a_platform_is_chosen() {
        let check = |architecture: &str, variants: &[Option<&str>], expected: Option<usize>| {
            let entries: Vec<ImageIndexEntry> = variants
                .iter()
                .enumerate()
                .map(|(number, variant)| {
                    let mut platform = serde_json::json!({ "os": "linux", "architecture": architecture });
                    if let (Some(variant), Some(fields)) = (variant, platform.as_object_mut()) {
                        fields.insert("variant".to_owned(), (*variant).into());
                    }
                    let entry = serde_json::json!({
                        "mediaType": "x", "digest": number.to_string(), "size": 1, "platform": platform,
                    });
                    serde_json::from_value(entry).unwrap()
                })
                .collect();
            let wanted = Platform {
                os: "linux".to_owned(),
                architecture: architecture.to_owned(),
            };
            let found = choose_platform(&entries, &wanted).map(|entry| entry.digest.clone());
            assert_eq!(found, expected.map(|number| number.to_string()), "{variants:?}");
        };
        check("amd64", &[Some("v3"), Some("v2"), None], Some(2));
        check("amd64", &[Some("v3"), Some("v1"), None], Some(1));
        check("arm64", &[Some("v9"), Some("v8")], Some(1));
        check("arm", &[Some("v7"), Some("v6")], Some(1));
        check("amd64", &[None, None], Some(0));
        check("amd64", &[], None);
    }
}
